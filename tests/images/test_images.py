"""What the images install: pinned, hashed, complete for what the code imports; and how they are built."""

import ast
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from fourfold.contract import images

ROOT = Path(__file__).parents[2]
IMAGES = ROOT / "images"
STEPS = IMAGES / "steps" / "requirements-cpu.txt"
CPU = IMAGES / "worker" / "requirements-cpu.txt"
GPU = IMAGES / "worker" / "requirements-gpu.txt"
LOCKED = [STEPS, CPU, GPU]
DOCKERFILES = [IMAGES / "Dockerfile"]
PIN = re.compile(r"([a-z0-9][a-z0-9-]*)(\[[a-z0-9,-]+\])?==(\S+)((?: --hash=sha256:[0-9a-f]{64})+)")
PLATFORM = {"sys_platform": "linux", "platform_machine": "x86_64", "python_version": "3.11", "extra": ""}
"""What images/lock locks for."""
INSTALLED_AS = {"yaml": "pyyaml"}
"""Projects whose name is not that of the module."""
every_lock = pytest.mark.parametrize("path", LOCKED, ids=lambda path: f"{path.parent.name}-{path.stem}")
every_dockerfile = pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: path.parent.name)


def pins(path: Path) -> dict[str, Version]:
    """The versions in a locked file, by the project's name."""
    found = [PIN.fullmatch(line) for line in lines(path)]
    return {match[1]: Version(match[3]) for match in found if match}


def lines(path: Path) -> list[str]:
    """The lines of a requirements file, each with what a backslash continues, without comments."""
    joined = re.sub(r"\s*\\\n\s*", " ", path.read_text())
    return [line for line in joined.splitlines() if line.strip() and not line.startswith("#")]


def wanted(texts: list[str]) -> list[Requirement]:
    """The requirements that hold on the platform of the images."""
    found = [Requirement(text) for text in texts]
    return [item for item in found if item.marker is None or item.marker.evaluate(PLATFORM)]


def unsatisfied(path: Path, texts: list[str]) -> list[str]:
    has = pins(path)
    return [
        str(item)
        for item in wanted(texts)
        if (name := canonicalize_name(item.name)) not in has or has[name] not in item.specifier
    ]


