"""Trains the last layer of a merged model on the sites' own labels, by steps that need no learning rate."""

import numpy as np

from fourfold.model import measures
from fourfold.rules.sites import Site, Sums
from fourfold.rules.state import Ground, State

ROWS = 10_000
STEPS = 20
SCALES = (1.0, 0.5, 0.25, 0.1, 0.0)


def apply(state: State, ground: Ground, steps: int = STEPS, rows: int = ROWS) -> State:
    """The rule in a chain. This is training of the last layer.

    Boehning, 1992, "Multinomial logistic regression algorithm": the second derivative of the cross-entropy is
    nowhere above G/2, with G the mean of h h^T over rows, so a step of (G/2)^-1 times the gradient needs no
    learning rate. With Nesterov's momentum (1983), begun anew whenever the loss has gone up. Every site
    sends G once, then the loss and the gradient of each step; they add.

    Args:
        state: of the chain.
        ground: with sites whose rows have labels.
        steps: how many.
        rows: of each site.
    """
    assert ground.sites is not None and ground.head is not None
    name, base = ground.head, state.base
    each = ground.maps[name]
    kept: dict[int, tuple[np.ndarray, np.ndarray]] = {}

    def own(site: Site) -> tuple[np.ndarray, np.ndarray]:
        if site.index not in kept:
            kept[site.index] = (site.head_inputs(name, base, int(rows)), site.labels(int(rows)))
        return kept[site.index]

    def begin(site: Site) -> Sums:
        h, y = own(site)
        losses = [measures.cross_entropy(h @ (scale * matrix), y) * len(y) for scale in SCALES]
        return {
            "gram": (h.T @ h).astype(np.float64),
            "losses": np.array(losses),
            "rows": np.array(float(len(y))),
        }

    matrix = each.matrix(base)[0]
    first = ground.sites.total(begin)
    count = float(first["rows"])
    bound = first["gram"] / count / 2 + 1e-4 * np.eye(len(matrix))
    now = matrix * SCALES[int(np.argmin(first["losses"]))]
    before, ahead, speed, best = now, now, 1.0, np.inf
    for _ in range(int(steps)):

        def gradient(site: Site, at: np.ndarray = ahead) -> Sums:
            h, y = own(site)
            logits = h @ at
            wrong = measures.probabilities(logits)
            wrong[np.arange(len(y)), y] -= 1
            loss = measures.cross_entropy(logits, y) * len(y)
            return {"gradient": h.T.astype(np.float64) @ wrong, "loss": np.array(loss)}

        answer = ground.sites.total(gradient)
        loss = float(answer["loss"]) / count
        if loss > best:
            speed = 1.0
        best = min(best, loss)
        now = ahead - np.linalg.solve(bound, answer["gradient"] / count)
        faster = (1 + np.sqrt(1 + 4 * speed**2)) / 2
        ahead = now + (speed - 1) / faster * (now - before)
        before, speed = now, faster
    return state.now(
        {**base, **each.arrays(now[np.newaxis], base)},
        "head_refit trained the last layer on the sites' own labels.",
    )
