"""What goes from one rule of a chain to the next, and what rules may use."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from fourfold.contract.errors import InvalidInputError
from fourfold.model import graph, linear, taps
from fourfold.model.pinned import keras
from fourfold.model.symmetry import Symmetry
from fourfold.rules.members import Member, mean
from fourfold.rules.sites import Sites

Weights = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Rows:
    """Rows with labels that whoever merges may see.

    Attributes:
        x: [n, ...].
        y: class numbers [n].
    """

    x: np.ndarray
    y: np.ndarray


@dataclass(frozen=True)
class Ground:
    """What rules may use.

    Attributes:
        model: of the members' structure; its weights are set anew whenever it is used.
        symmetry: which units may change places.
        maps: the layers that are linear maps, by name.
        order: their names in the order in which the model uses them.
        unmapped: sentences on the other layers with weights.
        sites: that answer with sums; None where there are none.
        calibration: pooled rows with labels; None for none.
        start: weights that all members started from; None where there are none.
        seed: of what rules draw.
        scores: True where the outputs are class scores, of which a constant added to a row says nothing.
        strict: True where a layer that a rule cannot treat is an error, not averaged.
    """

    model: keras.Model
    symmetry: Symmetry
    maps: Mapping[str, linear.Map]
    order: Sequence[str]
    unmapped: Sequence[str]
    sites: Sites | None = None
    calibration: Rows | None = None
    start: Weights | None = None
    seed: int = 0
    scores: bool = True
    strict: bool = False

    @property
    def head(self) -> str | None:
        """The Dense layer that makes the model's outputs; None where something else does."""
        made: object = self.model
        while isinstance(made, keras.Model):
            if len(getattr(made, "outputs", None) or []) != 1:
                return None
            made = made.outputs[0]._keras_history.operation
        found = [name for name, each in self.maps.items() if each.layer is made]
        return found[0] if found and isinstance(made, keras.layers.Dense) else None

    def roles(self, name: str) -> set[str]:
        """The roles of a layer's variables, such as kernel and bias."""
        return {key.rpartition("/")[2] for key in self.symmetry.axes if key.rpartition("/")[0] == name}

    def made_by(self, group: int) -> list[str]:
        """The layers whose outputs are the units of a group, in their order."""
        found = []
        for name in self.order:
            for role in ("kernel", "embeddings"):
                axes = self.symmetry.axes.get(f"{name}/{role}", ())
                axis = axes[-1] if axes else None
                if axis is not None and not axis.block and (axis.group == group).all():
                    found.append(name)
        return found


@dataclass(frozen=True)
class State:
    """How far a chain of rules has come.

    Attributes:
        members: as they are now; the first is the one that others are aligned to.
        merged: weights; None before a rule has merged.
        said: what a user should know, in sentences.
    """

    members: tuple[Member, ...]
    merged: Weights | None = None
    said: tuple[str, ...] = ()

    @property
    def base(self) -> Weights:
        """The merged weights, or the plain mean where no rule has merged yet."""
        return self.merged if self.merged is not None else mean(self.members)

    def own(self, site: int) -> Weights:
        """The weights of the member that was trained at a site."""
        return next(member.weights for member in self.members if member.site == site)

    def now(self, merged: Weights, *said: str) -> "State":
        """With merged weights."""
        return replace(self, merged=merged, said=tuple(dict.fromkeys([*self.said, *said])))


def ground_of(model: keras.Model, x: np.ndarray | None, widest: int, **known: object) -> Ground:
    """What can be read from a model, and what else is known.

    Args:
        model: of the members' structure.
        x: rows [n, ...] of which one is run through the model, to see its layers' order; None for zeros.
        widest: inputs of a layer at most, for rules that need sums of inputs times each other.
        known: other fields of ``Ground``.
    """
    maps, unmapped = linear.maps(model, widest)
    row = x[:1] if x is not None else _zeros(model)
    order = taps.order(model, {name: each.layer for name, each in maps.items()}, row)
    return Ground(model, graph.read(model), maps, order, unmapped, **known)  # pyright: ignore[reportArgumentType]


def _zeros(model: keras.Model) -> np.ndarray:
    if len(model.inputs) != 1:
        raise InvalidInputError(f"the model has {len(model.inputs)} inputs; only models with one are merged")
    tensor = model.inputs[0]
    return np.zeros([1, *(size or 1 for size in tensor.shape[1:])], tensor.dtype)


def solved(
    gram: np.ndarray, cross: np.ndarray, prior: np.ndarray, ridge: float, least: float = 1e-6
) -> np.ndarray:
    """Least squares, held to what was before where the rows say nothing.

    Minimises |H W - Y|^2 + s ridge |W - prior|^2, with s the mean of the diagonal of H^T H; a layer whose
    inputs are all 0 keeps what was before.

    Args:
        gram: H^T H, [B, d, d].
        cross: H^T Y, [B, d, o].
        prior: [B, d, o].
        ridge: at least ``least``, since unused inputs leave H^T H singular.
        least: the smallest ridge.

    Returns:
        float64 [B, d, o].
    """
    scale = np.trace(gram, axis1=1, axis2=2) / gram.shape[1]
    held = (max(ridge, least) * np.where(scale > 0, scale, 1.0))[:, np.newaxis, np.newaxis]
    eye = np.eye(gram.shape[1])
    return np.linalg.solve(gram + held * eye, cross + held * prior)
