"""Adds what the members learnt since their common start to that start."""

from collections.abc import Mapping, Sequence

import numpy as np

from fourfold.model import measures, scoring, weights
from fourfold.rules.members import Member, by_pieces, is_floating, mean
from fourfold.rules.state import Ground, State

SCALES = (0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.2)


def merge(members: Sequence[Member], start: Mapping[str, np.ndarray], scale: float) -> dict[str, np.ndarray]:
    """W = start + scale * sum of (W_k - start).

    Ilharco et al., 2023, "Editing models with task arithmetic", section 2. With a scale of 1 / K: the mean.

    Args:
        members: of one structure.
        start: the weights that all started from.
        scale: lambda.

    Returns:
        The merged weights by place and role. Moving statistics are averaged.
    """
    merged = mean(members)
    for name, value in merged.items():
        if is_floating(value) and "/moving_" not in name:
            own = [member.weights[name] for member in members]
            merged[name] = by_pieces(lambda own, begin: _moved(own, begin[0], scale), own, [start[name]])
    return merged


def _moved(own: Sequence[np.ndarray], begin: np.ndarray, scale: float) -> np.ndarray:
    return begin + scale * np.sum([value - begin for value in own], axis=0)


def apply(state: State, ground: Ground, scale: float = 0.0) -> State:
    """The rule in a chain; with a scale of 0 the best on the calibration rows is taken, as in the paper."""
    assert ground.start is not None
    if scale or ground.calibration is None:
        return state.now(merge(state.members, ground.start, scale or 1 / len(state.members)))
    found = {}
    for each in SCALES:
        weights.assign(ground.model, merge(state.members, ground.start, each))
        logits = scoring.logits(ground.model, ground.calibration.x)
        found[each] = measures.cross_entropy(logits, ground.calibration.y)
    best = min(SCALES, key=lambda each: (not np.isfinite(found[each]), found[each]))
    return state.now(
        merge(state.members, ground.start, best),
        f"task_arithmetic took the scale {best:g} by calibration rows.",
    )
