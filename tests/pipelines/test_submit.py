"""``fourfold submit`` against a server on loopback: what it sends, shows and ends with."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from fourfold.contract import exits, plan as plans
from fourfold_pipelines.cli import main
from fourfold_pipelines.kubeflow import submission
from tests.pipelines.kubeflow.fake_kubeflow import API, FakeKubeflow
from tests.pipelines.kubeflow.fake_workflow import Scene, pod, tell

TOKEN = "eyJ-not-for-eyes.of-anyone_else"
SECRET = "of-the-store-and-of-nobody-else"
WORKFLOW = "fourfold-x2b4c"
TRAIN = "root.train.executor(0)"
EPOCH = "solo: epoch 1/1  loss 0.5000  accuracy 0.9000  2,000 rows/s"
NUMBERS = {"rows": 2000, "holdout": 1000, "workers": 2, "epochs": 5, "batch": 100, "seed": 0,
           "members": 3, "stages": 2, "micro_batches": 4, "local_steps": 0}  # fmt: skip


@pytest.fixture(autouse=True)
def place(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An empty folder, a store's account in the environment, no token of this machine, and no waiting."""
    monkeypatch.chdir(tmp_path)
    for name in ("KF_PIPELINES_SA_TOKEN_PATH", "FOURFOLD_HOST"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setattr(submission, "EVERY", 0.0)


@pytest.fixture
def kubeflow() -> Iterator[FakeKubeflow]:
    with FakeKubeflow() as found:
        found.script = [told("SUCCEEDED", "SUCCEEDED")]
        yield found


@pytest.fixture
def several_users() -> Iterator[FakeKubeflow]:
    with FakeKubeflow(users={TOKEN: {"alice"}}, prefix="/pipeline") as found:
        found.script = [told("SUCCEEDED", "SUCCEEDED")]
        yield found


@pytest.fixture
def token_file(tmp_path: Path) -> str:
    (tmp_path / "token").write_text(TOKEN)
    return str(tmp_path / "token")


def told(state: str, train: str, log: str = "") -> Scene:
    names = ["root", "root.train-driver", "root.train", "root.train.executor", TRAIN]
    return Scene(tell(WORKFLOW, dict.fromkeys(names, train), state), {pod(WORKFLOW, TRAIN): log})


def submit(kubeflow: FakeKubeflow, *arguments: str, code: int = 0) -> Result:
    result = CliRunner().invoke(main, ["submit", *arguments, "--host", kubeflow.host], prog_name="fourfold")
    assert result.exit_code == code, result.output
    assert isinstance(result.exception, SystemExit | None)
    assert TOKEN not in result.output
    return result


def parameters(kubeflow: FakeKubeflow) -> dict:
    (request,) = kubeflow.asked("POST", f"{API}/runs")
    return request.body["runtime_config"]["parameters"]


def test_a_run_that_succeeds_ends_with_zero_and_names_its_page(kubeflow):
    kubeflow.script = [
        told("RUNNING", "RUNNING"),
        told("RUNNING", "RUNNING", EPOCH[:20]),
        told("RUNNING", "RUNNING", f"{EPOCH}\n"),
        told("SUCCEEDED", "SUCCEEDED", f"{EPOCH}\n"),
    ]
    result = submit(kubeflow)
    (run,) = kubeflow.runs
    page = f"{kubeflow.host}/#/runs/details/{run}"
    first, pipeline, started, *progress, last = result.stdout.splitlines()
    assert first == f"Kubeflow Pipelines 2.17.0 at {kubeflow.host}"
    assert pipeline.startswith("pipeline fourfold")
    assert pipeline.endswith(": uploaded")
    assert started == f"run {run}: {page}"
    assert progress == [EPOCH, "train: done in 20.0 s"]
    assert last == f"The run succeeded; curves, tables and the report are in {page}"


def test_the_parameters_are_those_of_the_options_each_of_its_kind(kubeflow):
    submit(kubeflow, "--rows", "300", "--scenario", "solo", "--scenario", "sequential", "--data", "mnist")
    found = parameters(kubeflow)
    assert found == {
        **NUMBERS,
        "rows": 300,
        "data": "mnist",
        "split": "contiguous",
        "optimizer": "adam",
        "learning_rate": 0.001,
        "ways": "{}",
        "cache": "{}",
        "scenarios": ["solo", "sequential"],
    }
    assert {name: type(found[name]) for name in NUMBERS} == dict.fromkeys(NUMBERS, int)
    assert type(found["learning_rate"]) is float


def test_how_rows_are_kept_and_read_is_one_parameter(kubeflow):
    submit(kubeflow, "--order", "batches", "--ram", "300M", "--disk", "none", "--cache-dtype", "uint8")
    told = json.loads(parameters(kubeflow)["cache"])
    assert told == {"order": "batches", "ram": 300_000_000, "disk": -1, "dtype": "uint8"}


def test_all_scenarios_run_where_none_is_named(kubeflow):
    submit(kubeflow)
    assert parameters(kubeflow)["scenarios"] == list(plans.names())


def test_the_pipeline_train_gets_one_scenario(kubeflow):
    submit(kubeflow, "train", "--scenario", "solo", "--learning-rate", "1", "--store", "s3://models/mine")
    found = parameters(kubeflow)
    assert found["scenario"] == "solo"
    assert "scenarios" not in found
    assert type(found["learning_rate"]) is float
    assert found["store"] == "s3://models/mine"


def test_the_pipeline_train_keeps_its_own_scenario_where_none_is_named(kubeflow):
    submit(kubeflow, "train")
    assert not {"scenario", "scenarios"} & set(parameters(kubeflow))


def test_the_pipeline_train_takes_no_two_scenarios(kubeflow):
    result = submit(
        kubeflow, "train", "--scenario", "solo", "--scenario", "sequential", code=exits.INVALID_INPUT
    )
    assert "takes one --scenario" in result.stderr
    assert kubeflow.requests == []


@pytest.mark.parametrize("pipeline", ["experiment", "train"])
def test_what_is_uploaded_is_what_compile_writes_and_holds_no_secret(
    several_users, pipeline, token_file, tmp_path
):
    chosen = ["--registry", "registry.example.org/team", "--pods", '{"memory": "16Gi"}', "--name", "nightly"]
    submit(several_users, pipeline, *chosen, "--namespace", "alice", "--token-file", token_file)
    compiled = CliRunner().invoke(main, ["compile", pipeline, *chosen, "-o", str(tmp_path / "out")])
    assert compiled.exit_code == 0, compiled.output
    (uploaded,) = several_users.uploads.values()
    assert uploaded == (tmp_path / "out" / f"{pipeline}.yaml").read_bytes()
    assert TOKEN.encode() not in uploaded
    assert SECRET.encode() not in uploaded
    assert several_users.pipelines[0]["name"] == "nightly"


def test_the_same_again_is_not_uploaded_and_other_pods_are_a_new_version(kubeflow):
    said = [
        submit(kubeflow, "--no-follow", *more).stdout.splitlines()[1]
        for more in ([], [], ["--pods", '{"memory": "16Gi"}'])
    ]
    assert [line.rpartition(": ")[2] for line in said] == ["uploaded", "is there already", "uploaded"]
    assert len(kubeflow.versions) == 2
    assert len(kubeflow.pipelines) == len(kubeflow.experiments) == 1
    assert len(kubeflow.runs) == 3


def test_a_run_that_is_not_followed_is_not_asked_about(kubeflow):
    submit(kubeflow, "--no-follow", "--experiment", "mine", "--run-name", "this", "--service-account", "me")
    (run,) = kubeflow.runs.values()
    assert kubeflow.asked("GET", f"{API}/runs/{run['run_id']}") == []
    assert kubeflow.experiments[0]["display_name"] == "mine"
    assert (run["display_name"], run["service_account"]) == ("this", "me")


def test_a_step_that_fails_is_told_with_the_servers_error_and_its_last_lines(kubeflow):
    last = told("FAILED", "FAILED", "a line\ntrain solo failed: the loss diverged\n")
    for task in last.run["run_details"]["task_details"]:
        if task["display_name"] == "train":
            task["error"] = {"message": "OOMKilled"}
    kubeflow.script = [told("RUNNING", "RUNNING"), last]
    result = submit(kubeflow, code=exits.FAILED)
    assert "train failed: OOMKilled" in result.stderr
    assert "The run ended: it has failed" in result.stderr
    assert f"{kubeflow.host}/#/runs/details/" in result.stderr.splitlines()[-3]
    assert result.stderr.endswith("  | a line\n  | train solo failed: the loss diverged\n")


def test_a_run_that_was_terminated_ends_with_a_message_and_not_with_zero(kubeflow):
    kubeflow.script = [
        told("RUNNING", "RUNNING"),
        told("CANCELING", "RUNNING"),
        Scene(tell(WORKFLOW, {"root": "FAILED"}, "FAILED", error=None)),
    ]
    result = submit(kubeflow, code=exits.FAILED)
    assert "The run ended: it was terminated; see http" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "said", "code"),
    [
        (["--namespace", "alice"], "--token-file", exits.FAILED),
        (["--namespace", "bob", "--token-file", "token"], "namespace 'bob'", exits.FAILED),
        (["--token-file", "token"], "--namespace", exits.INVALID_INPUT),
        (["--namespace", "alice", "--token-file", "none"], "cannot read the token", exits.INVALID_INPUT),
        (["--namespace", "alice", "--token-file", "empty"], "holds no token", exits.INVALID_INPUT),
    ],
)
def test_who_is_not_let_in_is_told_what_to_do(several_users, token_file, tmp_path, arguments, said, code):
    (tmp_path / "empty").write_text("\n")
    result = submit(several_users, *arguments, code=code)
    assert said in result.stderr
    assert several_users.runs == several_users.uploads == {}


