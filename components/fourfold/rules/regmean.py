"""Each layer by least squares: its outputs stay as they were, for the inputs that each member's layer had."""

from collections.abc import Mapping, Sequence

import numpy as np

from fourfold.model import linear
from fourfold.rules.members import Member, mean
from fourfold.rules.state import Ground, State, solved


def merge(
    members: Sequence[Member], maps: Mapping[str, linear.Map], alpha: float = 1.0, ridge: float = 1e-6
) -> dict[str, np.ndarray]:
    """W = (sum of G_k)^-1 sum of G_k W_k for each linear layer, with G_k = X_k^T X_k of its inputs.

    Jin et al., 2023, "Dataless knowledge fusion by merging weights of language models" (RegMean), equation 2;
    ``alpha`` is theirs. Other layers are averaged. Theirs has no ridge and fails where an input is always 0.

    Args:
        members: of one structure, each with the statistics ``gram/<layer>``, means over rows, and its rows.
        maps: the linear layers by name.
        alpha: what is left of products of different inputs, 0 to 1; 1 for all.
        ridge: how strongly the mean is held where inputs say nothing.

    Returns:
        The merged weights by place and role, each with the dtype of the members.
    """
    merged = mean(members)
    for name, each in maps.items():
        key = f"gram/{name}"
        if each.normalises or any(key not in member.statistics for member in members):
            continue
        own = [each.matrix(member.weights) for member in members]
        rows = [max(float(member.rows), 1.0) for member in members]
        grams = [
            _damped(np.asarray(member.statistics[key], np.float64), alpha) * count
            for member, count in zip(members, rows, strict=True)
        ]
        cross = np.sum([gram @ matrix for gram, matrix in zip(grams, own, strict=True)], axis=0)
        matrix = solved(np.sum(grams, axis=0), cross, each.matrix(merged), ridge)
        merged |= each.arrays(matrix, merged)
    return merged


def _damped(gram: np.ndarray, alpha: float) -> np.ndarray:
    diagonal = np.eye(gram.shape[-1], dtype=bool)
    return np.where(diagonal, gram, alpha * gram)


def apply(state: State, ground: Ground, alpha: float = 1.0, ridge: float = 1e-6) -> State:
    """The rule in a chain."""
    return state.now(merge(state.members, ground.maps, alpha, ridge), *ground.unmapped)
