"""Components that need nothing but their imports (K10), whole numbers (K5), and no Docker (K12)."""

import ast
import builtins
import dis
import importlib.util
import json
import os
import subprocess
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from kfp.dsl.types.type_utils import InconsistentTypeException

from fourfold.contract import exits
from fourfold.prepare import publish as prepare_publish
from fourfold.prepare.component import prepare
from fourfold.train import publish as train_publish
from fourfold.train.component import train
from fourfold_pipelines.compiled import PIPELINES
from fourfold_pipelines.steps import TABLE
from tests.pipelines.ir import compiled, steps

ROOT = Path(__file__).parents[2]
COMPONENTS = sorted((ROOT / "components" / "fourfold").glob("*/component.py"))
FUNCTIONS = [
    (path.parent.name, node)
    for path in COMPONENTS
    for node in ast.parse(path.read_text()).body
    if isinstance(node, ast.FunctionDef)
]
"""Every component, with the room that it is in."""
STEPS = [(which, step) for which in PIPELINES for step in steps(which)]


def test_every_component_has_a_row_in_the_table_of_steps():
    assert {node.name.replace("_", "-") for _, node in FUNCTIONS} == set(TABLE)
    assert {room for room, _ in FUNCTIONS} == {"prepare", "train", "evaluate", "merge", "report", "study"}


def code_objects(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from code_objects(constant)


def free_names(source: str) -> set[str]:
    """Global names that a component's function uses and its source alone does not have."""
    provided: dict[str, Any] = {}
    module = compile(source, "component", "exec")
    exec(module, provided)
    used = {
        instruction.argval
        for function in code_objects(module)
        if function is not module
        for instruction in dis.get_instructions(function)
        if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME")
    }
    return used - set(provided) - set(vars(builtins))


@pytest.mark.parametrize(("which", "step"), STEPS)
def test_a_component_is_whole_by_itself(which, step):
    """Compiled and defined from the text in the file alone, and without a name that it does not bring."""
    assert free_names(compiled(which).containers[step]["command"][-1]) == set()


def test_the_check_of_free_names_sees_one():
    assert free_names(
        "from kfp.dsl import *\nimport os\n\ndef step(a: int):\n    helper(a, os, len, OutputPath)\n"
    ) == {"helper"}


@pytest.mark.parametrize(("room", "function"), FUNCTIONS, ids=[node.name for _, node in FUNCTIONS])
def test_a_component_is_imports_and_one_call(room, function):
    docstring, *imports, last = function.body
    assert isinstance(docstring, ast.Expr)
    assert isinstance(docstring.value, ast.Constant)
    assert imports
    assert all(isinstance(node, ast.ImportFrom) and node.module == f"fourfold.{room}" for node in imports)
    assert isinstance(last, ast.Expr | ast.Return)
    assert isinstance(last.value, ast.Call)


# Whole numbers (K5).


def test_kfp_refuses_a_number_that_is_not_whole_when_a_component_is_called():
    fraction: Any = 2.5
    asked: Any = {"store": "s", "holdout": 10, "workers": 2, "seed": 0, "cache": "{}", "code": ""}
    for rows in (float(20), fraction):
        with pytest.raises(InconsistentTypeException, match="'rows'"):
            prepare(data="sample", rows=cast(int, rows), split="contiguous", **asked)
    del asked["holdout"]
    with pytest.raises(InconsistentTypeException, match="'epochs'"):
        train(
            fingerprint="f", split_id="i", scenario="solo", epochs=fraction, batch=10, optimizer="adam",
            learning_rate=0.1, members=3, stages=2, micro_batches=4, local_steps=0, ways="{}", pods="here",
            **asked,
        )  # fmt: skip


def prepared(folder: Path, **others: Any) -> Any:
    arguments: dict[str, Any] = {
        "store": str(folder / "store"), "data": "sample", "rows": 20, "holdout": 10, "split": "contiguous",
        "workers": 2, "seed": 0, "cache": "{}", "code": "",
        "dataset_path": str(folder / "dataset"), "metadata": {},
    }  # fmt: skip
    return prepare_publish.run(**{**arguments, **others})


def trained(folder: Path, **others: Any) -> dict[str, Any]:
    scenario = "solo" if "workers" in others else "sequential"
    fingerprint, split_id = prepared(folder)
    arguments: dict[str, Any] = {
        "store": str(folder / "store"), "fingerprint": fingerprint, "split_id": split_id,
        "scenario": scenario, "workers": 2, "epochs": 1, "batch": 10, "optimizer": "adam",
        "learning_rate": 1, "seed": 0, "members": 3, "stages": 2, "micro_batches": 4, "local_steps": 0,
        "ways": "{}", "cache": "{}", "pods": "here", "code": "",
        "output": str(folder / "out"), "uri": "", "metadata": {},
    }  # fmt: skip
    train_publish.run(**{**arguments, **others})
    return json.loads((folder / "out" / "trained.json").read_text())


@pytest.mark.parametrize("name", ["rows", "holdout", "workers", "seed"])
def test_a_whole_number_that_arrives_as_a_float_is_one_in_prepare(tmp_path, name):
    assert prepared(tmp_path, **{name: 10.0}) == prepared(tmp_path, **{name: 10})


@pytest.mark.parametrize("name", ["rows", "holdout", "workers", "seed"])
def test_a_number_that_is_not_whole_is_refused_in_prepare_with_its_name(tmp_path, capsys, name):
    with pytest.raises(SystemExit) as caught:
        prepared(tmp_path, **{name: 10.5})
    assert caught.value.code == exits.INVALID_INPUT
    assert f"{name} must be a whole number, got 10.5" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["workers", "epochs", "stages", "local_steps"])
