"""Each layer in turn by least squares, from what the merged model gives it to what the members' own made."""

import numpy as np

from fourfold.rules.sites import Scores
from fourfold.rules.state import Ground, State, Weights, solved

RIDGE = 1e-3
IMAGES = 1000
ROWS = 10_000
TEMPERATURE = 5.0
LEAST = 0.01
LARGEST = 1 << 25
"""Numbers in the sums of a weighted last layer at most, 268 MB; above, its rows count alike."""


def apply(
    state: State,
    ground: Ground,
    ridge: float = RIDGE,
    rows: int = ROWS,
    images: int = IMAGES,
    temperature: float = TEMPERATURE,
    least: float = LEAST,
) -> State:
    """The rule in a chain.

    RegMean (Jin et al., 2023) takes each layer's inputs from the members; here they come from the merged
    model as far as it is done, so that a later layer mends what an earlier one lost. Every site asks on its
    own rows what its own member's layer would have made, which needs no labels: the minimum over W of the sum
    of |H_k W - Y_k|^2, with H_k the merged model's inputs and Y_k the member's outputs before the activation.
    One exchange a layer, of H_k^T H_k and H_k^T Y_k, which add. In the last layer of a classifier each logit
    counts by the curvature of the cross-entropy there (``sites.Scores``); ours, measured in the README.

    Args:
        state: of the chain.
        ground: with sites.
        ridge: how strongly what was before is held.
        rows: of each site, for layers that see a row once.
        images: likewise, for layers that see a row at many places.
        temperature: that softens logits where they are weighted; 0 for all alike.
        least: of a logit's weight.
    """
    assert ground.sites is not None
    merged, said = dict(state.base), list(ground.unmapped)
    for name in ground.order:
        scores = None
        if name == ground.head and ground.scores:
            scores = Scores(temperature, least)
            classes, inputs = ground.model.output_shape[-1], ground.maps[name].inputs
            if temperature and classes * inputs**2 > LARGEST:
                scores = Scores(0.0, least)
                said.append(
                    f"The last layer has {classes:,} classes of {inputs:,} inputs: its rows count alike."
                )
        merged |= _fitted(name, merged, state, ground, scores, ridge, int(rows), int(images))
    return state.now(merged, *said)


def _fitted(
    name: str,
    merged: Weights,
    state: State,
    ground: Ground,
    scores: Scores | None,
    ridge: float,
    rows: int,
    images: int,
) -> dict[str, np.ndarray]:
    """One layer's variables."""
    assert ground.sites is not None
    each = ground.maps[name]
    count = images if each.sees_places else rows
    sums = ground.sites.total(lambda site: site.fit(name, merged, state.own(site.index), count, scores))
    prior = each.matrix(merged)
    if scores is not None:
        prior = prior - prior.mean(axis=-1, keepdims=True)
    if scores is not None and scores.temperature:
        columns = solved(sums["gram"], sums["cross"], prior[0].T[:, :, np.newaxis], ridge)
        matrix = columns[:, :, 0].T[np.newaxis]
    else:
        matrix = solved(sums["gram"], sums["cross"], prior, ridge)
    return each.arrays(matrix, merged, sums["gram"])
