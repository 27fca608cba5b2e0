"""The main job, as a user runs it."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import keras
import numpy as np
import pytest

from fourfold.contract import exits, merges, plan as plans
from fourfold.prepare import source

FOURFOLD = str(Path(sys.executable).parent / "fourfold")
FEW = ["--scenario", "data_parallel", "--scenario", "solo"]
SMALL = ["--rows", "500", "--holdout", "100", "--epochs", "2", "--batch", "50"]


def fourfold(*arguments, store):
    environment = {**os.environ, "FOURFOLD_STORE": str(store)}
    return subprocess.run(
        [FOURFOLD, *arguments], capture_output=True, text=True, timeout=300, env=environment
    )


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Runs the main job on few rows and gives its results; one run for each name."""
    base, done = tmp_path_factory.mktemp("run"), {}

    def run_once(name, *arguments):
        if name not in done:
            out = base / name
            ended = fourfold("run", *SMALL, *arguments, "--out", str(out), store=base / "store")
            assert ended.returncode == 0, ended.stdout + ended.stderr + (out / "run.log").read_text()
            done[name] = (out, json.loads((out / "results.json").read_text()), ended.stdout)
        return done[name]

    return run_once


MEASURED = (
    "epochs",
    "processes",
    "models",
    "said",
    "merge_share",
    "peak_memory",
    "busy",
    "overlap",
    "inputs",
)
MODELS = {
    "sequential", "data_parallel", "ensemble-0", "ensemble-1", "ensemble-2", "pipeline", "hybrid",
    "solo-0", "solo-1", "federated", "merged-handed-on",
    *(f"merged-{merges.file_name(rule)}" for rule in (*merges.RULES, *merges.AT_SITES)),
}  # fmt: skip


def numbers(results, *names):
    """What must be the same again: all but times, process ids and where things are.

    Of all scenarios, or of those that are named.
    """
    scenarios = {}
    for name in names or results["scenarios"]:
        scenario = results["scenarios"][name]
        kept = {key: value for key, value in scenario.items() if key not in MEASURED}
        kept["epochs"] = [{k: v for k, v in e.items() if k != "seconds"} for e in scenario["epochs"]]
        kept["models"] = [{k: v for k, v in m.items() if k != "epochs"} for m in scenario["models"]]
        scenarios[name] = kept
    told = {
        rule: {key: value for key, value in each.items() if key != "seconds"}
        for rule, each in results["merge_rules"].items()
    }
    return {**results, "scenarios": scenarios, "merge_rules": told}


def test_the_main_job_leaves_all_that_it_promises(run):
    out, results, printed = run("first")
    assert {path.name for path in (out / "models").iterdir()} == {f"{name}.keras" for name in MODELS}
    assert not (out / "steps").exists()
    assert "<svg" in (out / "report.html").read_text()
    assert (out / "run.log").read_text()
    assert list(results["scenarios"]) == list(plans.names())
    assert list(results["merge"]) == [*merges.RULES, *merges.AT_SITES] == list(results["merge_rules"])
    assert results["gate"]["rule"] == merges.CHOSEN
    assert all(results["references"].values())
    for name in (*plans.names(), "plain_mean", "report.html"):
        assert name in printed


def test_each_scenario_ran_in_processes_of_its_own(run):
    _, results, _ = run("first")
    processes = [pid for scenario in results["scenarios"].values() for pid in scenario["processes"]]
    assert len(processes) == len(set(processes)) == 1 + 2 + 3 + 1 + 2 + 2 + 2


