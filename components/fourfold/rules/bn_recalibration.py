"""Computes BatchNorm's moving statistics anew for the merged weights, after the merge."""

from fourfold.model import linear
from fourfold.model.pinned import keras
from fourfold.rules.state import Ground, State

ROWS = 1000


def apply(state: State, ground: Ground, rows: int = ROWS) -> State:
    """The rule in a chain.

    Izmailov et al., 2018, "Averaging weights leads to wider optima and better generalization", section 3.2.
    Layer by layer, each measured with the statistics before it already right: one exchange a layer.

    Args:
        state: of the chain.
        ground: with sites.
        rows: of each site.
    """
    assert ground.sites is not None
    merged = dict(state.base)
    names = [
        name for name in ground.order if isinstance(ground.maps[name].layer, keras.layers.BatchNormalization)
    ]
    for name in names:
        sums = ground.sites.total(lambda site, name=name: site.grams(merged, [name], int(rows)))
        for role, value in zip(("mean", "variance"), linear.moments(sums[name]), strict=True):
            key = f"{name}/moving_{role}"
            merged[key] = value.astype(merged[key].dtype)
    said = (
        f"BatchNorm's moving statistics were computed anew ({len(names)} layers)."
        if names
        else "bn_recalibration had nothing to do: the model has no BatchNorm."
    )
    return state.now(merged, said)
