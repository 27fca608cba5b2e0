"""The loss between models: along the straight line from one to another, and on a plane through three."""

from collections.abc import Callable, Mapping

import numpy as np

from fourfold.contract.merged import Line, Slice
from fourfold.contract.strict import finite
from fourfold.rules.members import is_floating

Weights = Mapping[str, np.ndarray]
Measure = Callable[[Weights], tuple[float, float]]
"""Gives the mean cross-entropy, nats, and the accuracy, 0 to 1, of a model with these weights."""
POINTS = 11
SIDE = 9
BEYOND = 0.35
"""How far a plane's picture reaches beyond its points, as a share of their distance."""


def line(measure: Measure, members: tuple[int, int], a: Weights, b: Weights, aligned: bool) -> Line:
    """Measures models between two others.

    Args:
        measure: gives loss and accuracy.
        members: which two they are.
        a: weights of the first.
        b: of the second.
        aligned: whether they were aligned before.
    """
    shares = np.linspace(0, 1, POINTS)
    found = [measure(between(a, b, float(share))) for share in shares]
    losses = np.array([loss for loss, _ in found])
    with np.errstate(invalid="ignore"):
        above = losses - ((1 - shares) * losses[0] + shares * losses[-1])
    return Line(
        members=list(members),
        aligned=aligned,
        losses=[finite(float(loss)) for loss in losses],
        accuracies=[accuracy for _, accuracy in found],
        barrier=float(max(0.0, np.nanmax(above))) if np.isfinite(above).any() else 0.0,
    )


def between(a: Weights, b: Weights, share: float) -> dict[str, np.ndarray]:
    """The weights (1 - share) a + share b; what is not floating point is a's."""
    return {
        name: ((1 - share) * value.astype(np.float64) + share * b[name].astype(np.float64)).astype(
            value.dtype
        )
        if is_floating(value)
        else value
        for name, value in a.items()
    }


def plane(measure: Measure, points: Mapping[str, Weights]) -> Slice | None:
    """Measures models on the plane through three others.

    Args:
        measure: gives loss and accuracy.
        points: weights by name: the first is the origin, the second lies on the first axis; the third
            spans the plane; further ones are marked where they are nearest to it.

    Returns:
        None where the points lie on one line.
    """
    names = list(points)
    vectors = [_flat(points[name]) for name in names]
    origin, first, second = vectors[:3]
    u = first - origin
    unit = float(np.linalg.norm(u))
    if unit == 0:
        return None
    u /= unit
    v = second - origin - np.vdot(second - origin, u) * u
    if np.linalg.norm(v) <= 1e-6 * unit:
        return None
    v /= np.linalg.norm(v)
    places = {
        name: [float(np.vdot(vector - origin, axis) / unit) for axis in (u, v)]
        for name, vector in zip(names, vectors, strict=True)
    }
    x, y = (
        np.linspace(min(each) - BEYOND, max(each) + BEYOND, SIDE)
        for each in zip(*places.values(), strict=True)
    )
    template = points[names[0]]
    losses = [[finite(measure(_shaped(origin + unit * (i * u + j * v), template))[0]) for i in x] for j in y]
    return Slice(x.tolist(), y.tolist(), losses, places)


def _flat(values: Weights) -> np.ndarray:
    return np.concatenate([v.astype(np.float64).ravel() for v in values.values() if is_floating(v)])


def _shaped(vector: np.ndarray, template: Weights) -> dict[str, np.ndarray]:
    found, begin = {}, 0
    for name, value in template.items():
        if is_floating(value):
            piece = vector[begin : begin + value.size].reshape(value.shape)
            if name.endswith("/moving_variance"):
                # Beyond the points a variance may be extrapolated below 0, where it is none.
                piece = np.maximum(piece, 0.0)
            found[name], begin = piece.astype(value.dtype), begin + value.size
        else:
            found[name] = value
    return found