def test_the_report_says_what_each_way_costs_and_what_must_hold(run):
    _, results, _ = run("first")
    scenarios = results["scenarios"]
    assert scenarios["hybrid"]["distance"] == 0.0
    assert scenarios["pipeline"]["weights_sha256"] != scenarios["hybrid"]["weights_sha256"]
    for name, scenario in scenarios.items():
        sends = plans.scenario(name).exchanges or plans.scenario(name).splits_model
        assert (scenario["bytes_per_step"] > 0) == sends, name
        assert all(memory > 1e7 for memory in scenario["peak_memory"]), name
    apart = scenarios["ensemble"]["distances"]["values"]
    assert len(apart) > 2
    assert all(distance > 0 for row in apart for distance in row)
    assert scenarios["ensemble"]["accuracy"] == scenarios["ensemble"]["vote"]["accuracy"]
    for name in ("pipeline", "hybrid"):
        assert {span["stage"] for span in scenarios[name]["busy"]} == {0, 1}, name
    assert len(scenarios["federated"]["rounds"]) == 2


def test_plain_keras_loads_each_model_and_gets_the_reported_accuracy(run):
    out, results, _ = run("first")
    sample = source.read("sample")
    x = sample.test_x.astype(np.float32) / np.float32(255)
    expected = {
        "data_parallel": results["scenarios"]["data_parallel"],
        "sequential": results["scenarios"]["sequential"],
        "ensemble-2": results["scenarios"]["ensemble"]["models"][2],
        "pipeline": results["scenarios"]["pipeline"],
        "hybrid": results["scenarios"]["hybrid"],
        "federated": results["scenarios"]["federated"],
        "solo-0": results["scenarios"]["solo"]["models"][0],
        "solo-1": results["scenarios"]["solo"]["models"][1],
        **{f"merged-{merges.file_name(rule)}": score for rule, score in results["merge"].items()},
    }
    for name, score in expected.items():
        model = keras.saving.load_model(out / "models" / f"{name}.keras")
        assert model is not None
        found = np.mean(np.argmax(model.predict(x, verbose=0), axis=1) == sample.test_y)
        assert found == pytest.approx(score["accuracy"], abs=1e-9), name


def test_the_same_command_twice_gives_the_same_digests_and_numbers(run):
    _, first, _ = run("first")
    _, again, _ = run("again")
    assert numbers(first) == numbers(again)


def test_another_seed_gives_others(run):
    _, first, _ = run("first")
    _, other, _ = run("other seed", "--seed", "1", "--scenario", "solo")
    mine, its = (results["scenarios"]["solo"]["weights_sha256"] for results in (first, other))
    assert not set(mine) & set(its)
    assert list(other["scenarios"]) == ["solo"]
    assert other["references"]["all_data"] is None


def test_a_run_without_solo_models_says_that_there_is_nothing_to_merge(run):
    _, results, _ = run("sequential only", "--scenario", "sequential")
    assert results["merge"] == {}
    assert "nothing to merge" in results["merge_said"][0]


def test_a_failing_step_is_told_with_its_cause_and_without_a_traceback(tmp_path):
    done = fourfold(
        "run", *SMALL, "--scenario", "sequential", "--optimizer", "sgd", "--learning-rate", "1e9",
        "--out", str(tmp_path / "out"), store=tmp_path / "store",
    )  # fmt: skip
    assert done.returncode == exits.DIVERGED
    assert "diverged" in done.stderr
    assert "Traceback" not in done.stdout + done.stderr
    assert not (tmp_path / "out" / "results.json").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--data", "no-such-folder"], "is no folder"),
        (["--rows", "9500"], "10,000 training rows"),
        (["--split", "disjoint", "--workers", "11"], "at most 10"),
        (["--split", "contigous"], "unknown split"),
    ],
)
def test_what_only_the_data_can_tell_is_told_by_the_first_step(tmp_path, arguments, said):
    done = fourfold("run", *arguments, "--out", str(tmp_path / "out"), store=tmp_path / "store")
    assert done.returncode == exits.INVALID_INPUT
    assert said in done.stderr
    assert "Traceback" not in done.stdout + done.stderr


