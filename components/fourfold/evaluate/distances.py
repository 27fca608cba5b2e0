"""How far apart models are, by their features of the same rows. Plain NumPy, in float64."""

import itertools
from collections.abc import Sequence

import numpy as np

from fourfold.contract.errors import InvalidInputError


def pairs(members: int) -> list[tuple[int, int]]:
    """Every two of the members, by index, the smaller one first."""
    return list(itertools.combinations(range(members), 2))


def between(members: Sequence[np.ndarray]) -> np.ndarray:
    """The Euclidean distance between every two members' features of a row, a mean over the rows.

    Args:
        members: features [times, rows, n] of each member for the same rows.

    Returns:
        float64 [times, pairs], the pairs as in ``pairs``; NaN where a feature is not finite.

    Raises:
        InvalidInputError: the members' shapes differ.
    """
    if len({member.shape for member in members}) > 1:
        raise InvalidInputError(
            f"distances need members with one shape, got {[member.shape for member in members]}"
        )
    wide = [member.astype(np.float64) for member in members]
    with np.errstate(invalid="ignore"):
        found = [
            np.linalg.norm(wide[left] - wide[right], axis=-1).mean(axis=-1)
            for left, right in pairs(len(members))
        ]
    times = members[0].shape[:1] if members else (0,)
    return np.stack(found, axis=-1) if found else np.zeros((*times, 0))


def equal(values: np.ndarray, members: int) -> list[list[int]]:
    """The groups of members, of two and more, that are at distance 0 from each other at all times.

    Args:
        values: as ``between`` gives them, for at least one time.
        members: how many there are.
    """
    same = {pair for pair, column in zip(pairs(members), values.T, strict=True) if not column.any()}
    groups: list[list[int]] = []
    for member in range(members):
        group = next((group for group in groups if (group[0], member) in same), None)
        if group is None:
            groups.append([member])
        else:
            group.append(member)
    return [group for group in groups if len(group) > 1]
