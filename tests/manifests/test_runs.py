"""The files of manifests/runs are what ``fourfold manifest`` prints, and a real cluster takes them."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from fourfold.contract import plan as plans
from fourfold_pipelines.cli.manifest import EXPERIMENT
from tests.conftest import NAMESPACE, kubectl
from tests.manifests.objects import MANIFESTS, parse, read

RUNS = MANIFESTS / "runs"
PRINT = RUNS / "print"
NAMES = (EXPERIMENT, *plans.names())
ANEW = "print them anew with manifests/runs/print"
FOURFOLD = Path(sys.executable).with_name("fourfold")
every_name = pytest.mark.parametrize("name", NAMES)


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What is printed now, by the name of the file."""
    folder = tmp_path_factory.mktemp("runs")
    environment = {**os.environ, "PATH": f"{FOURFOLD.parent}:{os.environ['PATH']}"}
    done = subprocess.run([PRINT, folder], env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return {path.name: path.read_text() for path in folder.iterdir()}


def test_every_scenario_has_its_file_and_there_is_no_other(printed):
    files = sorted(path.name for path in RUNS.iterdir())
    assert files == sorted([PRINT.name, *(f"{name}.yaml" for name in NAMES)]), ANEW
    assert sorted(printed) == sorted(f"{name}.yaml" for name in NAMES)


@every_name
def test_a_file_is_what_is_printed_now(name, printed):
    assert (RUNS / f"{name}.yaml").read_text() == printed[f"{name}.yaml"], f"{name}.yaml is old: {ANEW}"


@every_name
def test_a_file_says_what_printed_it_and_how_to_use_it(name):
    first, second, *_ = (RUNS / f"{name}.yaml").read_text().splitlines()
    assert first.startswith(f"# Printed by: fourfold manifest {name}")
    assert second.startswith("# ")
    assert "kubectl create -f" in second


@every_name
def test_a_file_holds_no_path_of_the_machine_that_printed_it(name):
    text = (RUNS / f"{name}.yaml").read_text()
    of_pods = {"/tmp"} if name == EXPERIMENT else {"/tmp", "/cache"}
    assert set(re.findall(r"(?<![\w:/$)])/\w[\w/]*", text)) == of_pods
    assert str(Path.home()) not in text


def test_the_experiment_can_be_created_again_and_a_tfjob_has_one_name():
    (job,) = read(RUNS / f"{EXPERIMENT}.yaml")
    assert (job["kind"], "name" in job["metadata"]) == ("Job", False)
    assert job["metadata"]["generateName"].endswith("-")
    for name in plans.names():
        made = read(RUNS / f"{name}.yaml")
        assert made[0]["kind"] == "TFJob"
        assert made[0]["metadata"]["labels"]["fourfold/scenario"] == name
        assert {item["metadata"]["namespace"] for item in made} == {NAMESPACE}


@pytest.mark.cluster
@every_name
def test_a_real_cluster_takes_the_file_and_what_is_printed_with_options(s3_server, name):
    """Past the operator's admission check. Writes nothing."""
    said = kubectl("create", "--dry-run=server", "-f", str(RUNS / f"{name}.yaml"))
    assert said.count("created (server dry run)") == len(read(RUNS / f"{name}.yaml"))
    command = [FOURFOLD, "manifest", name, "--workers", "3", "--gpus", "1", "--epochs", "7"]
    text = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout
    said = kubectl("create", "--dry-run=server", "-f", "-", stdin=text)
    assert said.count("created (server dry run)") == len(parse(text))
