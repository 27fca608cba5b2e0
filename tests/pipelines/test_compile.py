"""What is compiled for Kubeflow: whole by itself, pinned, with all that changes a result as an input."""

import ast
import builtins
import dis
import importlib.util
import json
import os
import re
import subprocess
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from kfp import compiler

from fourfold.contract import images, plan as plans
from fourfold_pipelines.experiment import experiment

ROOT = Path(__file__).parents[2]
COMPONENTS = sorted((ROOT / "components" / "fourfold").glob("*/component.py"))
NAMES = [path.parent.name for path in COMPONENTS]


@pytest.fixture(scope="module")
def text(tmp_path_factory) -> str:
    path = tmp_path_factory.mktemp("compiled") / "experiment.yaml"
    compiler.Compiler().compile(experiment, str(path))  # pyright: ignore[reportArgumentType]
    return path.read_text()


@pytest.fixture(scope="module")
def ir(text) -> dict[str, Any]:
    return yaml.safe_load(text)


@pytest.fixture(scope="module")
def containers(ir) -> dict[str, dict[str, Any]]:
    """What KFP runs, by component."""
    executors = ir["deploymentSpec"]["executors"]
    return {name.removeprefix("exec-"): executor["container"] for name, executor in executors.items()}


def test_every_component_is_in_the_pipeline(containers):
    assert sorted(containers) == NAMES
    assert len(NAMES) == 5


# Components that need nothing but their imports (K10).


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


def source_of(container: dict[str, Any]) -> str:
    return container["command"][-1]


@pytest.mark.parametrize("name", NAMES)
def test_a_component_is_whole_by_itself(containers, name):
    assert free_names(source_of(containers[name])) == set()


def test_the_check_of_free_names_sees_one():
    assert free_names(
        "from kfp.dsl import *\nimport os\n\ndef step(a: int):\n    helper(a, os, len, OutputPath)\n"
    ) == {"helper"}


@pytest.mark.parametrize("path", COMPONENTS, ids=NAMES)
def test_a_component_is_imports_and_one_call(path):
    functions = [node for node in ast.parse(path.read_text()).body if isinstance(node, ast.FunctionDef)]

    assert [function.name for function in functions] == [path.parent.name]
    docstring, *imports, last = functions[0].body
    assert isinstance(docstring, ast.Expr)
    assert isinstance(docstring.value, ast.Constant)
    assert imports
    assert all(isinstance(node, ast.Import | ast.ImportFrom) for node in imports)
    assert isinstance(last, ast.Expr | ast.Return)
    assert isinstance(last.value, ast.Call)


def test_nothing_is_installed_in_a_pod(text):
    assert not re.search(r"\bpip3?\b|packages_to_install|ensurepip", text)


@pytest.mark.parametrize("name", NAMES)
def test_images_are_pinned(containers, name):
    """The local runner warns where an image's name has no "python" in it."""
    repository, _, tag = containers[name]["image"].rpartition(":")

    assert re.fullmatch(r"\d+\.\d+\.\d+", tag)
    assert "python" in repository


# Parameters (K5, K6, K11).


def test_every_parameter_may_be_left_out_and_none_is_none(ir):
    parameters = ir["root"]["inputDefinitions"]["parameters"]

    assert {"data", "rows", "scenarios", "workers", "epochs", "batch", "seed", "split"} <= set(parameters)
    for name, parameter in parameters.items():
        assert parameter["isOptional"] is True, name
        assert parameter["defaultValue"] is not None, name
        assert parameter["description"], name


def test_defaults_are_those_of_the_design(ir):
    defaults = {name: p["defaultValue"] for name, p in ir["root"]["inputDefinitions"]["parameters"].items()}

    assert {name: defaults[name] for name in defaults if name not in ("store", "arguments")} == {
        "data": "sample", "rows": 2000, "holdout": 1000, "split": "contiguous",
        "scenarios": list(plans.names()), "workers": 2, "epochs": 5, "batch": 100, "optimizer": "adam",
        "learning_rate": 0.001, "seed": 0, "pods": "{}", "code": images.code(),
    }  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_every_component_input_is_given_by_its_task(ir, name):
    """A pipeline whose step lacks an input compiles, and fails when it runs."""
    wanted = ir["components"][f"comp-{name}"]["inputDefinitions"]
    tasks = [
        task
        for dag in [ir["root"]["dag"], *(c["dag"] for c in ir["components"].values() if "dag" in c)]
        for task in dag["tasks"].values()
        if task["componentRef"]["name"] == f"comp-{name}"
    ]

    assert len(tasks) == 1
    assert set(tasks[0]["inputs"].get("parameters", {})) == set(wanted.get("parameters", {}))
    assert set(tasks[0]["inputs"].get("artifacts", {})) == set(wanted.get("artifacts", {}))


def test_names_fit_what_servers_take(ir):
    names = [ir["pipelineInfo"]["name"], *ir["root"]["dag"]["tasks"], *NAMES]

    for name in names:
        assert re.fullmatch(r"[a-z0-9]([a-z0-9-]{0,98}[a-z0-9])?", name), name


