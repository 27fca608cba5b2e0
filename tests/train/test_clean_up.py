"""The last step of a run: it deletes the TFJobs of this run, and of no other, whatever they are."""

import json
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from fourfold.contract import events, exits
from fourfold.contract.again import POD
from fourfold.contract.errors import ClusterError, ClusterUnavailableError
from fourfold.contract.pods import Pods
from fourfold.train import api as api_module, clean_up, tfjob
from fourfold.train.api import Api
from tests.train.conftest import ALWAYS, FORBIDDEN, TRAINING, UNAVAILABLE, UNKNOWN, Lab
from tests.train.fake_cluster import NAMESPACE, status

WORKFLOW = {"apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow", "name": "fourfold-train-x7", "uid": "w"}
RUN = "nightly-7"
STATES = {
    "new": {},
    "running": {"Running": True},
    "succeeded": {"Succeeded": True},
    "failed": {"Running": False, "Failed": True},
}
in_every_state = pytest.mark.parametrize("state", STATES)


@pytest.fixture
def named(monkeypatch) -> None:
    monkeypatch.setenv(events.RUN, RUN)


@pytest.fixture
def in_kubeflow(lab, monkeypatch) -> None:
    """This process is the pod of a step, which the run's Workflow controls."""
    monkeypatch.delenv(events.RUN, raising=False)
    monkeypatch.setenv(POD, "clean-up-pod")
    monkeypatch.setattr(api_module, "in_cluster", lambda: True)
    monkeypatch.setattr(api_module, "own_namespace", lambda: NAMESPACE)
    # Found by the kubeconfig of the fake cluster all the same.
    monkeypatch.setattr(api_module.config, "load_incluster_config", api_module.config.load_kube_config)
    references = [
        {"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "n"}, {**WORKFLOW, "controller": True}
    ]  # fmt: skip
    lab.put("pods", {"metadata": {"name": "clean-up-pod", "ownerReferences": references}, "status": {}})


@pytest.fixture
def make(lab: Lab) -> Callable[..., str]:
    """Makes a job of a run in a state, and gives its name."""

    def make(run: str = RUN, state: str = "running", attempt: int = 1) -> str:
        job = lab.put("tfjobs", tfjob.build(TRAINING, Pods(namespace=NAMESPACE), run, attempt))
        lab.set_job(job["metadata"]["name"], **STATES[state])
        return job["metadata"]["name"]

    return make


def delete(keep_failed: bool = False) -> tuple[list[str], list[float]]:
    """What was deleted, and the pauses."""
    slept: list[float] = []
    return clean_up.delete_jobs(Api(patience=0.5), keep_failed, slept.append), slept


@in_every_state
def test_a_job_of_the_run_is_deleted_whatever_its_state(lab, named, make, state):
    name = make(state=state)
    uid = lab.uid(name)
    assert delete()[0] == [name]
    assert not lab.objects["tfjobs"]
    assert lab.deleted() == [(name, uid)]


@in_every_state
def test_with_keep_failed_what_failed_stays_and_nothing_else(lab, named, make, state):
    name = make(state=state)
    assert delete(keep_failed=True)[0] == ([] if state == "failed" else [name])
    assert list(lab.objects["tfjobs"]) == ([name] if state == "failed" else [])


@pytest.mark.parametrize("other", ["nightly-70", "nightly", "Nightly-7", "", "fourfold", "nightly 7"])
@in_every_state
def test_a_job_of_another_run_stays(lab, named, make, other, state):
    name = make(run=other, state=state)
    assert delete() == ([], [])
    assert list(lab.objects["tfjobs"]) == [name]
    assert lab.deleted() == []


JOBS = st.lists(st.tuples(st.sampled_from([RUN, "other"]), st.sampled_from(sorted(STATES))), max_size=6)


@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(JOBS, st.booleans())
def test_of_any_jobs_those_of_the_run_go_and_no_other(lab, named, make, jobs, keep_failed):
    lab.objects["tfjobs"].clear()
    made = [(make(run, state, attempt), run, state) for attempt, (run, state) in enumerate(jobs, 1)]
    wanted = [n for n, run, state in made if run == RUN and not (keep_failed and state == "failed")]
    assert sorted(delete(keep_failed)[0]) == sorted(wanted)
    assert set(lab.objects["tfjobs"]) == {name for name, _, _ in made} - set(wanted)


def test_the_run_is_that_of_what_controls_the_pod(lab, in_kubeflow, make):
    name, other = make(run=WORKFLOW["name"]), make(run="fourfold-train-x8")
    assert delete()[0] == [name]
    assert list(lab.objects["tfjobs"]) == [other]


def test_a_run_that_was_told_its_name_goes_by_that(lab, in_kubeflow, named, make):
    of_workflow, of_name = make(run=WORKFLOW["name"]), make()
    assert delete()[0] == [of_name]
    assert list(lab.objects["tfjobs"]) == [of_workflow]


def test_the_jobs_of_a_launcher_in_the_same_run_are_found(lab, in_kubeflow, start, monkeypatch):
    """Both sides call the run the same."""
    monkeypatch.delenv(events.RUN)
    running = start()
    job = lab.followed()
    assert delete()[0] == [job]
    with pytest.raises(Exception, match="deleted"):
        running.result(20)


@pytest.mark.parametrize("controller", ["none", "not controlling", "no pod"])
def test_where_the_run_cannot_be_told_nothing_is_deleted(lab, in_kubeflow, make, controller):
    name = make(run="fourfold")
    lab.objects["pods"].clear()
    if controller != "no pod":
        references = [WORKFLOW] if controller == "not controlling" else []
        pod = {"metadata": {"name": "clean-up-pod", "ownerReferences": references}, "status": {}}
        lab.put("pods", pod)
    with pytest.raises(ClusterError, match=rf"cannot tell which run .* {events.RUN} is not set"):
        delete()
    assert list(lab.objects["tfjobs"]) == [name]
    assert lab.asked("list", "tfjobs") == []


def test_outside_a_cluster_only_a_name_tells_the_run(lab, make, monkeypatch):
    monkeypatch.delenv(events.RUN, raising=False)
    make(run="fourfold")
    with pytest.raises(ClusterError, match="cannot tell which run"):
        delete()
    assert lab.deleted() == []


def test_a_job_that_is_made_meanwhile_goes_too(lab, named, make):
    """A launcher that is not yet gone may make one more."""
    first, later = make(), []
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        if not later:
            later.append(make(attempt=2))

    assert clean_up.delete_jobs(Api(), False, sleep) == [first, *later]
    assert not lab.objects["tfjobs"]
    assert slept == [1.0, 1.0]


def test_a_job_that_does_not_go_is_named(lab, named, make):
    name = make()
    lab.refuse("delete", "tfjobs", status(200, "deleted"), ALWAYS)
    with pytest.raises(ClusterError, match=f"TFJobs do not go: {name}"):
        delete()
    assert len(lab.deleted()) == clean_up.TRIES


def test_a_job_that_is_gone_before_it_is_deleted_is_no_error(lab, named, make):
    name = make()
    lab.refuse("delete", "tfjobs", status(404, f'tfjobs "{name}" not found', "NotFound"))
    assert delete()[0] == [name]


@pytest.mark.parametrize("verb", ["list", "delete"])
def test_what_may_not_be_done_is_told_with_what_to_do(lab, named, make, verb):
    make()
    lab.refuse(verb, "tfjobs", FORBIDDEN, ALWAYS)
    with pytest.raises(ClusterError, match=f"cannot {verb} tfjobs .* apply the manifests"):
        delete()


def test_a_cluster_without_an_operator_is_told(lab, named):
    lab.refuse("list", "tfjobs", UNKNOWN, ALWAYS)
    with pytest.raises(ClusterError, match="does not know TFJobs"):
        delete()


def test_an_api_server_that_does_not_answer_is_told_as_that(lab, named, make):
    make()
    lab.refuse("list", "tfjobs", UNAVAILABLE, ALWAYS)
    with pytest.raises(ClusterUnavailableError, match="cannot list tfjobs"):
        delete()


# The step.


def run(pods: str = "{}", keep_failed: bool = False, code: str = "") -> None:
    clean_up.run(pods, keep_failed, code)


def test_it_says_what_it_deleted(lab, in_kubeflow, make, capsys, monkeypatch):
    monkeypatch.setattr(clean_up.time, "sleep", lambda seconds: None)
    names = [make(run=WORKFLOW["name"], attempt=attempt, state="failed") for attempt in (1, 2)]
    run()
    said = capsys.readouterr().out
    assert f"deleted {names[0]}, {names[1]}\n" in said
    assert "clean-up: done" in said


def test_it_says_that_nothing_was_left(lab, in_kubeflow, capsys):
    run(pods=json.dumps({"namespace": NAMESPACE, "memory": "8Gi"}))
    assert "deleted nothing: no TFJob was left" in capsys.readouterr().out


def test_it_keeps_what_failed_where_that_was_asked_for(lab, in_kubeflow, make):
    name = make(run=WORKFLOW["name"], state="failed")
    run(keep_failed=True)
    assert list(lab.objects["tfjobs"]) == [name]


def test_where_the_workers_were_processes_it_asks_no_cluster(lab, capsys):
    run(pods="here")
    assert lab.requests == []
    assert "nothing to clean up: the workers were processes" in capsys.readouterr().out


def test_a_run_that_cannot_be_told_ends_the_step_with_an_error(lab, monkeypatch, capsys):
    monkeypatch.delenv(events.RUN, raising=False)
    with pytest.raises(SystemExit) as caught:
        run()
    assert caught.value.code == exits.FAILED
    assert "clean-up failed: cannot tell which run this is" in capsys.readouterr().out


def test_other_code_than_was_compiled_deletes_nothing(lab, in_kubeflow, make):
    make(run=WORKFLOW["name"])
    with pytest.raises(SystemExit) as caught:
        run(code="0" * 64)
    assert caught.value.code == exits.INVALID_INPUT
    assert lab.deleted() == []
