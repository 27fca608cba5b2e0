"""The models to be merged: loaded, checked to be of one structure, their weights named by place and role."""

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from fourfold.contract.errors import InvalidInputError

PIECE = 1 << 14
"""Numbers of an array that are merged at a time: 131 kB of float64."""


@dataclass(frozen=True)
class Member:
    """A model to be merged.

    Attributes:
        name: for errors.
        weights: by place and role, in graph order (``model.weights``).
        structure: of its graph, a line a layer (``model.weights.structure``).
        layer_names: that users gave its layers, in graph order; empty for a layer that Keras named.
        rows: that it was trained on.
        site: index of the site whose rows it was trained on.
        statistics: sums that were gathered there, by ``merge.statistics``; empty for none.
    """

    name: str
    weights: Mapping[str, np.ndarray]
    structure: tuple[str, ...]
    layer_names: tuple[str, ...]
    rows: int
    site: int = 0
    statistics: Mapping[str, np.ndarray] = field(default_factory=dict)


def check(members: Sequence[Member]) -> None:
    """Makes sure that members can be merged.

    Raises:
        InvalidInputError: there are none, their structures differ, the names that users gave their layers
            contradict their places, or a weight is not finite. The error names the member and the layer.
    """
    if not members:
        raise InvalidInputError("there is no model to merge")
    first = members[0]
    for member in members[1:]:
        if member.structure != first.structure:
            raise InvalidInputError(
                f"{member.name} has not the structure of {first.name}, so their weights cannot be merged:"
                + _difference(first, member)
            )
        for place, name in enumerate(member.layer_names):
            if name and name in first.layer_names and first.layer_names[place] != name:
                raise InvalidInputError(
                    f"{member.name} has the layers of {first.name} in another order "
                    f"({_named(member)} against {_named(first)}): "
                    "which belong together, those of one name or of one place? Rename them"
                )
    for member in members:
        for name, value in member.weights.items():
            if is_floating(value) and not np.isfinite(value).all():
                raise InvalidInputError(f"{member.name}: {name} holds NaN or infinity; leave this model out")


def is_floating(value: np.ndarray) -> bool:
    """True for floating-point numbers of any width, also those that NumPy itself does not know (bfloat16)."""
    return "float" in value.dtype.name


def _named(member: Member) -> str:
    return ", ".join(name or "-" for name in member.layer_names)


def _difference(first: Member, other: Member) -> str:
    lines = []
    for a, b in zip(first.structure, other.structure, strict=False):
        if a != b:
            lines.append(f"\n  {first.name}: {a}\n  {other.name}: {b}")
    longer = max(first, other, key=lambda member: len(member.structure))
    for line in longer.structure[min(len(first.structure), len(other.structure)) :]:
        lines.append(f"\n  only {longer.name}: {line}")
    return "".join(lines)


def average(members: Sequence[Member], shares: Sequence[float]) -> dict[str, np.ndarray]:
    """A weighted mean of each array, summed in float64 and brought back to the array's own dtype.

    State that is not floating point (a step, a seed) is no average of anything: the first member's is kept.

    Args:
        members: of one structure.
        shares: of each member; they must sum to 1.

    Returns:
        The mean by name, in graph order.
    """
    mean = {}
    for name, value in members[0].weights.items():
        if is_floating(value):
            values = [member.weights[name] for member in members]
            mean[name] = by_pieces(
                lambda own: functools.reduce(np.add, map(np.multiply, shares, own)), values
            )
        else:
            mean[name] = value.copy()
    return mean


def by_pieces(formula: Callable[..., np.ndarray], *groups: Sequence[np.ndarray]) -> np.ndarray:
    """Applies a formula of single numbers to whole arrays, with little in memory beside them.

    Args:
        formula: takes a list of float64 arrays [n] for each group, gives one [n]; ``PIECE`` numbers at most
            at a time, which stay in the processor's cache.
        groups: arrays of one shape.

    Returns:
        What it gives, with the shape and dtype of the first array of all.
    """
    flat = [[np.asarray(value).reshape(-1) for value in group] for group in groups]
    found = np.empty(groups[0][0].shape, groups[0][0].dtype)
    into = found.reshape(-1)
    for begin in range(0, into.size, PIECE):
        piece = slice(begin, begin + PIECE)
        into[piece] = formula(*([value[piece].astype(np.float64) for value in group] for group in flat))
    return found


def mean(members: Sequence[Member]) -> dict[str, np.ndarray]:
    """The plain mean of each array."""
    return average(members, [1 / len(members)] * len(members))