# What changes a result is an input of the task (K1): KFP's cache key sees inputs, never the environment.


def leaves(ir: dict[str, Any], arguments: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """The inputs that each component would be run with, a list by component.

    An output of another task stands as its name and the inputs of that task.
    """
    found: dict[str, list[dict[str, Any]]] = {}

    def walk(dag: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
        done: dict[str, Any] = {}

        def value(source: dict[str, Any]) -> Any:
            if "componentInputParameter" in source:
                return given[source["componentInputParameter"]]
            if "runtimeValue" in source:
                return source["runtimeValue"]["constant"]
            (output,) = source.values()
            key = output.get("outputParameterKey") or output["outputArtifactKey"]
            return {"output": key, "of": done[output["producerTask"]]}

        waiting = dict(dag["tasks"])
        while waiting:
            name = next(n for n, t in waiting.items() if not set(t.get("dependentTasks", [])) & set(waiting))
            task = waiting.pop(name)
            inputs = {
                key: value(source)
                for kind in ("parameters", "artifacts")
                for key, source in task["inputs"].get(kind, {}).items()
            }
            loop = task.get("parameterIterator")
            rounds = (
                [{**inputs, loop["itemInput"]: item} for item in inputs[loop["items"]["inputParameter"]]]
                if loop
                else [inputs]
            )
            reference = task["componentRef"]["name"]
            component = ir["components"][reference]
            if "dag" in component:
                done[name] = [walk(component["dag"], one) for one in rounds]
            else:
                found.setdefault(reference.removeprefix("comp-"), []).extend(rounds)
                done[name] = rounds
        return done

    defaults = {name: p["defaultValue"] for name, p in ir["root"]["inputDefinitions"]["parameters"].items()}
    walk(ir["root"]["dag"], {**defaults, **arguments})
    return found


OTHER = {
    "data": "mnist", "rows": 3000, "holdout": 500, "split": "disjoint", "scenarios": ["solo"], "workers": 3,
    "epochs": 6, "batch": 50, "optimizer": "sgd", "learning_rate": 0.01, "seed": 1, "store": "/elsewhere",
    "pods": '{"gpus": 1}', "code": "0" * 64,
}  # fmt: skip


@pytest.mark.parametrize(("parameter", "value"), OTHER.items())
@pytest.mark.parametrize("step", ["train", "evaluate", "merge", "report"])
def test_another_argument_is_another_input_of_every_step_after_it(ir, parameter, value, step):
    before, after = leaves(ir, {}), leaves(ir, {parameter: value})

    assert json.dumps(before[step]) != json.dumps(after[step])


@pytest.mark.parametrize(("parameter", "value"), OTHER.items())
def test_an_argument_reaches_every_input_of_its_name(ir, parameter, value):
    name, given = ("scenario", value[0]) if parameter == "scenarios" else (parameter, value)
    reached = [
        inputs[name] for runs in leaves(ir, {parameter: value}).values() for inputs in runs if name in inputs
    ]

    assert reached
    assert all(one == given for one in reached)


def test_nothing_but_what_is_shown_is_left_out_of_the_comparison(ir):
    parameters = set(ir["root"]["inputDefinitions"]["parameters"])

    assert parameters - set(OTHER) == {"arguments"}
    assert leaves(ir, {"arguments": "{1}"})["report"] != leaves(ir, {})["report"]


def test_scenarios_differ_by_an_input(ir):
    trainings = leaves(ir, {})["train"]

    assert [training.pop("scenario") for training in trainings] == list(plans.names())
    assert all(training == trainings[0] for training in trainings)


def test_the_environment_decides_nothing(ir, containers):
    for container in containers.values():
        assert set(container) == {"image", "command", "args"}
    assert set(ir["deploymentSpec"]) == {"executors"}


def test_the_source_of_the_data_is_read_again_in_every_run(ir):
    """KFP cannot see that a file changed; our own cache can."""
    assert ir["root"]["dag"]["tasks"]["prepare"]["cachingOptions"] == {}
    train = ir["components"]["comp-for-loop-1"]["dag"]["tasks"]["train"]
    assert train["cachingOptions"] == {"enableCache": True}


# Here, without Docker (K12).


@pytest.mark.parametrize("name", ["kfp", "kubernetes", "minio", "docker", "keras", "tensorflow"])
def test_no_module_of_ours_hides_a_library(name):
    ours = [p for top in ("components", "pipelines", "tests") for p in (ROOT / top).rglob("*")]

    assert [path for path in ours if path.name in (name, f"{name}.py")] == []
    found = importlib.util.find_spec(name)
    assert found is None or Path(str(found.origin)) not in ours


def test_the_local_runner_needs_no_docker(tmp_path):
    """Integers arrive as integers too (K5)."""
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
    code="",
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
    assert sum(batch["rows"] for batch in manifest["parts"]["train"]) == 20
    assert json.loads((folder / "splits" / f"{split_id}.json").read_text())["sizes"] == [10, 10]
