"""What GitHub and .ci/kind run: their commands are there, their images are pinned, their order is right."""

import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from fourfold.contract import images

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yaml"))
KIND = ROOT / ".ci" / "kind"
README = (ROOT / "README.md").read_text()
every_workflow = pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)


def jobs(path: Path) -> dict[str, Any]:
    return yaml.safe_load(path.read_text())["jobs"]


def steps(path: Path) -> list[dict[str, Any]]:
    return [step for job in jobs(path).values() for step in job["steps"]]


def test_there_is_a_workflow_for_kind_and_one_without_a_cluster():
    assert [path.stem for path in WORKFLOWS] == ["kind", "tests"]


@every_workflow
def test_every_job_ends_by_itself_and_may_only_read(path):
    assert yaml.safe_load(path.read_text())["permissions"] == {"contents": "read"}
    for job in jobs(path).values():
        assert 0 < job["timeout-minutes"] <= 90


@every_workflow
def test_actions_and_runners_are_of_a_version(path):
    for step in steps(path):
        if "uses" in step:
            assert re.fullmatch(r"[\w-]+/[\w-]+@v\d+(\.\d+)*", step["uses"])
    for job in jobs(path).values():
        assert re.fullmatch(r"ubuntu-\d+\.\d+", job["runs-on"])


def test_the_pythons_are_those_that_the_package_supports():
    (job,) = jobs(ROOT / ".github" / "workflows" / "tests.yaml").values()
    assert job["strategy"]["matrix"]["python"] == ["3.11", "3.12", "3.13"]
    assert 'requires-python = ">=3.11,<3.14"' in (ROOT / "pyproject.toml").read_text()


@pytest.mark.parametrize(("end", "command"), [("fourfold run", "fourfold run"), ("pytest", "pytest")])
def test_the_readmes_commands_are_found_as_ci_looks_for_them(end, command):
    found = [line for line in README.splitlines() if line.endswith(end)]
    assert found[0].startswith("python3 -m venv .venv && .venv/bin/pip install -q -e ")
    said = (ROOT / ".github" / "workflows" / "tests.yaml").read_text() + (ROOT / ".ci" / "run").read_text()
    assert f"grep -m1 '{command}$' README.md" in said


def test_the_nodes_are_of_the_versions_that_the_readme_names():
    (job,) = jobs(ROOT / ".github" / "workflows" / "kind.yaml").values()
    nodes = job["strategy"]["matrix"]["node"]
    assert len(nodes) == 2
    assert all(re.fullmatch(r"kindest/node:v1\.\d+\.\d+", node) for node in nodes)
    assert f"NODE:-{nodes[0]}}}" in KIND.read_text()
    minors = sorted(node.rpartition(":v")[2].rpartition(".")[0] for node in nodes)
    assert f"on kind with Kubernetes {minors[0]} and {minors[1]}" in README


# .ci/kind itself, with programs that only say what they are asked.

SAYS = """#!/bin/sh
echo "$(basename "$0") $*" >>"$SAID"
case "$(basename "$0") $*" in
  "$FAILS"*) exit 7 ;;
esac
"""


@pytest.fixture
def checkout(tmp_path) -> Path:
    """As much of a checkout as .ci/kind touches; every program writes down how it was called."""
    for name in (".ci/kind", "manifests/overlays/kind/seaweedfs.yaml"):
        target = tmp_path / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes((ROOT / name).read_bytes())
        target.chmod(0o755)
    programs = ["bin/docker", "bin/kind", "bin/kubectl", ".venv/bin/pytest", ".venv/bin/fourfold"]
    for name in [*programs, "images/build", "manifests/install"]:
        program = tmp_path / name
        program.parent.mkdir(parents=True, exist_ok=True)
        program.write_text(SAYS)
        program.chmod(0o755)
    (tmp_path / "images" / "build").write_text(SAYS + f"echo {images.STEPS}; echo {images.WORKER}\n")
    return tmp_path


def run_kind(checkout: Path, fails: str = "nothing", **environment: str) -> tuple[int, list[str], str]:
    said = checkout / "said"
    path = f"{checkout / 'bin'}:{os.environ['PATH']}"
    done = subprocess.run(
        [checkout / ".ci" / "kind"],
        env={**os.environ, "PATH": path, "SAID": str(said), "FAILS": fails, **environment},
        capture_output=True,
        text=True,
        timeout=60,
    )
    return done.returncode, said.read_text().splitlines() if said.exists() else [], done.stderr


def test_the_steps_come_in_order_and_the_cluster_is_deleted(checkout):
    code, said, _ = run_kind(checkout)
    assert code == 0
    assert said == [
        "kind create cluster --name fourfold --image kindest/node:v1.34.0 --wait 120s",
        "build ",
        "docker pull -q chrislusf/seaweedfs:4.53",
        f"kind load docker-image --name fourfold {images.STEPS} {images.WORKER} chrislusf/seaweedfs:4.53",
        "install ",
        "fourfold doctor",
        "pytest -m cluster -q -ra --durations=10",
        "kind delete cluster --name fourfold",
    ]


@pytest.mark.parametrize("fails", ["kind create", "docker pull", "install", "fourfold doctor", "pytest"])
def test_what_fails_ends_it_and_the_cluster_is_deleted_all_the_same(checkout, fails):
    code, said, _ = run_kind(checkout, fails)
    assert code == 7
    assert said[-2].startswith(fails)
    assert said[-1] == "kind delete cluster --name fourfold"


def test_the_cluster_may_be_kept(checkout):
    code, said, _ = run_kind(checkout, KEEP="1", NODE="kindest/node:v1.33.4")
    assert code == 0
    assert said[0].split()[5:7] == ["--image", "kindest/node:v1.33.4"]
    assert said[-1].startswith("pytest")


def test_a_program_that_is_missing_is_named_before_anything_is_made(checkout):
    (checkout / ".venv" / "bin" / "pytest").unlink()
    code, said, error = run_kind(checkout)
    assert code == 1
    assert ".venv/bin/pytest is missing" in error
    assert said == []
