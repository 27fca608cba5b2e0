"""The story of a submission: what is uploaded and when, which run is started, its progress to the end."""

from pathlib import Path

import pytest

from fourfold import __version__
from fourfold.contract import events
from fourfold.contract.errors import ClusterError, ClusterUnavailableError, InvalidInputError
from fourfold_pipelines.kubeflow import submission
from fourfold_pipelines.kubeflow.server import Server
from tests.pipelines.kubeflow.conftest import TOKEN
from tests.pipelines.kubeflow.fake_kubeflow import API, FakeKubeflow, refused
from tests.pipelines.kubeflow.fake_workflow import Scene, pod, tell

PARAMETERS = {"rows": 5, "learning_rate": 1e-3, "scenarios": ["solo", "sequential"], "data": "sample"}
WORKFLOW = "fourfold-x2b4c"
TRAIN = "root.train.executor(0)"
POD = pod(WORKFLOW, TRAIN)
EPOCHS = [f"solo: epoch {n}/3  loss 0.5000  accuracy 0.9000  2,000 rows/s" for n in (1, 2, 3)]
STEPS = ["train", "report"]


@pytest.fixture
def server(kubeflow: FakeKubeflow) -> Server:
    return Server(kubeflow.host, sleep=lambda seconds: pytest.fail("waited to ask again"))


@pytest.fixture
def package(tmp_path: Path) -> Path:
    path = tmp_path / "experiment.yaml"
    path.write_text("# PIPELINE DEFINITION\nname: fourfold\n")
    return path


def submit(server, package, name="fourfold", parameters=PARAMETERS, **more):
    return submission.submit(server, package, name, "about", "trials", "a run", parameters, **more)


def test_what_is_sent_first_is_a_pipeline_a_version_an_experiment_and_a_run(server, kubeflow, package):
    started = submit(server, package, account="someone")
    (pipeline,), (version,), (experiment,) = kubeflow.pipelines, kubeflow.versions, kubeflow.experiments
    assert started.uploaded
    assert started.version == version["name"]
    assert version["name"].startswith(f"{__version__}-")
    assert kubeflow.uploads == {version["pipeline_version_id"]: package.read_bytes()}
    assert (pipeline["name"], pipeline["description"]) == ("fourfold", "about")
    assert kubeflow.asked("POST", f"{API}/runs")[0].body == {
        "display_name": "a run",
        "experiment_id": experiment["experiment_id"],
        "pipeline_version_reference": {
            "pipeline_id": pipeline["pipeline_id"],
            "pipeline_version_id": version["pipeline_version_id"],
        },
        "runtime_config": {"parameters": PARAMETERS},
        "service_account": "someone",
    }
    assert started.page == f"{kubeflow.host}/#/runs/details/{started.run}"


def test_the_same_content_again_is_the_same_version_and_is_not_uploaded(server, kubeflow, package):
    first, again = submit(server, package), submit(server, package)
    assert (first.uploaded, again.uploaded) == (True, False)
    assert first.version == again.version
    assert first.run != again.run
    assert len(kubeflow.asked("POST", f"{API}/pipelines/upload_version")) == 1
    assert len(kubeflow.pipelines) == len(kubeflow.experiments) == 1
    bodies = [request.body for request in kubeflow.asked("POST", f"{API}/runs")]
    assert bodies[0] == bodies[1]
    assert "service_account" not in bodies[0]


def test_changed_content_is_another_version_of_the_same_pipeline(server, kubeflow, package):
    submit(server, package)
    package.write_text("name: fourfold\nchanged: true\n")
    assert submit(server, package).uploaded
    assert len({version["name"] for version in kubeflow.versions}) == 2
    assert len({version["pipeline_id"] for version in kubeflow.versions}) == 1


def test_another_name_is_another_pipeline_with_a_version_of_its_own(server, kubeflow, package):
    assert submit(server, package).uploaded
    assert submit(server, package, name="nightly").uploaded
    assert [pipeline["name"] for pipeline in kubeflow.pipelines] == ["fourfold", "nightly"]


