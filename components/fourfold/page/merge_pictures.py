"""Pictures of what lies between models: the loss along a line, and on a plane."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib import pyplot as plt

from fourfold.page.pictures import COLOURS, MARKERS, STYLE, element

LEVELS = 9


def lines(found: Sequence[Mapping[str, Any]]) -> str:
    """The loss and the accuracy along straight lines from one model to another.

    Args:
        found: of ``results.json``, ``merge_lines``: ``members``, ``aligned``, ``losses``, ``accuracies``.

    Returns:
        An ``<svg>`` element.
    """
    with plt.rc_context(STYLE):
        figure, (left, right) = plt.subplots(1, 2, figsize=(9.4, 3.5), layout="constrained")
        for line in found:
            place = 1 if line["aligned"] else 0
            look = {"color": COLOURS[place], "marker": MARKERS[place], "markersize": 4.5, "linewidth": 1.6}
            a, b = line["members"]
            label = f"solo {a} to solo {b}, " + ("units matched" if line["aligned"] else "as they are")
            shares = np.linspace(0, 1, len(line["losses"]))
            losses = [math.nan if loss is None else loss for loss in line["losses"]]
            dashes = "--" if line["aligned"] else "-"
            left.plot(shares, losses, dashes, label=label, **look)
            right.plot(shares, [100 * each for each in line["accuracies"]], dashes, **look)
        a, b = found[0]["members"]
        for axes, measured in ((left, "hold-out loss (nats)"), (right, "hold-out accuracy (%)")):
            axes.set_ylabel(measured)
            axes.set_xlabel(f"share of solo {b}: 0 is solo {a}, 0.5 the plain mean")
        left.set_ylim(bottom=0)
        figure.legend(loc="outside lower center", ncols=2, fontsize=10)
        return element(figure, "Loss and accuracy along the line between two solo models")


def plane(found: Mapping[str, Any]) -> str:
    """The loss on a plane through models, as contours.

    Args:
        found: of ``results.json``, ``merge_slice``: ``x``, ``y``, ``losses``, ``points``.

    Returns:
        An ``<svg>`` element.
    """
    losses = np.array([[math.nan if each is None else each for each in row] for row in found["losses"]])
    finite = losses[np.isfinite(losses)]
    if not len(finite):
        return ""
    least, most = max(float(finite.min()), 1e-4), max(float(finite.max()), 2e-4)
    levels = np.geomspace(least, max(most, least * 1.01), LEVELS)
    with plt.rc_context({**STYLE, "axes.grid": False}):
        figure, axes = plt.subplots(figsize=(9.4, 4.6), layout="constrained")
        shades = axes.contourf(
            found["x"], found["y"], np.clip(losses, least, most), levels=levels, cmap="cividis_r", alpha=0.85
        )
        axes.contour(found["x"], found["y"], np.clip(losses, least, most), levels=levels, linewidths=0.5)
        for place, (name, (x, y)) in enumerate(found["points"].items()):
            axes.plot(
                x, y, MARKERS[place % 7], color=COLOURS[5], markeredgecolor="white", markersize=9, label=name
            )
            axes.annotate(
                name,
                (x, y),
                textcoords="offset points",
                xytext=(9, 7),
                fontsize=10,
                color="black",
                bbox={"boxstyle": "round,pad=0.2", "facecolor": "white", "alpha": 0.8, "edgecolor": "none"},
            )
        bar = figure.colorbar(shades, ax=axes, ticks=levels[::2])
        bar.ax.set_yticklabels([f"{level:.2g}" for level in levels[::2]])
        bar.set_label("hold-out loss (nats)")
        axes.set_xlabel("from solo 0 (0) to solo 1 (1)")
        axes.set_ylabel("at a right angle, same unit")
        return element(figure, "Loss on a plane through the solo models")
