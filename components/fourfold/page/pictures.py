"""Pictures as SVG that takes its colours from the page: readable in light, in dark and in print."""

import io
import math
import re
from typing import Any

import matplotlib

matplotlib.use("svg")

from matplotlib import pyplot as plt  # noqa: E402

STYLE: dict[Any, Any] = {
    "font.size": 11,
    "font.family": "sans-serif",
    "svg.fonttype": "none",
    "text.parse_math": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.25,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "legend.frameon": False,
}
COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#8a8a00")
"""The palette of Okabe and Ito (2008), which survives colour blindness; its black and yellow are left out."""
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
COLUMNS = 5
"""Of a legend that names every model; it stands below the curves, which it would hide."""


def curves(scenarios: dict[str, Any]) -> str:
    """Training loss and accuracy by epoch, a line a model.

    Args:
        scenarios: of ``results.json``.

    Returns:
        An ``<svg>`` element.
    """
    with plt.rc_context(STYLE):
        lines = sum(len(scenario["models"]) for scenario in scenarios.values())
        under = 0.25 * math.ceil(lines / COLUMNS)
        figure, (left, right) = plt.subplots(1, 2, figsize=(9.4, 3.2 + under), layout="constrained")
        for place, (name, scenario) in enumerate(scenarios.items()):
            look = {
                "color": COLOURS[place % 7],
                "marker": MARKERS[place % 7],
                "markersize": 4.5,
                "linewidth": 1.6,
            }
            for index, model in enumerate(scenario["models"]):
                several = len(scenario["models"]) > 1
                label = f"{name} {index}" if several else name
                dashes = ("-", "--", ":", "-.")[index % 4]
                epochs = range(1, len(model["epochs"]) + 1)
                left.plot(epochs, [e["loss"] for e in model["epochs"]], dashes, label=label, **look)
                right.plot(
                    epochs, [100 * e["accuracy"] for e in model["epochs"]], dashes, label=label, **look
                )
        longest = max(len(model["epochs"]) for each in scenarios.values() for model in each["models"])
        left.set_ylabel("training loss (nats)")
        right.set_ylabel("training accuracy (%)")
        for axes in (left, right):
            axes.set_xlabel("epoch")
            axes.xaxis.get_major_locator().set_params(integer=True, min_n_ticks=1)
            axes.set_xlim(0.5, longest + 0.5)
        left.set_ylim(bottom=0)
        figure.legend(
            *right.get_legend_handles_labels(), loc="outside lower center", ncols=COLUMNS, fontsize=10
        )
        return element(figure, "Training loss and accuracy of every model by epoch")


def accuracies(bars: list[tuple[str, float, str]]) -> str:
    """Test accuracy of every model and merge, as bars.

    Args:
        bars: label, accuracy 0 to 1, and kind (bars of one kind have one colour).

    Returns:
        An ``<svg>`` element.
    """
    kinds = list(dict.fromkeys(kind for _, _, kind in bars))
    with plt.rc_context({**STYLE, "axes.grid": False}):
        figure, axes = plt.subplots(figsize=(9.4, 0.9 + 0.34 * len(bars)), layout="constrained")
        for place, (_, value, kind) in enumerate(bars):
            axes.barh(place, 100 * value, height=0.62, color=COLOURS[kinds.index(kind) % 7])
            axes.text(100 * value + 0.6, place, f"{100 * value:.1f} %", va="center", fontsize=10)
        axes.set_yticks(range(len(bars)), [label for label, _, _ in bars])
        axes.invert_yaxis()
        axes.set_xlim(0, 108)
        axes.set_xticks(range(0, 101, 20))
        axes.set_xlabel("right test rows (%)")
        shades = [plt.Rectangle((0, 0), 1, 1, color=COLOURS[place % 7]) for place in range(len(kinds))]
        figure.legend(shades, kinds, loc="outside upper center", ncols=len(kinds), fontsize=10)
        return element(figure, "Test accuracy of every scenario, model and merge")


def classes(table: list[list[int]], names: list[str]) -> str:
    """Rows of each class in each shard, as shaded squares.

    Args:
        table: rows by shard and class.
        names: of the classes.

    Returns:
        An ``<svg>`` element.
    """
    most = max(max(row) for row in table) or 1
    with plt.rc_context({**STYLE, "axes.grid": False}):
        figure, axes = plt.subplots(figsize=(9.4, 0.9 + 0.38 * len(table)), layout="constrained")
        for shard, row in enumerate(table):
            for label, count in enumerate(row):
                axes.barh(
                    shard,
                    0.96,
                    left=label - 0.48,
                    height=0.9,
                    color=COLOURS[0],
                    alpha=0.06 + 0.5 * count / most,
                )
                axes.text(label, shard, str(count), ha="center", va="center", fontsize=10)
        axes.set_xticks(range(len(names)), names)
        axes.set_yticks(range(len(table)), [f"worker {shard}" for shard in range(len(table))])
        axes.invert_yaxis()
        axes.set_xlabel("class")
        for side in ("left", "bottom"):
            axes.spines[side].set_visible(False)
        axes.tick_params(length=0)
        return element(figure, "Rows of each class at each worker")


def element(figure: Any, title: str) -> str:
    """The figure as an ``<svg>`` element, and its end.

    Black becomes the page's text colour, sizes follow the page.

    Args:
        figure: drawn with ``STYLE``.
        title: for those who do not see it; no two pictures of a page have the same.
    """
    buffer = io.StringIO()
    # The salt makes ids the same in every run, and others in every picture of a page.
    with plt.rc_context({"svg.hashsalt": title}):
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None}, transparent=True)
    plt.close(figure)
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r'<g id="[^"]*"', "<g", text)
    text = text.replace("#000000", "currentColor").replace("#b0b0b0", "currentColor")
    # Text without a fill of its own is black whatever the page is.
    text = text.replace(
        '<style type="text/css">*{', '<style type="text/css">.picture text{fill:currentColor} *{'
    )
    text = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", text, count=1)
    text = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", text, count=1)
    label = f'role="img" aria-label="{title}" preserveAspectRatio="xMinYMin meet"'
    return text.replace("<svg", f"<svg {label}", 1)
