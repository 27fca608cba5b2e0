"""``fourfold merge-study``: what it keeps, what it goes on from, and the table that it writes."""

import json
from dataclasses import replace

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given, strategies as st

from fourfold.study import cells, table
from fourfold.study.cells import QUICK, Cell, Study
from fourfold.study.measure import Measured, Result
from fourfold_pipelines.cli import main
from tests.page.html import needs_nothing_else

ONLY = ["--quick", "--only", "disjoint", "--only", "shared"]


def study(folder, *arguments):
    out = folder / "out"
    done = CliRunner().invoke(
        main, ["merge-study", *arguments, "--store", str(folder / "store"), "--out", str(out)]
    )
    return done, out


@pytest.fixture(scope="module")
def done(tmp_path_factory, workers):
    """One cell of the quick study, really trained and merged."""
    folder = tmp_path_factory.mktemp("study")
    ended, out = study(folder, *ONLY)
    assert ended.exit_code == 0, ended.output
    return folder, ended.output, json.loads((out / "merge-study.json").read_text())


def test_a_cell_holds_every_rule_beside_what_it_is_held_against(done):
    _, printed, told = done
    (cell,) = told["cells"]

    assert "1 of 1  disjoint, 2 members, shared start, seed 0" in printed
    assert list(cell["rules"]) == QUICK.rules
    assert set(cell["references"]) == {"best_solo", "ensemble", "all_data", "federated"}
    assert len(cell["floors"]) == 4
    assert len(cell["own"]) == len(cell["solos"]) == len(cell["classes"]) == 2
    assert cell["rules"]["weight_matching,sequential_regmean"]["exchanges"] == 3
    assert (
        cell["rules"]["weight_matching,sequential_regmean"]["sent"] > 2 * cell["rules"]["plain_mean"]["sent"]
    )
    best = max(cell["solos"], key=lambda each: each["selection"])
    assert cell["references"]["best_solo"]["accuracy"] == best["accuracy"]


def test_what_is_done_is_kept_and_not_done_again(done):
    folder, _, told = done
    trained = sorted((folder / "store" / "studies" / "trainings").iterdir())
    before = [path.stat().st_mtime_ns for each in trained for path in each.iterdir()]

    ended, out = study(folder, *ONLY)

    assert ended.exit_code == 0
    assert "1 of 1  disjoint, 2 members, shared start, seed 0  (kept)" in ended.output
    assert json.loads((out / "merge-study.json").read_text()) == told
    assert [path.stat().st_mtime_ns for each in trained for path in each.iterdir()] == before


def test_a_cell_that_was_not_finished_is_measured_again_from_the_same_models(done):
    folder, _, told = done
    (kept,) = (folder / "store" / "studies" / "cells").iterdir()
    kept.unlink()

    ended, out = study(folder, *ONLY)

    assert "(kept)" not in ended.output and "training solo" not in ended.output
    (again,) = json.loads((out / "merge-study.json").read_text())["cells"]
    for name, measured in told["cells"][0]["rules"].items():
        assert again["rules"][name]["accuracy"] == measured["accuracy"], name


def test_the_page_says_what_is_missing_and_needs_nothing_else(done):
    folder, *_ = done
    page = (folder / "out" / "merge-study.html").read_text()

    needs_nothing_else(page)
    for words in ("1 of 4 cells are done", "soft vote of the solos", "random layers, head_refit", "(trains)"):
        assert words in page


def test_cells_that_there_are_not_are_refused(tmp_path):
    ended, out = study(tmp_path, "--quick", "--only", "sideways")

    assert ended.exit_code == 2
    assert "no cell has 'sideways' in its name" in ended.output
    assert not out.exists()


def test_another_setting_is_another_cell_and_another_choice_of_cells_is_not():
    cell = Cell("disjoint", 2, "shared", 0)
    usual = cells.key(Study(), cell)

    assert cells.key(replace(Study(), seeds=[5], splits=[], starts=[]), cell) == usual
    others = [
        replace(Study(), **change) for change in ({"epochs": 9}, {"rules": []}, {"rows": 7}, {"data": "x"})
    ]
    names = {cells.key(study, cell) for study in others} | {cells.key(Study(), replace(cell, seed=1))}
    assert len(names | {usual}) == 6


def result(seed: int, accuracies: dict[str, float], lacks: bool = False) -> Result:
    def measured(value: float) -> Measured:
        return Measured(value, value)

    return Result(
        cell=Cell("disjoint", 2, "shared", seed),
        own=[0.9, 0.8],
        solos=[measured(0.5)],
        rules={name: measured(value) for name, value in accuracies.items()},
        references={"best_solo": measured(0.5), "ensemble": measured(0.8), "all_data": measured(0.95)},
        floors={},
        barriers=[0.1, 0.0],
        classes=[[100, 0 if lacks else 100], [100, 100]],
    )


shares = st.lists(st.integers(0, 1000).map(lambda value: value / 1000), min_size=1, max_size=5)


@given(shares)
def test_means_and_spreads_are_over_seeds(values):
    (column,) = table.columns([result(seed, {"mean": value}) for seed, value in enumerate(values)])

    found = column.rows["mean"]
    assert found.mean == pytest.approx(100 * np.mean(values))
    assert found.seeds == len(values)
    if len(values) > 1:
        assert found.deviation == pytest.approx(100 * np.std(values, ddof=1))
    else:
        assert found.deviation is None and "±" not in str(found)


@given(shares)
def test_the_worst_cell_is_the_worst(values):
    found = table.worst([result(seed, {"mean": value}) for seed, value in enumerate(values)])["mean"]

    assert found.ensemble == pytest.approx(100 * (min(values) - 0.8))
    assert found.best_solo == pytest.approx(100 * (min(values) - 0.5))
    assert found.all_data == found.whole == pytest.approx(100 * (min(values) - 0.95))
    assert f"seed {values.index(min(values))}" in found.where


def test_cells_in_which_a_class_is_missing_do_not_count_as_whole():
    found = table.worst([result(0, {"mean": 0.9}), result(1, {"mean": 0.2}, lacks=True)])["mean"]

    assert found.all_data == pytest.approx(-75)
    assert found.whole == pytest.approx(-5)
    assert table.worst([result(1, {"mean": 0.2}, lacks=True)])["mean"].whole is None