def imports(path: Path) -> set[str]:
    """The modules that a file imports, wherever in it; ``from a import b`` may be ``a.b``, too."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{name.name}" for name in node.names)}
    return found


def files(components: Path, module: str) -> set[Path]:
    """The files that are run when a module of ours is imported."""
    parts = module.split(".")
    packages = [components.joinpath(*parts[:end], "__init__.py") for end in range(1, len(parts) + 1)]
    return {path for path in [*packages, components.joinpath(*parts).with_suffix(".py")] if path.is_file()}


def needed(components: Path, image: str) -> set[str]:
    """The projects that the steps of an image import, themselves and through other modules of ours."""
    rooms = [path.parent for path in components.glob("fourfold/*/component.py") if image in path.read_text()]
    assert rooms
    new = {path for room in rooms for path in room.rglob("*.py")}
    seen: set[Path] = set()
    others: set[str] = set()
    while new:
        seen |= new
        modules = {module for path in new for module in imports(path)}
        others |= {module.partition(".")[0] for module in modules}
        new = {path for module in modules for path in files(components, module)} - seen
    return {INSTALLED_AS.get(name, name) for name in others - sys.stdlib_module_names - {"fourfold"}}


PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


# Pins.


@every_lock
def test_every_line_is_one_version_with_its_hashes(path):
    assert len(lines(path)) > 20
    assert [line for line in lines(path) if not PIN.fullmatch(line)] == []


@every_lock
def test_every_project_is_pinned_once(path):
    names = [line.partition("==")[0] for line in lines(path)]
    assert len(names) == len(set(names))


@every_lock
def test_no_line_names_a_place_to_install_from(path):
    assert not re.search(
        r"://|--(extra-)?index|--find-links|-i |@ |git\+|[\w-]+\.(com|org|net|io)\b", path.read_text()
    )


@every_dockerfile
def test_the_pins_are_for_the_python_of_the_image(path):
    base = re.search(r"^ARG BASE=python:(\d+\.\d+)", path.read_text(), re.MULTILINE)
    assert base
    assert base[1] == PLATFORM["python_version"]
    assert f"--python-version {base[1]}" in (IMAGES / "lock").read_text()
    assert base[1] in Requirement(f"python{PROJECT['requires-python']}").specifier


def test_the_workers_image_has_every_dependency_of_the_package():
    assert unsatisfied(CPU, PROJECT["dependencies"]) == []


def test_the_gpu_file_has_tensorflow_with_gpu_libraries_instead_of_tensorflow_cpu():
    others = [text for text in PROJECT["dependencies"] if not text.startswith("tensorflow-cpu")]
    assert unsatisfied(GPU, [*others, *lines(IMAGES / "worker" / "gpu.in")]) == []
    assert "tensorflow-cpu" not in pins(GPU)
    assert {"nvidia-cudnn-cu12", "nvidia-nccl-cu12"} <= pins(GPU).keys()
    assert not [name for name in pins(CPU) if name.startswith("nvidia")]


def test_both_files_of_the_worker_hold_the_same_versions_of_what_both_have():
    cpu, gpu = pins(CPU), pins(GPU)
    assert {name: cpu[name] for name in cpu.keys() & gpu.keys()} == {
        name: gpu[name] for name in cpu.keys() & gpu.keys()
    }
    assert gpu["tensorflow"] == cpu["tensorflow-cpu"]


def test_the_steps_image_has_what_it_asks_for_and_no_tensorflow():
    assert unsatisfied(STEPS, lines(IMAGES / "steps" / "requirements.in")) == []
    assert not pins(STEPS).keys() & {"tensorflow", "tensorflow-cpu", "keras", "matplotlib"}
    assert len(STEPS.read_text()) < len(CPU.read_text())


def test_the_steps_image_asks_for_the_same_ranges_as_the_package():
    asked = {item.name: item.specifier for item in wanted(lines(IMAGES / "steps" / "requirements.in"))}
    of_package = {item.name: item.specifier for item in wanted(PROJECT["dependencies"])}
    assert asked == {name: of_package.get(name) for name in asked}


def test_the_steps_image_holds_the_same_versions_as_the_worker():
    both = pins(STEPS).keys() & pins(CPU).keys()
    assert {name: pins(STEPS)[name] for name in both} == {name: pins(CPU)[name] for name in both}


# Imports.


def test_the_steps_image_has_what_its_steps_import_and_asks_for_it_by_name():
    found = needed(ROOT / "components", "images.STEPS")
    assert found <= pins(STEPS).keys()
    assert found <= {item.name for item in wanted(lines(IMAGES / "steps" / "requirements.in"))}


def test_the_workers_image_has_what_its_steps_import():
    found = needed(ROOT / "components", "images.WORKER")
    assert "keras" in found
    assert found - {"tensorflow"} <= pins(CPU).keys()


def test_an_import_that_is_not_installed_is_found_through_modules_of_ours(tmp_path):
    room = tmp_path / "fourfold" / "fetch"
    room.mkdir(parents=True)
    (room / "component.py").write_text("image = images.STEPS\n")
    (room / "step.py").write_text("def late():\n    import json\n    from fourfold import deep\n")
    (tmp_path / "fourfold" / "deep.py").write_text("import torch.nn\nfrom yaml import x\n")
    (tmp_path / "fourfold" / "other.py").write_text("import tensorflow\n")
    assert needed(tmp_path, "images.STEPS") == {"torch", "pyyaml"}


# Dockerfiles.


def instructions(path: Path) -> list[tuple[str, str]]:
    """A Dockerfile's instructions in order, each with its arguments on one line."""
    text = re.sub(r"^#.*\n", "", path.read_text(), flags=re.MULTILINE)
    return [
        (word.upper(), rest)
        for line in re.sub(r"\\\n\s*", "", text).splitlines()
        if line.strip()
        for word, _, rest in [line.partition(" ")]
    ]


def arguments(path: Path, instruction: str) -> list[str]:
    return [rest for word, rest in instructions(path) if word == instruction]


@every_dockerfile
def test_the_base_has_a_tag_that_does_not_move_to_another_python(path):
    (base,) = [text for text in arguments(path, "ARG") if text.startswith("BASE=")]
    assert re.fullmatch(r"BASE=[a-z/]+:\d[\w.-]+", base)
    assert arguments(path, "FROM") == ["${BASE}"]


@every_dockerfile
def test_the_user_is_a_number_and_not_root(path):
    (user,) = arguments(path, "USER")
    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", user)
    after = [word for word, _ in instructions(path)][[word for word, _ in instructions(path)].index("USER") :]
    assert after == ["USER", "CMD"]


@every_dockerfile
def test_labels_say_version_code_and_wheel(path):
    (labels,) = arguments(path, "LABEL")
    for label in (
        'org.opencontainers.image.version="${VERSION}"',
        'fourfold.code="${CODE}"',
        'fourfold.wheel-sha256="${WHEEL_SHA256}"',
    ):
        assert label in labels
    declared = {text.partition("=")[0] for text in arguments(path, "ARG")}
    assert {"VERSION", "CODE", "WHEEL", "WHEEL_SHA256", "REQUIREMENTS"} <= declared


