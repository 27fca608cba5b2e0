"""The habits of the code base: walls between rooms, style, types, size, signs."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from fourfold.contract import plan as plans

ROOT = Path(__file__).parent.parent
SOURCES = sorted(
    [*ROOT.glob("components/**/*.py"), *ROOT.glob("pipelines/**/*.py"), *ROOT.glob("tests/**/*.py")]
)


def run(*command):
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stdout + done.stderr


def test_walls():
    run(str(Path(sys.executable).parent / "lint-imports"), "--no-cache")


def test_style():
    run(sys.executable, "-m", "ruff", "check", "--no-cache", ".")
    run(sys.executable, "-m", "ruff", "format", "--no-cache", "--check", ".")


def test_types():
    run(sys.executable, "-m", "pyright", "--pythonpath", sys.executable)


def test_a_command_starts_without_tensorflow_or_kfp():
    program = (
        "import sys, fourfold_pipelines.cli; print(sorted({'tensorflow', 'keras', 'kfp'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_size(path):
    assert len(path.read_text().splitlines()) <= 400


@pytest.mark.parametrize("package", ["components/fourfold", "pipelines/fourfold_pipelines"])
def test_every_room_has_a_sign(package):
    for init in (ROOT / package).rglob("__init__.py"):
        sign = ast.get_docstring(ast.parse(init.read_text()))
        assert sign, f"{init} says nothing of what lives there"
        assert len(sign) > 80, init


@pytest.mark.parametrize(
    "name", ["utils", "common", "helpers", "shared", "core", "manager", "kfp", "kubernetes", "minio"]
)
def test_names_that_say_nothing_or_hide_a_library_are_not_used(name):
    assert not [path for path in SOURCES if path.stem == name or name in path.relative_to(ROOT).parts]


def test_no_scenario_is_asked_for_by_name_outside_the_table():
    names = set(plans.names())
    for path in SOURCES:
        if "tests" in path.relative_to(ROOT).parts or path.name == "plan.py":
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Compare):
                constants = {n.value for n in ast.walk(node) if isinstance(n, ast.Constant)}
                assert not constants & names, f"{path}:{node.lineno}"
