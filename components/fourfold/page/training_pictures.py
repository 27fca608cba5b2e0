"""Pictures of what goes on inside a training: models that part, rounds of merging, stages at work."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib import pyplot as plt

from fourfold.page.lanes import Span
from fourfold.page.pictures import COLOURS, MARKERS, STYLE, element

NAMED = 15
"""Pairs of models that a legend can still name."""
NO_NUMBER = math.nan
"""Drawn as a gap."""


def distances(name: str, steps: Sequence[int], pairs: Sequence[Any], values: Sequence[Any]) -> str:
    """How far apart models are along training, a line a pair.

    Args:
        name: of the scenario.
        steps: after which it was measured.
        pairs: of models, two indices each.
        values: the distance of each pair, for each step.

    Returns:
        An ``<svg>`` element.
    """
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(figsize=(9.4, 3.4), layout="constrained")
        for place, (left, right) in enumerate(pairs):
            axes.plot(steps, [each[place] for each in values], label=f"{left} and {right}", **_look(place))
        _label(axes, "step", "distance of features")
        if len(pairs) <= NAMED:
            figure.legend(loc="outside lower center", ncols=6, title="models", fontsize=10)
        return element(figure, f"Distance between the models of {name} by step")


def rounds(name: str, losses: Sequence[float | None], apart: Sequence[float]) -> str:
    """What the workers learnt in each round, and how far apart they were when it ended.

    Args:
        name: of the scenario.
        losses: of each round, nats; None is left out.
        apart: mean distance of the workers' weights to the merge, of each round.

    Returns:
        An ``<svg>`` element.
    """
    with plt.rc_context(STYLE):
        figure, (left, right) = plt.subplots(1, 2, figsize=(9.4, 3.1), layout="constrained")
        counted = range(1, len(apart) + 1)
        left.plot(counted, [NO_NUMBER if loss is None else loss for loss in losses], **_look(0))
        right.plot(counted, apart, **_look(5))
        for axes, measured in ((left, "local loss (nats)"), (right, "distance to the merge")):
            _label(axes, "round", measured)
            axes.set_xlim(0.5, len(apart) + 0.5)
        return element(figure, f"Loss and distance to the merge of {name} by round")


def lanes(name: str, spans: Sequence[Span]) -> str:
    """When each stage was at work during one step, a lane a stage.

    Args:
        name: of the scenario.
        spans: at least one.

    Returns:
        An ``<svg>`` element.
    """
    stages = sorted({stage for stage, _, _ in spans})
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(figsize=(9.4, 0.9 + 0.5 * len(stages)), layout="constrained")
        for lane, stage in enumerate(stages):
            own = [(1000 * begin, 1000 * (end - begin)) for each, begin, end in spans if each == stage]
            # An edge, so that two spans that meet are seen to be two.
            axes.broken_barh(own, (lane - 0.36, 0.72), facecolor=COLOURS[lane % 7], edgecolor="black", lw=0.6)
        axes.set_yticks(range(len(stages)), [f"stage {stage}" for stage in stages])
        axes.set_ylim(len(stages) - 0.5, -0.5)
        axes.grid(axis="y", visible=False)
        axes.set_axisbelow(True)
        axes.set_xlim(left=0)
        axes.set_xlabel("ms since the step began")
        return element(figure, f"Stages of {name} at work during one step")


def inputs(scenarios: dict[str, Any]) -> str:
    """How long steps waited for rows in each epoch, a line a scenario.

    Args:
        scenarios: of ``results.json``.

    Returns:
        An ``<svg>`` element.
    """
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(figsize=(9.4, 3.4), layout="constrained")
        for place, (name, scenario) in enumerate(scenarios.items()):
            waited = [1000 * epoch["waited"] for epoch in scenario["inputs"]]
            axes.plot(range(1, len(waited) + 1), waited, label=name, **_look(place))
        _label(axes, "epoch", "wait for rows (ms)")
        figure.legend(loc="outside lower center", ncols=5, fontsize=10)
        return element(figure, "How long the steps of each scenario waited for rows, by epoch")


def reading(measured: Mapping[str, tuple[Sequence[float], Sequence[float]]]) -> str:
    """Seconds of each epoch of reading, with the cache and without, a pair of lines a store.

    Args:
        measured: by the store's name, seconds of each epoch with the cache and without.

    Returns:
        An ``<svg>`` element.
    """
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(figsize=(9.4, 3.8), layout="constrained")
        for place, (name, (with_cache, without)) in enumerate(measured.items()):
            look = {**_look(place), "linestyle": "--"}
            counted = range(1, len(with_cache) + 1)
            axes.plot(counted, without, label=f"{name}, without", **look)
            axes.plot(counted, with_cache, label=f"{name}, with the cache", **{**look, "linestyle": "-"})
        _label(axes, "epoch", "reading (s)")
        figure.legend(loc="outside lower center", ncols=2, fontsize=10)
        return element(figure, "Seconds of each epoch of reading, with the cache and without")


def _look(place: int) -> dict[str, Any]:
    return {
        "color": COLOURS[place % 7],
        "marker": MARKERS[place % 7],
        "markersize": 4,
        "linewidth": 1.6,
        "linestyle": ("-", "--", ":", "-.")[place // 7 % 4],
    }


def _label(axes: Any, counted: str, measured: str) -> None:
    """Says what is counted along and measured up, from 0; no tick lies between two that are counted."""
    axes.xaxis.get_major_locator().set_params(integer=True, min_n_ticks=1)
    axes.set_ylim(bottom=0)
    axes.set_xlabel(counted)
    axes.set_ylabel(measured)
