"""The mean of the members' weights, each weight by how much its member's predictions depend on it."""

from collections.abc import Sequence

import numpy as np

from fourfold.rules.members import Member, by_pieces, mean
from fourfold.rules.state import State


def merge(members: Sequence[Member], floor: float = 1e-8) -> dict[str, np.ndarray]:
    """A weight counts by its member's Fisher information: W = sum of F_k W_k / sum of F_k, each by itself.

    Matena and Raffel, 2022, "Merging models with Fisher-weighted averaging", equation 2, with equal members.
    What has no Fisher information (moving statistics, frozen layers) is averaged.

    Args:
        members: of one structure, each with the statistics ``fisher/<variable>``, means over rows.
        floor: added to each, so that a weight that no member depends on is averaged.

    Returns:
        The merged weights by place and role, each with the dtype of the members.
    """
    merged = mean(members)
    for name in merged:
        key = f"fisher/{name}"
        if any(key not in member.statistics for member in members):
            continue
        told = [np.asarray(member.statistics[key]) for member in members]
        own = [member.weights[name] for member in members]
        merged[name] = by_pieces(lambda own, told: _weighted(own, told, floor), own, told)
    return merged


def _weighted(own: Sequence[np.ndarray], told: Sequence[np.ndarray], floor: float) -> np.ndarray:
    counts = [each + floor for each in told]
    terms = [count * value for count, value in zip(counts, own, strict=True)]
    return np.sum(terms, axis=0) / np.sum(counts, axis=0)


def apply(state: State, ground: object, floor: float = 1e-8) -> State:
    """The rule in a chain."""
    return state.now(merge(state.members, floor))