def test_a_whole_number_that_arrives_as_a_float_is_one_in_train(tmp_path, workers, name):
    made = trained(tmp_path, **{name: 2.0})
    assert made["training"][name] == 2
    assert len(made["reports"][0]["epochs"]) == (2 if name == "epochs" else 1)


NUMBERS = ["workers", "epochs", "batch", "seed", "members", "stages", "micro_batches", "local_steps"]


@pytest.mark.parametrize("name", NUMBERS)
def test_a_number_that_is_not_whole_is_refused_in_train_with_its_name(tmp_path, capsys, name):
    with pytest.raises(SystemExit) as caught:
        trained(tmp_path, **{name: 2.5})
    assert caught.value.code == exits.INVALID_INPUT
    assert f"{name} must be a whole number, got 2.5" in capsys.readouterr().out


# Here, without Docker (K12).


@pytest.mark.parametrize("name", ["kfp", "kubernetes", "minio", "docker", "keras", "tensorflow"])
def test_no_module_of_ours_hides_a_library(name):
    ours = [p for top in ("components", "pipelines", "tests") for p in (ROOT / top).rglob("*")]
    assert [path for path in ours if path.name in (name, f"{name}.py")] == []
    found = importlib.util.find_spec(name)
    assert found is None or Path(str(found.origin)) not in ours


def test_the_local_runner_needs_no_docker(tmp_path):
    blocked = tmp_path / "blocked"
    blocked.mkdir()
    (blocked / "docker.py").write_text("raise ImportError('there is no docker here')\n")
    program = """
import json, sys
from kfp import local
from fourfold.prepare.component import prepare

try:
    import docker
except ImportError:
    pass
else:
    sys.exit("docker is there, so nothing is tested")
local.init(local.SubprocessRunner(use_venv=False), pipeline_root=sys.argv[1] + "/root")
task = prepare(
    store=sys.argv[1] + "/store", data="sample", rows=20, holdout=10, split="contiguous", workers=2, seed=0,
    cache="{}", code="",
)
names = ("fingerprint", "split_id")
json.dump([task.outputs[name] for name in names], open(sys.argv[1] + "/outputs.json", "w"))
"""
    ran = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": str(blocked)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "docker" not in ran.stderr
    fingerprint, split_id = json.loads((tmp_path / "outputs.json").read_text())
    folder = tmp_path / "store" / "datasets" / fingerprint
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["parts"]["train"]["rows"] == 20
    assert json.loads((folder / "splits" / f"{split_id}.json").read_text())["sizes"] == [10, 10]
