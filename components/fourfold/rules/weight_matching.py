"""Aligns members before they are merged: units that have like weights come to one place."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from scipy.optimize import linear_sum_assignment

from fourfold.model import symmetry as symmetries
from fourfold.model.symmetry import Symmetry
from fourfold.rules.members import Member, is_floating
from fourfold.rules.state import Ground, State

Weights = Mapping[str, np.ndarray]
TRIES = 5
"""Orders in which groups are matched; the best of them counts."""
PASSES = 100


def match(
    symmetry: Symmetry, fixed: Weights, other: Weights, seed: int = 0, tries: int = TRIES
) -> dict[int, np.ndarray]:
    """The orders of units that bring ``other`` near to ``fixed``, by coordinate descent over groups.

    Ainsworth et al., 2023, "Git Re-Basin", algorithm 1: group by group the assignment of units with the
    largest sum of inner products of weights, until nothing changes; here from several orders of groups, as
    one may end in a poor one. The best of all, with what changes nothing among them, is taken.

    Args:
        symmetry: of the model.
        fixed: weights by variable.
        other: likewise.
        seed: of the orders of groups.
        tries: how many.

    Returns:
        By group which unit of ``other`` comes to each place [size].
    """
    names = _compared(symmetry, fixed)
    best = symmetries.identity(symmetry)
    reached = _alike(fixed, other, names)
    for attempt in range(tries):
        order = np.random.default_rng([seed, attempt]).permutation(symmetry.free())
        orders = _descend(symmetry, fixed, other, names, order.tolist())
        found = _alike(fixed, symmetry.permuted(other, orders), names)
        if found > reached * (1 + 1e-12):
            best, reached = orders, found
    return best


def _descend(
    symmetry: Symmetry, fixed: Weights, other: Weights, names: Sequence[str], groups: Sequence[int]
) -> dict[int, np.ndarray]:
    orders, now = symmetries.identity(symmetry), {name: other[name] for name in names}
    for _ in range(PASSES):
        changed = False
        for group in groups:
            move = _better(symmetry, group, fixed, now, names)
            if move is not None:
                now = {**now, **symmetry.permuted(now, {group: move})}
                orders[group] = orders[group][move]
                changed = True
        if not changed:
            break
    return orders


def _better(
    symmetry: Symmetry, group: int, fixed: Weights, now: Weights, names: Sequence[str]
) -> np.ndarray | None:
    """The order of a group's units in which they are more alike; None where there is none."""
    scores = symmetries.similarity(symmetry, group, fixed, now, names)
    move = assigned(scores, symmetry.groups[group].blocks)
    found, least = scores[np.arange(len(move)), move].sum(), np.trace(scores)
    return move if found > least + 1e-9 * np.abs(scores).max() else None


def assigned(scores: np.ndarray, blocks: int = 1) -> np.ndarray:
    """For each row the column that it is given, so that the sum of scores is largest; within blocks."""
    width, found = len(scores) // blocks, np.arange(len(scores))
    for block in range(blocks):
        mine = slice(block * width, (block + 1) * width)
        found[mine] = block * width + linear_sum_assignment(scores[mine, mine], maximize=True)[1]
    return found


def _compared(symmetry: Symmetry, values: Weights) -> list[str]:
    return [name for name in symmetry.axes if is_floating(values[name]) and "/moving_" not in name]


def _alike(fixed: Weights, other: Weights, names: Sequence[str]) -> float:
    pairs = ((fixed[name].astype(np.float64), other[name].astype(np.float64)) for name in names)
    return float(sum(np.vdot(a, b) for a, b in pairs))


def align(state: State, ground: Ground, orders: Sequence[Mapping[int, np.ndarray]]) -> State:
    """The members with their units in new orders, one a member; what was gathered of them comes along."""
    moved = [moved_member(member, ground, order) for member, order in zip(state.members, orders, strict=True)]
    said = dict.fromkeys([*state.said, *ground.symmetry.untreated])
    return State(tuple(moved), state.merged, tuple(said))


def moved_member(member: Member, ground: Ground, orders: Mapping[int, np.ndarray]) -> Member:
    """A member with its units in new orders."""
    statistics = {}
    for key, value in member.statistics.items():
        kind, _, name = key.partition("/")
        if kind == "fisher":
            value = ground.symmetry.of_one(name, value, orders)
        elif kind == "gram" and name in ground.maps:
            value = _moved_gram(value, name, member, ground, orders)
        statistics[key] = value
    return replace(member, weights=ground.symmetry.permuted(member.weights, orders), statistics=statistics)


def _moved_gram(
    gram: np.ndarray, name: str, member: Member, ground: Ground, orders: Mapping[int, np.ndarray]
) -> np.ndarray:
    """A layer's sums of inputs times each other, with its inputs in new orders: as its own weights move."""
    each = ground.maps[name]
    if each.normalises:
        # Its blocks are its channels, in the order of any of its own arrays.
        key = next((key for key in ground.symmetry.axes if key.rpartition("/")[0] == name), name)
        return ground.symmetry.of_one(key, gram, orders)
    matrix = each.matrix(member.weights)
    places = np.broadcast_to(np.arange(gram.shape[1], dtype=np.float64)[:, np.newaxis], matrix.shape)
    blocks = np.broadcast_to(np.arange(len(gram), dtype=np.float64)[:, np.newaxis, np.newaxis], matrix.shape)
    wide = {key: np.asarray(value, np.float64) for key, value in member.weights.items()}
    found = [
        each.matrix(ground.symmetry.permuted(each.arrays(np.array(numbers), wide), orders))[:, :, 0]
        .round()
        .astype(np.int64)
        for numbers in (blocks, places)
    ]
    block, place = found
    return gram[block[:, :1, np.newaxis], place[:, :, np.newaxis], place[:, np.newaxis, :]]


def apply(state: State, ground: Ground, tries: int = TRIES) -> State:
    """The rule in a chain: every other member is brought near to the first."""
    first, *others = state.members
    orders = [
        match(ground.symmetry, first.weights, other.weights, ground.seed, int(tries)) for other in others
    ]
    return align(state, ground, [{}, *orders])