@every_dockerfile
def test_everything_that_is_installed_is_checked_by_its_hash(path):
    installs = [part for text in arguments(path, "RUN") for part in text.split("&&") if "pip install" in part]
    assert len(installs) == 2
    assert "--require-hashes -r" in installs[0]
    assert "--no-index --no-deps" in installs[1]
    (of_the_wheel,) = [text for text in arguments(path, "RUN") if "--no-index" in text]
    assert of_the_wheel.index("sha256sum -c") < of_the_wheel.index("pip install")


@every_dockerfile
def test_nothing_is_installed_or_fetched_when_the_image_runs(path):
    (command,) = arguments(path, "CMD")
    assert not arguments(path, "ENTRYPOINT")
    assert not arguments(path, "ADD")
    assert not re.search(r"pip|curl|wget|apt|http", command)
    assert command.startswith("[")


@every_dockerfile
def test_home_is_a_folder_that_a_pod_can_write(path):
    assert "HOME=/tmp " in arguments(path, "ENV")[0]
    assert arguments(path, "WORKDIR") == ["/tmp"]


# Scripts.


@pytest.mark.parametrize("name", ["build", "lock"])
def test_a_script_can_be_run_and_stops_at_the_first_error(name):
    script = IMAGES / name
    assert script.stat().st_mode & 0o111 == 0o111
    assert script.read_text().startswith("#!/usr/bin/env bash\n# ")
    assert "\nset -euo pipefail\n" in script.read_text()
    subprocess.run(["bash", "-n", script], check=True, timeout=60)


def test_the_files_that_the_scripts_name_are_there_and_no_other_file_is_locked():
    locked = re.findall(r"^lock (\S+) (\S+)", (IMAGES / "lock").read_text(), re.MULTILINE)
    assert {ROOT / output for output, _ in locked} == set(LOCKED) == set(IMAGES.rglob("requirements-*.txt"))
    assert all((ROOT / source).is_file() for _, source in locked)


PYTHON = """#!/bin/sh
case "$*" in
  *"pip wheel"*) while [ "$1" != -w ]; do shift; done; touch "$2/fourfold-0-py3-none-any.whl" ;;
  *) exec "{python}" "$@" ;;
esac
"""
BUILDER = """#!/bin/sh
{{ echo "called: $*"; cd "$2" && echo "given:" *; }} >>"{log}"
"""


@pytest.mark.skipif(not shutil.which("sha256sum"), reason="images/build needs sha256sum")
def test_building_gives_the_builder_wheel_and_pins_and_prints_the_names(tmp_path):
    """With a wheel of no bytes, and a builder that only says what it was given."""
    log = tmp_path / "log"
    for name, text in (("python3", PYTHON), ("builder", BUILDER)):
        (tmp_path / name).write_text(text.format(python=sys.executable, log=log))
        (tmp_path / name).chmod(0o755)
    environment = {
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "PYTHON": str(tmp_path / "python3"),
        "BUILDER": "builder",
        "BUILD": "gpu",
    }
    done = subprocess.run(
        [IMAGES / "build"], env=environment, capture_output=True, text=True, timeout=120, check=True
    )
    assert done.stdout.split() == [images.STEPS, images.WORKER]
    first, of_steps, second, of_worker = log.read_text().splitlines()
    assert of_steps == "given: Dockerfile fourfold-0-py3-none-any.whl requirements-cpu.txt"
    assert of_worker == "given: Dockerfile fourfold-0-py3-none-any.whl requirements-gpu.txt"
    for called in (first, second):
        assert f"VERSION={images.__version__}" in called
        assert f"CODE={images.code()}" in called
        assert f"WHEEL_SHA256={hashlib.sha256(b'').hexdigest()}" in called
    assert f"called: {images.WORKER} " in second


@pytest.mark.skipif(not shutil.which("sha256sum"), reason="images/build needs sha256sum")
def test_what_is_pushed_is_what_was_built_under_the_registrys_name(tmp_path):
    log = tmp_path / "log"
    docker = f'#!/bin/sh\necho "$1 $2 $3" >>"{log}"\n'
    for name, text in (("python3", PYTHON.format(python=sys.executable)), ("docker", docker)):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    environment = {
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "PYTHON": str(tmp_path / "python3"),
        "REGISTRY": "registry.example.org/team/",
    }
    done = subprocess.run(
        [IMAGES / "build", "--push"], env=environment, capture_output=True, text=True, timeout=120, check=True
    )
    names = [f"registry.example.org/team/{image}" for image in (images.STEPS, images.WORKER)]
    assert done.stdout.split() == names
    assert log.read_text().splitlines() == [
        *(f"build -t {name}" for name in names),
        *(f"push -q {name}" for name in names),
    ]


def test_an_argument_that_building_does_not_know_is_refused():
    done = subprocess.run([IMAGES / "build", "--puhs"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert "unknown argument '--puhs'" in done.stderr
