"""Writes what a study found: one page, and the numbers as JSON."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import median_high
from typing import Any

from fourfold.contract import merges
from fourfold.merge import judge
from fourfold.page import document
from fourfold.store.folder import write_file
from fourfold.study import table
from fourfold.study.cells import Study
from fourfold.study.measure import Result

SCHEMA = 1
REFERENCES = {
    "best_solo": "best solo (by hold-out rows)",
    "ensemble": "soft vote of the solos",
    "all_data": "one model on all rows",
    "federated": "federated, as many passes",
}
"""What merges are held against, for people."""


def write(page: Path, numbers: Path, study: Study, results: Sequence[Result], planned: int = 0) -> None:
    """Writes a study as a page and as JSON, each whole.

    Args:
        page: the file for people.
        numbers: the file for programs.
        study: what was to be measured.
        results: the cells that are done.
        planned: how many cells there are to be; 0 for those that are done.
    """
    told = to_values(study, results, planned or len(results))
    write_file(str(numbers), (json.dumps(told, indent=1, allow_nan=False) + "\n").encode())
    write_file(str(page), render(study, results, planned or len(results)).encode())


def to_values(study: Study, results: Sequence[Result], planned: int) -> dict[str, Any]:
    """The study as JSON values; fields are only ever added."""
    return {
        "schema": SCHEMA,
        "study": {key: value for key, value in asdict(study).items() if key != "splits"},
        "cells": [asdict(result) for result in results],
        "planned": planned,
        "worst": {rule: asdict(found) for rule, found in table.worst(results).items()},
    }


def render(study: Study, results: Sequence[Result], planned: int) -> str:
    """The page, one HTML document that needs nothing else."""
    columns = table.columns(results)
    names = list(dict.fromkeys(name for result in results for name in table.rows_of(result)))
    trains = {name for r in results for name, measured in table.rows_of(r).items() if measured.trains}
    seconds = {
        name: median_high([r.rules[name].seconds for r in results if name in r.rules])
        for name in names
        if any(name in r.rules for r in results)
    }
    return document.render(
        "fourfold.study",
        "merge-study.html",
        study=study,
        seeds=sorted({result.cell.seed for result in results}),
        cells=len(results),
        planned=planned,
        blocks=_blocks(columns),
        names=names,
        label=lambda name: REFERENCES.get(name, name if " " in name else name.replace(",", ", ")),
        references=set(REFERENCES),
        trains=trains,
        seconds=seconds,
        chosen=merges.CHOSEN,
        worst=table.worst(results),
        rare=judge.RARE,
    )


def _blocks(columns: Sequence[table.Column]) -> list[tuple[str, list[table.Column]]]:
    """Columns by where members started."""
    starts = list(dict.fromkeys(column.start for column in columns))
    return [(start, [column for column in columns if column.start == start]) for start in starts]
