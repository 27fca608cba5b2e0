"""The pipeline of the study: what its steps are given, and that it runs from its compiled YAML."""

import json
import subprocess
import sys

import pytest

from fourfold.contract import images
from fourfold.contract.errors import InvalidInputError
from fourfold.study import cells
from fourfold.study.cells import QUICK, Cell, Study
from fourfold_pipelines.steps import TABLE
from tests.page.html import needs_nothing_else
from tests.pipelines.ir import ENVIRONMENT, compiled, steps

WHICH = "merge-study"
PROGRAM = """
import json, sys
from pathlib import Path
from kfp import components, local
from fourfold_pipelines import compiled
from fourfold_pipelines.chosen import Chosen

folder = Path(sys.argv[1])
compiled.write("merge-study", Chosen(in_kubeflow=True), folder / "pipeline.yaml")
loaded = components.load_component_from_file(str(folder / "pipeline.yaml"))
local.init(local.SubprocessRunner(use_venv=False), pipeline_root=str(folder / "root"))
loaded(store=str(folder / "store"), cells=["disjoint x2 shared 0"], study=sys.argv[2])
"""


def test_it_has_its_steps_and_no_other():
    found = compiled(WHICH)

    assert sorted(found.containers) == sorted(found.tasks) == steps(WHICH)
    for step, container in found.containers.items():
        assert container["image"] == TABLE[step].image
        assert container["resources"]["resourceMemoryLimit"] == TABLE[step].memory
    assert found.constant("measure-cell", "code") == images.code()
    assert json.loads(found.constant("measure-cell", "pods"))["secret"]


def test_the_account_is_given_by_reference_to_what_reads_the_store_alone():
    found = compiled(WHICH)

    for step, executor in found.kubernetes.items():
        given = [pair["envVar"] for each in executor.get("secretAsEnv", []) for pair in each["keyToEnv"]]
        assert bool(given) == TABLE[step].uses_store, step
        assert set(given) <= ENVIRONMENT


def test_its_defaults_are_the_quick_study():
    found = compiled(WHICH).defaults

    assert [cells.read(each) for each in found["cells"]] == QUICK.cells()
    assert json.loads(found["study"])["data"] == "sample"


@pytest.mark.parametrize("cell", Study().cells()[::7])
def test_a_cell_is_what_it_is_called(cell):
    assert cells.read(cell.said) == cell


@pytest.mark.parametrize(
    "text", ["", "disjoint", "disjoint x1 shared 0", "disjoint x2 cold 0", "a b x2 warm 1"]
)
def test_what_is_no_cell_is_refused_by_its_text(text):
    with pytest.raises(InvalidInputError, match="is no cell"):
        cells.read(text)


def test_all_cells_are_of_one_split_each():
    assert len({cell.said for cell in Study().cells()}) == 99
    assert Cell("skew:99.8,0.2", 2, "warm", 2) in Study().cells()


def test_it_runs_and_its_table_has_the_cell(workers, tmp_path):
    told = {"data": "sample", "rows": 300, "holdout": 100, "epochs": 1, "rules": ["plain_mean", "ties"]}
    command = [sys.executable, "-c", PROGRAM, str(tmp_path), json.dumps(told)]

    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=240)

    assert done.returncode == 0, done.stdout + done.stderr
    (page,) = tmp_path.glob("root/*/**/page")
    needs_nothing_else(page.read_text())
    assert "1 of 1 cells are done" in page.read_text()
    (numbers,) = (path for path in tmp_path.glob("root/*/**/numbers") if path.is_file())
    (cell,) = json.loads(numbers.read_text())["cells"]
    assert set(cell["rules"]) == {"plain_mean", "ties"}
    assert cell["cell"] == {"split": "disjoint", "members": 2, "start": "shared", "seed": 0}
