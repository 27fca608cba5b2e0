"""Aligns members before they are merged: units that do alike on the same rows come to one place."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from fourfold.rules.state import Ground, State
from fourfold.rules.weight_matching import align, assigned

ROWS = 500
"""Of each site."""


def correlations(sums: Mapping[str, np.ndarray], name: str, model: int) -> np.ndarray:
    """How units of a layer in the first model (rows) and another (columns) correlate, float64 [n, n].

    Args:
        sums: as ``Site.crossed`` gives them.
        name: of the layer.
        model: the other's number.
    """
    count = sums[f"sums/count/{name}"]
    (a, aa), (b, bb) = sums[f"sums/0/{name}"] / count, sums[f"sums/{model}/{name}"] / count
    cross = sums[f"{model}/{name}"] / count - np.outer(a, b)
    spread = np.sqrt(np.outer(np.maximum(aa - a * a, 0), np.maximum(bb - b * b, 0)))
    return np.divide(cross, spread, out=np.zeros_like(cross), where=spread > 1e-12)


def apply(state: State, ground: Ground, rows: int = ROWS) -> State:
    """The rule in a chain: every other member is brought near to the first.

    Li et al., 2016, "Convergent learning"; Ainsworth et al., 2023, "Git Re-Basin", section 3.1: the
    assignment of units with the largest sum of correlations. Every site runs all members on its own rows.
    """
    assert ground.sites is not None
    makers = {group: ground.made_by(group) for group in ground.symmetry.free()}
    names = [name for name in ground.order if any(name in made for made in makers.values())]
    weights = [member.weights for member in state.members]
    sums = ground.sites.total(lambda site: site.crossed(weights, names, int(rows)))
    orders: list[dict[int, np.ndarray]] = [{}]
    for model in range(1, len(weights)):
        found = {}
        for group, made in makers.items():
            if made:
                scores = np.sum([correlations(sums, name, model) for name in made], axis=0)
                found[group] = assigned(scores, ground.symmetry.groups[group].blocks)
        orders.append(found)
    unseen = [ground.symmetry.groups[group].name for group, made in makers.items() if not made]
    said = [
        f"activation_matching left the units of {name} where they are: no linear map makes them"
        for name in unseen
    ]
    moved = align(state, ground, orders)
    return replace(moved, said=(*moved.said, *said))
