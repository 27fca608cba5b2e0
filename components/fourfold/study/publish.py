"""Runs the steps and hands their results to KFP."""

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fourfold.contract import events, merges, pods as given, said
from fourfold.contract.strict import from_json, to_json
from fourfold.store.folder import write_file
from fourfold.study import cells
from fourfold.study.cells import Study
from fourfold.study.trainings import HERE, Launch

EXAMPLE = '{"data": "mnist", "epochs": 4}'


def measure_cell(
    store: str, cell: str, study: str, pods: str, code: str, measured_path: str, metrics: Any
) -> None:
    """The component's body; arguments as in ``component``."""
    asked = cells.read(cell)
    with events.step("measure cell", code, cell=cell):
        from fourfold.study.kept import measured

        found, was_there = measured(
            said.read(Study, "study", EXAMPLE, study), asked, store, _tell(asked.name), _launch(pods)
        )
        for rule, each in found.rules.items():
            metrics.log_metric(f"{merges.file_name(rule)}_accuracy", each.accuracy)
        write_file(measured_path, to_json(found))
        _tell(asked.name)("it was kept" if was_there else "done")


def tabulate(study: str, code: str, paths: Sequence[str], page_path: str, numbers_path: str) -> None:
    """The component's body; arguments as in ``component``."""
    with events.step("tabulate", code):
        from fourfold.study import page
        from fourfold.study.measure import Result

        results = [from_json(Result, Path(path).read_bytes(), path) for path in paths]
        page.write(Path(page_path), Path(numbers_path), said.read(Study, "study", EXAMPLE, study), results)


def _launch(pods: str) -> Launch:
    if pods == given.HERE:
        return HERE
    # The Kubernetes client is slow to import, and a laptop without a cluster needs none.
    from fourfold.train import launch

    return functools.partial(launch.run, pods=given.read(pods))


def _tell(name: str):
    return lambda text: events.say("said", message=f"{name}: {text}")
