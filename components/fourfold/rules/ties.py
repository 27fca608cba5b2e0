"""Adds up what the members learnt since their common start, without what they contradict each other in."""

from collections.abc import Mapping, Sequence

import numpy as np

from fourfold.rules.members import Member, by_pieces, is_floating, mean
from fourfold.rules.state import Ground, State


def merge(
    members: Sequence[Member], start: Mapping[str, np.ndarray], keep: float = 0.2, scale: float = 1.0
) -> dict[str, np.ndarray]:
    """Trim, elect a sign, take the mean of those that agree with it.

    Yadav et al., 2023, "TIES-merging: resolving interference when merging models", algorithm 1.

    Args:
        members: of one structure.
        start: the weights that all started from.
        keep: share of each member's changes that are kept, the largest ones; above 0 to 1.
        scale: of the sum that is added to the start, lambda.

    Returns:
        The merged weights by place and role. Moving statistics are averaged.
    """
    trained = [n for n, value in members[0].weights.items() if is_floating(value) and "/moving_" not in n]
    least = [_least(member, start, trained, keep) for member in members]
    merged = mean(members)
    for name in trained:
        own = [member.weights[name] for member in members]
        merged[name] = by_pieces(lambda own, begin: _added(own, begin[0], least, scale), own, [start[name]])
    return merged


def _added(own: Sequence[np.ndarray], begin: np.ndarray, least: Sequence[float], scale: float) -> np.ndarray:
    """The start and what is added to it."""
    kept = np.stack([_kept(value - begin, size) for value, size in zip(own, least, strict=True)])
    agrees = np.sign(kept) == np.sign(kept.sum(axis=0))
    count = np.maximum((agrees & (kept != 0)).sum(axis=0), 1)
    return begin + scale * (np.where(agrees, kept, 0).sum(axis=0) / count)


def _least(member: Member, start: Mapping[str, np.ndarray], names: Sequence[str], keep: float) -> float:
    """The size of the smallest of a member's changes that are kept."""
    sizes, end = np.empty(sum(member.weights[name].size for name in names)), 0
    for name in names:
        begin, end = end, end + member.weights[name].size
        piece = sizes[begin:end].reshape(member.weights[name].shape)
        piece[...] = member.weights[name]
        piece -= start[name]
        np.abs(piece, out=piece)
    place = len(sizes) - max(1, round(keep * len(sizes)))
    sizes.partition(place)
    return float(sizes[place])


def _kept(change: np.ndarray, least: float) -> np.ndarray:
    """Changes since the start, those below ``least`` set to 0."""
    return np.where(np.abs(change) >= least, change, 0.0)


def apply(state: State, ground: Ground, keep: float = 0.2, scale: float = 1.0) -> State:
    """The rule in a chain."""
    assert ground.start is not None
    return state.now(merge(state.members, ground.start, keep, scale))