def test_a_parameter_that_is_too_long_is_refused_before_anything_is_sent(server, kubeflow, package):
    with pytest.raises(InvalidInputError, match="10,000"):
        submit(server, package, parameters={"store": "x" * 10_001})
    assert kubeflow.requests == []


@pytest.mark.parametrize("path", [f"{API}/pipelines/upload_version", f"{API}/experiments", f"{API}/runs"])
def test_where_something_is_refused_the_story_ends(server, kubeflow, package, path):
    kubeflow.wrong(path, refused(403, "User 'a' is not authorized"))
    with pytest.raises(ClusterError, match="not authorized"):
        submit(server, package)
    assert kubeflow.runs == {}


def nodes(train: str, **more: str) -> dict[str, str]:
    """States of the nodes of a run whose training is in this state."""
    names = ["root", "root.train-driver", "root.train", "root.train.executor", TRAIN]
    return {**dict.fromkeys(names, train), "root.train-driver": "SUCCEEDED", **more}


def scene(state: str, train: str, log: str | None = None, **more: str) -> Scene:
    return Scene(tell(WORKFLOW, nodes(train, **more), state), {} if log is None else {POD: log})


def followed(server: Server, kubeflow: FakeKubeflow, script: list[Scene]) -> list[dict]:
    kubeflow.script = script
    run = server.run("a run", "e", "p", "v", {}, "")
    return list(submission.follow(server, run, STEPS, sleep=lambda seconds: None))


def test_a_run_is_told_line_by_line_each_line_once(server, kubeflow):
    log = "".join(f"{line}\n" for line in EPOCHS)
    script = [Scene({"state": "PENDING"}), scene("RUNNING", "RUNNING")]
    # The log is read again and again, grows, and ends inside of lines.
    script += [scene("RUNNING", "RUNNING", log[:end]) for end in (0, 5, 70, 70, len(log) - 1, len(log))]
    script += [scene("RUNNING", "SUCCEEDED", log), scene("SUCCEEDED", "SUCCEEDED", log)]
    told = followed(server, kubeflow, script)
    assert [events.describe(event) for event in told[:-1]] == [
        "train: started", *EPOCHS, "train: done in 20.0 s",
    ]  # fmt: skip
    assert told[-1] == {"event": "run-ended", "state": "SUCCEEDED", "message": "succeeded", "tail": ""}


def test_what_is_new_at_the_end_is_told_though_the_last_line_is_not_whole(server, kubeflow):
    told = followed(server, kubeflow, [scene("SUCCEEDED", "SUCCEEDED", "\n".join(EPOCHS))])
    assert [event["epoch"] for event in told if event["event"] == "epoch"] == [1, 2, 3]


def test_the_log_of_a_task_that_has_ended_is_not_read_any_more(server, kubeflow):
    report = {"root.report-driver": "SUCCEEDED", "root.report": "RUNNING"}
    followed(server, kubeflow, [
        scene("RUNNING", "SUCCEEDED", "ended\n", **report),
        scene("RUNNING", "SUCCEEDED", "ended\n", **report),
        scene("SUCCEEDED", "SUCCEEDED", "ended\n"),
    ])  # fmt: skip
    assert len(kubeflow.asked("GET", "/k8s/pod/logs")) == 1


def test_a_run_whose_logs_are_not_served_is_followed_all_the_same(server, kubeflow):
    told = followed(server, kubeflow, [scene("RUNNING", "RUNNING"), scene("SUCCEEDED", "SUCCEEDED")])
    assert [event["event"] for event in told] == ["step-started", "step-done", "run-ended"]


