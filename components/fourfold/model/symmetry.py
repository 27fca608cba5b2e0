"""The permutations of units under which a network computes the same function. Plain NumPy.

Units of one layer may change places, if all that reads them changes with them. Which axes of which arrays
belong together is read from a model's graph (``model.graph``); this is what is known then, and its use.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Group:
    """Units that change places together.

    Attributes:
        name: where they are made, for people.
        size: how many.
        blocks: equal parts that each unit stays within, one after another; 1 for none.
        free: whether they may change places at all.
    """

    name: str
    size: int
    blocks: int = 1
    free: bool = True


@dataclass(frozen=True)
class Axis:
    """What one axis of an array is along.

    Attributes:
        group: index of the group of each position [n].
        unit: of the group, of each position [n].
        block: True where the axis holds the units of one block only, and another axis says of which: the
            inputs of a grouped convolution.
    """

    group: np.ndarray
    unit: np.ndarray
    block: bool = False

    def moved(self, orders: Mapping[int, np.ndarray]) -> np.ndarray:
        """Which old position comes to each position, int64 [n], where groups' units are put in new orders.

        Args:
            orders: by group: which old unit comes to each unit's place [size].
        """
        places = np.arange(len(self.unit))
        for group, order in orders.items():
            mine = np.flatnonzero(self.group == group)
            if not len(mine):
                continue
            # A unit may have several positions (after Flatten one a pixel): the k-th goes to the k-th.
            by_unit = mine[np.argsort(self.unit[mine], kind="stable")].reshape(len(order), -1)
            places[by_unit] = by_unit[order]
        return places


@dataclass(frozen=True)
class Symmetry:
    """What may change places in a model.

    Attributes:
        groups: of units.
        axes: by variable, for each axis what it is along; None for an axis that stays as it is.
        held: why groups are not free, in sentences.
        untreated: sentences on layers with weights that are not understood.
    """

    groups: tuple[Group, ...]
    axes: Mapping[str, tuple[Axis | None, ...]]
    held: tuple[str, ...] = ()
    untreated: tuple[str, ...] = ()

    def free(self) -> list[int]:
        """The groups that may change."""
        return [index for index, group in enumerate(self.groups) if group.free and group.size > 1]

    def permuted(
        self, values: Mapping[str, np.ndarray], orders: Mapping[int, np.ndarray]
    ) -> dict[str, np.ndarray]:
        """Arrays with units in new orders; with all of a model's weights its function stays the same.

        Args:
            values: by variable; those that the model does not have stay as they are.
            orders: by group: which old unit comes to each unit's place [size].
        """
        return {name: self.of_one(name, value, orders) for name, value in values.items()}

    def of_one(self, name: str, value: np.ndarray, orders: Mapping[int, np.ndarray]) -> np.ndarray:
        """One array with units in new orders; see ``permuted``."""
        axes = self.axes.get(name, ())
        for place, axis in enumerate(axes):
            if axis is None or not np.isin(axis.group, list(orders)).any():
                continue
            if axis.block:
                value = _within_blocks(value, place, axis, self.groups, orders)
            else:
                value = np.take(value, axis.moved(orders), axis=place)
        return value


def _within_blocks(
    value: np.ndarray, place: int, axis: Axis, groups: Sequence[Group], orders: Mapping[int, np.ndarray]
) -> np.ndarray:
    """A grouped convolution's kernel: its inputs' units change places within each block of its outputs."""
    group, width = int(axis.group[0]), len(axis.unit)
    moved = []
    for block, part in enumerate(np.split(value, groups[group].size // width, axis=-1)):
        order = orders[group][block * width : (block + 1) * width] - block * width
        moved.append(np.take(part, order, axis=place))
    return np.concatenate(moved, axis=-1)


def identity(symmetry: Symmetry) -> dict[int, np.ndarray]:
    """The orders that change nothing, of the free groups."""
    return {group: np.arange(symmetry.groups[group].size) for group in symmetry.free()}


def drawn(symmetry: Symmetry, seed: int) -> dict[int, np.ndarray]:
    """Orders at random, of the free groups; each unit stays in its block."""
    generator = np.random.default_rng(seed)
    orders = {}
    for index in symmetry.free():
        group = symmetry.groups[index]
        width = group.size // group.blocks
        orders[index] = np.concatenate(
            [block * width + generator.permutation(width) for block in range(group.blocks)]
        )
    return orders


def composed(first: Mapping[int, np.ndarray], second: Mapping[int, np.ndarray]) -> dict[int, np.ndarray]:
    """The orders that do what ``first`` and then ``second`` do; both of the same groups."""
    return {group: order[second[group]] for group, order in first.items()}


def similarity(
    symmetry: Symmetry,
    group: int,
    fixed: Mapping[str, np.ndarray],
    other: Mapping[str, np.ndarray],
    names: Sequence[str],
) -> np.ndarray:
    """How alike units are by their weights: the inner product of all that belongs to them, float64 [n, n].

    Args:
        symmetry: of the model.
        group: whose units.
        fixed: weights by variable; its units are rows of the result.
        other: likewise; its units are columns.
        names: of the variables that are compared.
    """
    size = symmetry.groups[group].size
    total = np.zeros((size, size))
    for name in names:
        axes = symmetry.axes.get(name, ())
        for place, axis in enumerate(axes):
            if axis is None or not (axis.group == group).any():
                continue
            if axis.block:
                total += _of_blocks(size, len(axis.unit), place, fixed[name], other[name])
                continue
            mine = np.flatnonzero(axis.group == group)
            mine = mine[np.argsort(axis.unit[mine], kind="stable")].reshape(size, -1)
            a, b = (
                np.moveaxis(value, place, 0)[mine].reshape(size, -1).astype(np.float64)
                for value in (fixed[name], other[name])
            )
            total += a @ b.T
    return total


def _of_blocks(size: int, width: int, place: int, fixed: np.ndarray, other: np.ndarray) -> np.ndarray:
    total = np.zeros((size, size))
    pairs = zip(*(np.split(value, size // width, axis=-1) for value in (fixed, other)), strict=True)
    for block, pair in enumerate(pairs):
        a, b = (np.moveaxis(part, place, 0).reshape(width, -1).astype(np.float64) for part in pair)
        mine = slice(block * width, (block + 1) * width)
        total[mine, mine] = a @ b.T
    return total
