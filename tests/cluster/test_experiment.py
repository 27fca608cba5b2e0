"""The whole experiment as a Job in the cluster, each scenario a real TFJob, and the same from a laptop."""

import base64
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from fourfold.contract import merges, plan as plans
from fourfold.store import s3
from fourfold.store.objects import open_store
from fourfold.train import tfjob
from tests.cluster.conftest import objects
from tests.conftest import NAMESPACE, kubectl

pytestmark = pytest.mark.cluster
FOURFOLD = str(Path(sys.executable).parent / "fourfold")
RUNS = Path(__file__).parents[2] / "manifests" / "runs"


def fourfold(*arguments, **how):
    return subprocess.run([FOURFOLD, *arguments], capture_output=True, text=True, timeout=800, **how)


@pytest.fixture(scope="module")
def in_cluster(s3_server, tmp_path_factory):
    """The Job of manifests/runs, run to its end: its name, what it printed, and its folder as fetched."""
    made = kubectl("-n", NAMESPACE, "create", "-f", str(RUNS / "experiment.yaml"), "-o", "json")
    name = json.loads(made)["metadata"]["name"]
    until = time.monotonic() + 900
    while True:
        status = json.loads(kubectl("-n", NAMESPACE, "get", "job", name, "-o", "json"))["status"]
        log = kubectl("-n", NAMESPACE, "logs", f"job/{name}") if status.get("ready") else ""
        kinds = {c["type"] for c in status.get("conditions", []) if c["status"] == "True"}
        if "Complete" in kinds:
            break
        assert "Failed" not in kinds, log
        assert time.monotonic() < until, log
        time.sleep(2)
    folder = tmp_path_factory.mktemp("fetched") / name
    shown = fourfold("show", "--no-open", f"s3://fourfold/runs/{name}", "--to", str(folder))
    assert shown.returncode == 0, shown.stderr
    yield name, kubectl("-n", NAMESPACE, "logs", f"job/{name}"), folder
    kubectl("-n", NAMESPACE, "delete", "job", name, "--wait=false")


@pytest.fixture(scope="module")
def here(tmp_path_factory):
    """The same run on this machine."""
    folder = tmp_path_factory.mktemp("here")
    done = fourfold("run", "--out", str(folder / "out"), "--store", str(folder / "store"))
    assert done.returncode == 0, done.stderr
    return json.loads((folder / "out" / "results.json").read_text())


def test_the_experiment_in_the_cluster_gives_the_weights_of_the_same_run_here(in_cluster, here):
    _, _, folder = in_cluster
    there = json.loads((folder / "results.json").read_text())
    assert list(there["scenarios"]) == list(plans.names()) == list(here["scenarios"])
    environments = [{**r["manifest"]["environment"], "python": ""} for r in (there, here)]
    for name in plans.names():
        one, other = there["scenarios"][name], here["scenarios"][name]
        # The last bits depend on the CPU and on TensorFlow's build; where these are equal, all bits are.
        if environments[0] == environments[1]:
            assert one["weights_sha256"] == other["weights_sha256"], name
        assert one["accuracy"] == pytest.approx(other["accuracy"], abs=0.01), name
    assert list(there["merge"]) == [*merges.RULES, *merges.AT_SITES] == list(here["merge"])
    for rule, score in there["merge"].items():
        assert score["accuracy"] == pytest.approx(here["merge"][rule]["accuracy"], abs=0.02), rule
    assert there["manifest"]["images"]["code"] == here["manifest"]["images"]["code"]