def test_a_namespace_where_there_is_one_user_is_refused(kubeflow):
    result = submit(kubeflow, "--namespace", "alice", code=exits.INVALID_INPUT)
    assert "leave --namespace away" in result.stderr


@pytest.mark.parametrize("data", ["/data/mnist", "here", "~/mnist"])
def test_a_folder_as_data_is_refused_before_anything_is_sent(kubeflow, data):
    result = submit(kubeflow, "--data", data, code=exits.INVALID_INPUT)
    assert f"--data {data}" in result.stderr
    assert "sample or mnist" in " ".join(result.stderr.split())
    assert kubeflow.requests == []


def test_a_parameter_that_is_too_long_names_the_limit(kubeflow):
    result = submit(kubeflow, "--store", f"s3://bucket/{'x' * 10_000}", code=exits.INVALID_INPUT)
    assert "Kubeflow takes 10,000" in result.stderr
    assert kubeflow.versions == []


def test_an_unknown_pipeline_names_those_that_there_are(kubeflow):
    assert "use experiment or train" in submit(kubeflow, "no-such", code=2).stderr


def test_the_server_may_be_named_by_the_environment(kubeflow, monkeypatch):
    monkeypatch.setenv("FOURFOLD_HOST", kubeflow.host)
    result = CliRunner().invoke(main, ["submit", "--no-follow"])
    assert result.exit_code == 0, result.output
    assert len(kubeflow.runs) == 1


def test_ctrl_c_leaves_the_run_and_says_so(kubeflow, tmp_path):
    kubeflow.script = [told("RUNNING", "RUNNING")]
    process = subprocess.Popen(
        [str(Path(sys.executable).parent / "fourfold"), "submit", "--host", kubeflow.host],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=dict(os.environ), cwd=tmp_path,
        # Whoever runs these tests in the background has a signal ignored that users' terminals do send.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip
    until = time.monotonic() + 60
    while not any(r.method == "GET" and r.path.startswith(f"{API}/runs/") for r in list(kubeflow.requests)):
        assert time.monotonic() < until, "waited in vain"
        assert process.poll() is None, process.communicate()
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    (run,) = kubeflow.runs
    assert process.returncode == exits.INTERRUPTED
    assert f"the run goes on, and is ended in {kubeflow.host}/#/runs/details/{run}" in err
    assert "Traceback" not in out + err
    assert [r.path for r in kubeflow.requests if r.path.endswith(":terminate")] == []
    assert json.dumps(parameters(kubeflow))