def test_a_failure_is_told_with_the_last_lines_of_its_last_try(server, kubeflow):
    second = "root.train.executor(1)"
    run = tell(WORKFLOW, nodes("FAILED", **{second: "FAILED"}), "FAILED")
    logs = {POD: "the first try\n", pod(WORKFLOW, second): "train solo failed: it diverged\n"}
    told = followed(server, kubeflow, [Scene(run, logs)])
    assert [event["event"] for event in told] == ["step-started", "step-failed", "run-ended"]
    assert told[-1]["state"] == "FAILED"
    assert told[-1]["tail"] == "  | train solo failed: it diverged"


def test_a_run_that_was_terminated_is_told_so_though_it_ends_as_failed(server, kubeflow):
    told = followed(server, kubeflow, [
        scene("RUNNING", "RUNNING"), scene("CANCELING", "RUNNING"), scene("FAILED", "FAILED"),
    ])  # fmt: skip
    assert (told[-1]["state"], told[-1]["message"]) == ("FAILED", "terminated")


def test_a_run_that_fails_before_any_step_ends(server, kubeflow):
    run = tell(WORKFLOW, {"root-driver": "FAILED"}, "FAILED")
    assert followed(server, kubeflow, [Scene({"state": "PENDING"}), Scene(run)]) == [
        {"event": "run-ended", "state": "FAILED", "message": "failed", "tail": ""}
    ]


@pytest.mark.parametrize("template", ["retry-system-container-impl", "system-container-impl"])
def test_the_log_is_found_whatever_the_template_of_the_pod_is_called(server, kubeflow, template):
    run = tell(WORKFLOW, nodes("SUCCEEDED"), "SUCCEEDED")
    told = followed(server, kubeflow, [Scene(run, {pod(WORKFLOW, TRAIN, template): f"{EPOCHS[0]}\n"})])
    assert "epoch" in [event["event"] for event in told]


def test_a_server_that_is_away_while_a_run_is_followed_is_waited_for(kubeflow):
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 3:
            kubeflow.come_back()

    server = Server(kubeflow.host, sleep=sleep)
    kubeflow.script = [scene("RUNNING", "RUNNING", f"{EPOCHS[0]}\n"), scene("SUCCEEDED", "SUCCEEDED")]
    run = server.run("a run", "e", "p", "v", {}, "")
    told = submission.follow(server, run, STEPS, sleep=lambda seconds: kubeflow.go_away())
    assert [event["event"] for event in told][-1] == "run-ended"
    assert len(slept) == 3


def test_a_server_that_stays_away_is_told_and_not_waited_for_without_end(kubeflow, monkeypatch):
    now = [0.0]
    monkeypatch.setattr("fourfold_pipelines.kubeflow.server.time.monotonic", lambda: now[0])

    def sleep(seconds: float) -> None:
        now[0] += seconds

    server = Server(kubeflow.host, sleep=sleep)
    kubeflow.script = [scene("RUNNING", "RUNNING")]
    run = server.run("a run", "e", "p", "v", {}, "")
    kubeflow.wrong(f"{API}/runs/{run}", refused(503, "no upstream"), times=1000)
    with pytest.raises(ClusterUnavailableError, match="no upstream"):
        list(submission.follow(server, run, STEPS, sleep=sleep))
    assert 100 < now[0] < 200


def test_a_token_that_changes_during_a_run_is_read_anew(several_users, token_file):
    server = Server(several_users.host, "alice", token_file)
    several_users.script = [scene("RUNNING", "RUNNING"), scene("SUCCEEDED", "SUCCEEDED", f"{EPOCHS[0]}\n")]
    run = server.run("a run", "e", "p", "v", {}, "")

    def next_token(seconds: float) -> None:
        several_users.users = {"the-next": {"alice"}}
        token_file.write_text("the-next")

    told = list(submission.follow(server, run, STEPS, sleep=next_token))
    assert "epoch" in [event["event"] for event in told]
    assert [r.token for r in several_users.asked("GET", f"{API}/runs/{run}")] == [TOKEN, "the-next"]
