"""Adds up what the members learnt since their common start, without what they contradict each other in."""

from collections.abc import Mapping, Sequence

import numpy as np

from fourfold.rules.members import Member, is_floating, mean
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
    merged = mean(members)
    trained = [name for name in merged if is_floating(merged[name]) and "/moving_" not in name]
    changes = [_kept(member, start, trained, keep) for member in members]
    for name in trained:
        stacked = np.stack([change[name] for change in changes])
        agrees = np.sign(stacked) == np.sign(stacked.sum(axis=0))
        count = np.maximum((agrees & (stacked != 0)).sum(axis=0), 1)
        total = np.where(agrees, stacked, 0).sum(axis=0) / count
        merged[name] = (np.asarray(start[name], np.float64) + scale * total).astype(merged[name].dtype)
    return merged


def _kept(
    member: Member, start: Mapping[str, np.ndarray], names: Sequence[str], keep: float
) -> dict[str, np.ndarray]:
    """A member's changes since the start, all but the largest set to 0."""
    changes = {
        name: np.asarray(member.weights[name], np.float64) - np.asarray(start[name], np.float64)
        for name in names
    }
    sizes = np.concatenate([np.abs(change).ravel() for change in changes.values()])
    count = max(1, round(keep * len(sizes)))
    least = np.partition(sizes, len(sizes) - count)[len(sizes) - count]
    return {name: np.where(np.abs(change) >= least, change, 0.0) for name, change in changes.items()}


def apply(state: State, ground: Ground, keep: float = 0.2, scale: float = 1.0) -> State:
    """The rule in a chain."""
    assert ground.start is not None
    return state.now(merge(state.members, ground.start, keep, scale))
