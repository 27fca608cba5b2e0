"""Puts the cells of a study together: means and spreads over seeds, and the worst of each rule. Pure."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fourfold.merge import judge
from fourfold.study.measure import Measured, Result


@dataclass(frozen=True)
class Spread:
    """One number over seeds, in percent.

    Attributes:
        mean: over them.
        deviation: sample standard deviation; None for one seed.
        seeds: how many.
    """

    mean: float
    deviation: float | None
    seeds: int

    def __str__(self) -> str:
        spread = "" if self.deviation is None else f" ± {self.deviation:.1f}"
        return f"{self.mean:.1f}{spread}"


@dataclass(frozen=True)
class Column:
    """One split with a number of members and a start, over all seeds.

    Attributes:
        split: as for ``--split``.
        members: how many.
        start: where they started.
        rows: by the name of a rule, reference or floor.
        own: accuracy of the solos on their own rows.
        barriers: between the first two solos, nats, as they are and with units matched, each by seed.
    """

    split: str
    members: int
    start: str
    rows: dict[str, Spread]
    own: Spread
    barriers: list[list[float]]


@dataclass(frozen=True)
class Worst:
    """How far a rule falls behind, in points; below 0 is worse.

    Attributes:
        ensemble: behind the soft vote of the solos, in its worst cell.
        best_solo: behind the best solo.
        all_data: behind one model on all rows.
        whole: likewise, in cells in which no site lacks a class; None where there are none.
        cells: how many there were.
        where: the cell in which it falls furthest behind the ensemble.
    """

    ensemble: float
    best_solo: float
    all_data: float
    whole: float | None
    cells: int
    where: str


def lacks_classes(result: Result) -> bool:
    """Whether a site has as good as no row of a class."""
    return any(judge.lacking(counts) for counts in result.classes)


def rows_of(result: Result) -> dict[str, Measured]:
    """All that was measured in a cell, by name: what merges are held against, merges, and floors."""
    return {**result.references, **result.rules, **result.floors}


def columns(results: Iterable[Result]) -> list[Column]:
    """The cells over seeds, in the order in which they first come."""
    groups: dict[tuple[str, int, str], list[Result]] = defaultdict(list)
    for result in results:
        cell = result.cell
        groups[cell.split, cell.members, cell.start].append(result)
    return [_column(key, found) for key, found in groups.items()]


def _column(key: tuple[str, int, str], results: Sequence[Result]) -> Column:
    values: dict[str, list[float]] = defaultdict(list)
    for result in results:
        for name, measured in rows_of(result).items():
            values[name].append(100 * measured.accuracy)
    return Column(
        *key,
        rows={name: spread(found) for name, found in values.items()},
        own=spread([100 * each for result in results for each in result.own]),
        barriers=[result.barriers for result in results],
    )


def spread(values: Sequence[float]) -> Spread:
    """Mean and sample standard deviation."""
    deviation = float(np.std(values, ddof=1)) if len(values) > 1 else None
    return Spread(float(np.mean(values)), deviation, len(values))


def worst(results: Sequence[Result]) -> dict[str, Worst]:
    """How far each rule and floor falls behind in its worst cell, over all cells in which it was measured."""
    found = {}
    names = dict.fromkeys(name for result in results for name in rows_of(result))
    for name in names:
        cells = [result for result in results if name in rows_of(result)]
        behind = [_behind(name, result) for result in cells]
        whole = [
            each["all_data"] for each, result in zip(behind, cells, strict=True) if not lacks_classes(result)
        ]
        furthest = min(range(len(cells)), key=lambda index: behind[index]["ensemble"])
        found[name] = Worst(
            ensemble=behind[furthest]["ensemble"],
            best_solo=min(each["best_solo"] for each in behind),
            all_data=min(each["all_data"] for each in behind),
            whole=min(whole) if whole else None,
            cells=len(cells),
            where=cells[furthest].cell.name,
        )
    return found


def _behind(name: str, result: Result) -> Mapping[str, float]:
    own = rows_of(result)[name].accuracy
    return {
        other: 100 * (own - result.references[other].accuracy)
        for other in ("ensemble", "best_solo", "all_data")
    }
