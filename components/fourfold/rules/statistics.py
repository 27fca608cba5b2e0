"""What a site gathers of its own model and rows when it has trained, so that merging needs no row of it."""

from collections.abc import Mapping

import numpy as np

from fourfold.rules.sites import Site

ROWS = 300
"""Whose gradients are squared one by one."""
GRAM_ROWS = 2000
WIDEST = 1024
"""Inputs of a layer at most whose products are kept beside a model: 4 MB each."""


def gather(site: Site, values: Mapping[str, np.ndarray], seed: int) -> dict[str, np.ndarray]:
    """Fisher diagonals and RegMean's sums of one site's own model; means over rows.

    Args:
        site: with its rows.
        values: the weights of its own model.
        seed: of the labels that are drawn.

    Returns:
        ``fisher/<variable>`` of the variable's shape, and ``gram/<layer>`` [B, d, d]; float32.
    """
    fisher = site.fisher(values, ROWS, seed)
    grams = site.grams(values, list(site.maps), GRAM_ROWS)
    found = {}
    for kind, sums in (("fisher", fisher), ("gram", grams)):
        rows = max(float(sums.pop("rows")), 1.0)
        found |= {f"{kind}/{name}": (value / rows).astype(np.float32) for name, value in sums.items()}
    return found