def test_each_scenario_was_a_tfjob_with_the_pods_of_its_plan(in_cluster):
    name, _, folder = in_cluster
    results = json.loads((folder / "results.json").read_text())
    jobs = {
        job["metadata"]["labels"][tfjob.SCENARIO]: job for job in objects("tfjobs", f"{tfjob.RUN}={name}")
    }
    assert set(jobs) == {*plans.names(), tfjob.MERGING}
    for scenario, job in jobs.items():
        pods = objects("pods", f"{tfjob.JOB_NAME}={job['metadata']['name']}")
        if scenario == tfjob.MERGING:
            assert len(pods) == 2
        else:
            assert len(pods) == plans.plan(scenario, 2).processes
            names = {pod["metadata"]["name"] for pod in pods}
            assert names == set(results["scenarios"][scenario]["processes"])
        (owner,) = job["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["name"]) == ("Job", name)


def test_all_of_a_run_is_in_the_store_and_loads(in_cluster):
    _, log, folder = in_cluster
    assert "<svg" in (folder / "report.html").read_text()
    assert {path.name for path in folder.iterdir()} == {
        "report.html", "results.json", "run.log", "events.jsonl", "models",
    }  # fmt: skip
    for words in ("epoch 5/5", "rows/s", "loss", "fourfold show s3://"):
        assert words in log


def test_what_the_pods_wrote_meanwhile_is_gone_from_the_store(in_cluster, store_environment, monkeypatch):
    name, _, _ = in_cluster
    for variable, value in store_environment.items():
        monkeypatch.setenv(variable, value)
    assert open_store("s3://fourfold").list(f"trainings/{name}") == []


def test_only_pods_of_the_same_job_may_reach_tensorflows_port(in_cluster):
    """The node of the tests does not enforce policies: what they say is held against the pods' labels."""
    name, _, _ = in_cluster
    policies = json.loads(kubectl("-n", NAMESPACE, "get", "networkpolicies", "-o", "json"))["items"]
    jobs = objects("tfjobs", f"{tfjob.RUN}={name}")
    pods = [pod for job in jobs for pod in objects("pods", f"{tfjob.JOB_NAME}={job['metadata']['name']}")]
    # The workers that merge beside their rows are two more.
    assert len(pods) == sum(plans.plan(scenario, 2).processes for scenario in plans.names()) + 2
    for target in pods:
        for source in pods:
            same = (
                target["metadata"]["labels"][tfjob.JOB_NAME] == source["metadata"]["labels"][tfjob.JOB_NAME]
            )
            title = target["metadata"]["labels"][tfjob.SCENARIO]
            several = title == tfjob.MERGING or plans.scenario(title).exchanges
            assert admits(policies, target, source, tfjob.PORT) == (same and several)
            assert not admits(policies, target, source, 8080)


def admits(policies, target, source, port):
    """What a network plugin decides on a connection between two pods of one namespace."""

    def matches(selector, pod):
        return selector.get("matchLabels", {}).items() <= pod["metadata"]["labels"].items()

    of_target = [p["spec"] for p in policies if matches(p["spec"]["podSelector"], target)]
    assert of_target, "a worker's pod that no policy selects is open to everybody"
    return any(
        matches(peer["podSelector"], source) and any(p["port"] == port for p in rule["ports"])
        for policy in of_target
        for rule in policy.get("ingress", [])
        for peer in rule["from"]
    )


def test_the_secret_is_found_nowhere(in_cluster, s3_server: s3.Settings):
    name, log, folder = in_cluster
    places = {"the Job's log": log.encode()}
    places |= {path.name: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    for job in objects("tfjobs", f"{tfjob.RUN}={name}"):
        for pod in objects("pods", f"{tfjob.JOB_NAME}={job['metadata']['name']}"):
            pod_name = pod["metadata"]["name"]
            places[pod_name] = kubectl("-n", NAMESPACE, "logs", pod_name).encode()
    for kind in ("tfjobs", "jobs", "pods", "configmaps", "events", "networkpolicies"):
        places[kind] = kubectl("-n", NAMESPACE, "get", kind, "-o", "yaml").encode()
    for place, content in places.items():
        for secret in (s3_server.secret_key.encode(), base64.b64encode(s3_server.secret_key.encode())):
            assert secret not in content, place


def test_ctrl_c_on_a_laptop_deletes_what_it_started_there(s3_server, tmp_path):
    out = tmp_path / "interrupted"
    process = subprocess.Popen(
        [
            FOURFOLD,
            "run",
            "--on",
            "cluster",
            "--scenario",
            "data_parallel",
            "--epochs",
            "500",
            "--out",
            str(out),
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "FOURFOLD_RUN": "interrupted"},
    )
    events = out / "events.jsonl"
    wait_until(lambda: events.exists() and '"epoch", "time"' in events.read_text(), 120, process)
    assert len(objects("tfjobs", f"{tfjob.RUN}=interrupted")) == 1
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130, said
    wait_until(lambda: not objects("tfjobs", f"{tfjob.RUN}=interrupted"), 30)
    assert not (out / "results.json").exists()


def wait_until(condition, seconds, process=None):
    until = time.monotonic() + seconds
    while not condition():
        assert process is None or process.poll() is None, process.stderr.read()
        assert time.monotonic() < until, "waited in vain"
        time.sleep(0.2)


def test_a_laptop_run_on_the_cluster_gives_the_same_weights(s3_server, here, tmp_path):
    out = tmp_path / "from-here"
    done = fourfold("run", "--on", "cluster", "--scenario", "sequential", "--out", str(out))
    assert done.returncode == 0, done.stderr
    results = json.loads((out / "results.json").read_text())
    there = results["scenarios"]["sequential"]
    assert there["accuracy"] == pytest.approx(here["scenarios"]["sequential"]["accuracy"], abs=0.01)
    assert there["processes"][0].endswith("-worker-0")
    for path in out.rglob("*"):
        assert not path.is_file() or s3_server.secret_key.encode() not in path.read_bytes(), path


def test_any_user_without_a_home_and_with_a_root_that_cannot_be_written_can_run_it(s3_server):
    """Bug report C6: the whole run, its workers too, as a user that no image knows, HOME unset."""
    printed = fourfold("manifest", "experiment").stdout
    job = yaml.safe_load(printed)
    spec = job["spec"]["template"]["spec"]
    spec["securityContext"] |= {"runAsUser": 4711, "runAsGroup": 4711, "fsGroup": 4711}
    spec["containers"][0]["command"] = [
        "env", "-u", "HOME", "fourfold", "run", "--rows", "300", "--holdout", "100", "--epochs", "1",
        "--store", "/tmp/store", "--out", "/tmp/out",
    ]  # fmt: skip
    job["metadata"]["generateName"] = "any-user-"
    made = kubectl("-n", NAMESPACE, "create", "-f", "-", "-o", "json", stdin=json.dumps(job))
    name = json.loads(made)["metadata"]["name"]
    try:
        kubectl("-n", NAMESPACE, "wait", "--for=condition=Complete", f"job/{name}", "--timeout=400s")
        assert "report   /tmp/out/report.html" in kubectl("-n", NAMESPACE, "logs", f"job/{name}")
    finally:
        kubectl("-n", NAMESPACE, "delete", "job", name, "--wait=false")
