"""Mends the spread of activations that a mean of weights loses, after the merge."""

import numpy as np

from fourfold.rules.state import Ground, State

ROWS = 500


def apply(state: State, ground: Ground, rows: int = ROWS) -> State:
    """The rule in a chain.

    Jordan et al., 2023, "REPAIR: renormalizing permuted activations for interpolation repair": each unit's
    mean and standard deviation before the activation, over rows, become the mean of the members'. Layer by
    layer, each measured in the model that is mended so far. The last layer is left alone, as there.

    Args:
        state: of the chain.
        ground: with sites; every site runs all members on its own rows.
        rows: of each site.
    """
    assert ground.sites is not None
    names = [name for name in ground.order if name != ground.head and "bias" in ground.roles(name)]
    unbiased = [name for name in ground.order if ground.roles(name) == {"kernel"} and name != ground.head]
    weights = [member.weights for member in state.members]
    sums = ground.sites.total(lambda site: site.outputs(weights, names, int(rows))) if names else {}
    merged = dict(state.base)
    for name in names:
        wanted = [_moments(sums[f"{model}/{name}"], sums[f"count/{name}"]) for model in range(len(weights))]
        mean, spread = np.mean([each[0] for each in wanted], axis=0), np.mean([e[1] for e in wanted], axis=0)
        now = ground.sites.total(lambda site, name=name, now=merged: site.outputs([now], [name], int(rows)))
        is_mean, is_spread = _moments(now[f"0/{name}"], now[f"count/{name}"])
        factor = np.where(is_spread > 1e-6, spread / np.maximum(is_spread, 1e-6), 1.0)
        matrix = ground.maps[name].matrix(merged)
        shape = (matrix.shape[0], 1, matrix.shape[2])
        matrix = matrix * factor.reshape(shape)
        matrix[:, -1:] += (mean - factor * is_mean).reshape(shape)
        merged |= ground.maps[name].arrays(matrix, merged)
    said = [f"repair left {', '.join(unbiased)} alone: without a bias their mean cannot be set."]
    return state.now(merged, *(said if unbiased else []))


def _moments(sums: np.ndarray, count: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    mean = sums[0] / count
    return mean, np.sqrt(np.maximum(sums[1] / count - np.square(mean), 0.0))