def group_of(session):
    """The processes of a session that are alive."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        if int(fields[3]) == session and fields[0] != "Z":
            found.append(int(stat.parent.name))
    return found


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, -9)]
)
def test_no_process_is_left_behind_however_the_run_is_ended(tmp_path, number, code):
    out = tmp_path / "out"
    arguments = ["run", "--rows", "2000", "--epochs", "500", "--scenario", "data_parallel", "--out", str(out)]
    environment = {**os.environ, "FOURFOLD_STORE": str(tmp_path / "store")}
    process = subprocess.Popen(
        [FOURFOLD, *arguments], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    told = out / "events.jsonl"
    wait_until(lambda: told.exists() and '"epoch", "time"' in told.read_text(), 120)
    started = [json.loads(line) for line in told.read_text().splitlines() if '"started"' in line]
    session = os.getsid(int(started[0]["process"]))
    assert len(group_of(session)) >= 4
    process.send_signal(number)
    assert process.wait(30) == code
    wait_until(lambda: not group_of(session), 30)
    assert not (out / "results.json").exists()


def wait_until(condition, seconds):
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "waited in vain"
        time.sleep(0.1)


def test_what_a_user_has_around_does_not_change_the_result(run, tmp_path, monkeypatch):
    """Decoys in the current folder, settings of Keras, a TF_CONFIG, a temporary folder with a long name."""
    for name in ("fourfold", "fourfold_pipelines", "keras", "kfp", "tensorflow"):
        (tmp_path / f"{name}.py").write_text("raise ImportError('a decoy was imported')\n")
    long = tmp_path / ("long" * 40)
    long.mkdir()
    settings = {"floatx": "float64", "image_data_format": "channels_first", "epsilon": 1e-3, "backend": "jax"}
    (tmp_path / "keras.json").write_text(json.dumps(settings))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KERAS_HOME", str(tmp_path))
    monkeypatch.setenv("KERAS_BACKEND", "jax")
    monkeypatch.setenv("TMPDIR", str(long))
    monkeypatch.setenv(
        "TF_CONFIG", '{"cluster": {"worker": ["a:1", "b:2"]}, "task": {"type": "worker", "index": 1}}'
    )
    monkeypatch.setenv("PYTHONWARNINGS", "error")
    _, around, _ = run("around", *FEW)
    monkeypatch.undo()
    _, first, _ = run("first")
    assert (
        numbers(around, *around["scenarios"])["scenarios"]
        == numbers(first, *around["scenarios"])["scenarios"]
    )
    assert around["merge"] == first["merge"]


def test_a_run_whose_own_process_is_killed_says_so(tmp_path):
    out = tmp_path / "out"
    arguments = ["run", "--epochs", "500", "--scenario", "sequential", "--out", str(out)]
    environment = {**os.environ, "FOURFOLD_STORE": str(tmp_path / "store")}
    process = subprocess.Popen([FOURFOLD, *arguments], env=environment, stderr=subprocess.PIPE, text=True)
    told = out / "events.jsonl"
    wait_until(lambda: told.exists() and '"started"' in told.read_text(), 120)
    started = next(json.loads(line) for line in told.read_text().splitlines() if '"started"' in line)
    session = os.getsid(int(started["process"]))
    os.kill(session, signal.SIGKILL)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "The run ended: killed by SIGKILL; its last lines:" in said
    wait_until(lambda: not group_of(session), 30)


@pytest.mark.cluster
def test_a_run_with_its_batches_in_s3_gives_the_digests_of_one_with_a_folder(run, s3_server, monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", s3_server.endpoint)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", s3_server.access_key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", s3_server.secret_key)
    _, folder, _ = run("first")
    out, bucket, printed = run("from s3", *FEW, "--store", "s3://fourfold-tests/runs")
    assert numbers(bucket)["scenarios"] == numbers(folder, *bucket["scenarios"])["scenarios"]
    for path in out.rglob("*"):
        assert not path.is_file() or s3_server.secret_key.encode() not in path.read_bytes(), path
    assert s3_server.secret_key not in printed
