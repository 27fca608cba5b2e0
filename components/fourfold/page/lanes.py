"""Stages at work: how long they were, and how long at once. Plain arithmetic; times are seconds."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby

Span = tuple[int, float, float]
"""A stage's index, and when it began and ended to work."""


@dataclass(frozen=True)
class Overlap:
    """How long stages were at work.

    Attributes:
        seconds_any: in which one stage was, or more.
        seconds_two: in which two stages were, or more.
    """

    seconds_any: float
    seconds_two: float

    @property
    def share(self) -> float:
        """The time of two as a share of the time of any, 0 to 1; 0 where no stage was ever at work."""
        return self.seconds_two / self.seconds_any if self.seconds_any else 0.0


def overlap(spans: Iterable[Span]) -> Overlap:
    """Measures how long stages were at work, and how long at once.

    Spans of one stage that meet or overlap count once: a stage is at work or it is not.

    Args:
        spans: in any order; one that ends where it begins, or before, counts nothing.
    """
    # Ends come before begins at the same instant: there one stage has handed over, and two are not at work.
    turns = sorted(
        (time, change)
        for _, own in groupby(sorted(spans), key=lambda span: span[0])
        for begin, end in _union([(begin, end) for _, begin, end in own])
        for time, change in ((begin, 1), (end, -1))
    )
    seconds, at_work, before = [0.0, 0.0], 0, 0.0
    for time, change in turns:
        for least in (1, 2):
            if at_work >= least:
                seconds[least - 1] += time - before
        at_work, before = at_work + change, time
    return Overlap(*seconds)


def sentence(found: Overlap) -> str:
    """What the lanes show, in words; where nothing overlaps, that no speed-up is claimed."""
    if not found.seconds_two:
        return (
            "In the step that was measured no two stages were ever at work at the same instant: "
            "no speed-up is claimed."
        )
    return (
        "In the step that was measured two stages or more were at work at once for "
        f"{100 * found.share:.1f} % of the time in which any was: {1000 * found.seconds_two:.2f} of "
        f"{1000 * found.seconds_any:.2f} ms."
    )


def _union(spans: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """The same time as spans that do not meet, in their order.

    Args:
        spans: begin and end of each, sorted.
    """
    apart: list[tuple[float, float]] = []
    for begin, end in spans:
        if end <= begin:
            continue
        if apart and begin <= apart[-1][1]:
            apart[-1] = (apart[-1][0], max(apart[-1][1], end))
        else:
            apart.append((begin, end))
    return apart
