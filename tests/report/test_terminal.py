"""The table at the end of a run shows the same results, in a terminal of 80 columns."""

import io
import re

import pytest
from rich.console import Console

from fourfold_pipelines.cli import summary


def printed(table) -> list[str]:
    console = Console(width=80, file=io.StringIO())
    console.print(table)
    return console.file.getvalue().splitlines()  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.parametrize("loss", [0.1234, None])
def test_seven_scenarios_fit_into_80_columns(run, loss):
    scenarios = run.build()["scenarios"]
    for scenario in scenarios.values():
        # As wide as numbers get: the full data set, an hour of training.
        scenario.update(loss=loss, accuracy=1.0, global_batch=10000, updates_per_epoch=60000)
        scenario["epochs"][0]["seconds"] = 3600.0

    lines = printed(summary._scenarios(scenarios))

    assert max(map(len, lines)) <= 80
    assert "…" not in "".join(lines)
    rows = [line for line in lines if line.split(" ")[0] in scenarios]
    assert [row.split()[0] for row in rows] == list(scenarios)
    assert all(re.search(r"100\.00 % .* 10000 +60000 +\d+\.\d\d$", row) for row in rows)


def test_merges_stand_beside_what_they_are_held_against(run):
    lines = printed(summary._merges(run.build()))

    assert max(map(len, lines)) <= 80
    for name in ("plain_mean", "(best solo)", "(soft vote of the solos)", "(one model on all rows)"):
        assert any(line.startswith(f"{name} ") for line in lines), name
