"""Requests that an API server refuses, loses or answers late, and names that are taken already."""

import json
import threading
import time

import pytest
from kubernetes.config import kube_config

from fourfold.contract import exits
from fourfold.contract.errors import ClusterError, ClusterUnavailableError, WorkerFailedError
from fourfold.train import api as api_module
from fourfold.train.api import AlreadyExistsError, Api, WatchEndedError
from tests.train.conftest import ALWAYS, FORBIDDEN, GONE, GONE_EVENT, HALF, UNAVAILABLE, UNKNOWN, Lab
from tests.train.fake_cluster import Answer, status

JOB = {"apiVersion": "kubeflow.org/v1", "kind": "TFJob", "metadata": {"name": "a"}}
WEBHOOK = (
    'Internal error occurred: failed calling webhook "validator.tfjob.training-operator.kubeflow.org": '
    'failed to call webhook: Post "https://training-operator.kubeflow.svc:443/validate": '
    "dial tcp 10.96.1.2:443: connect: connection refused"
)


@pytest.fixture
def api(lab: Lab) -> Api:
    return Api(patience=3.0)


def test_without_a_kubeconfig_the_error_says_how_to_give_one(tmp_path, monkeypatch):
    monkeypatch.setattr(kube_config, "KUBE_CONFIG_DEFAULT_LOCATION", str(tmp_path / "none"))
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(ClusterError, match=r"^no cluster to talk to: .*let KUBECONFIG name a kubeconfig$"):
        Api()


def test_the_namespace_is_the_one_of_the_kubeconfig_where_none_is_said(api):
    assert api.namespace == "lab"
    assert Api("other").namespace == "other"


def test_after_a_401_the_credentials_are_read_again(lab, api):
    lab.accepts = {"second"}
    lab.give_token("second")
    created = api.create_job(JOB)
    assert created["metadata"]["uid"]
    assert [request.token for request in lab.asked("create", "tfjobs")] == ["Bearer first", "Bearer second"]


def test_each_request_may_meet_a_401_once_as_tokens_rotate_again_and_again(lab, api):
    for token in ("second", "third", "fourth"):
        lab.accepts = {token}
        lab.give_token(token)
        assert api.list_pods("a")[0] == []


def test_credentials_that_are_never_accepted_end_a_request_at_once(lab, api):
    lab.accepts = set()
    with pytest.raises(ClusterError, match=r"cannot create tfjobs in namespace lab: .*log in again") as error:
        api.create_job(JOB)
    assert not isinstance(error.value, ClusterUnavailableError)
    assert len(lab.asked("create", "tfjobs")) == 2


def test_a_forbidden_request_is_sent_once_and_told_with_all_that_the_server_said(lab, api):
    lab.refuse("create", "tfjobs", FORBIDDEN, ALWAYS)
    with pytest.raises(ClusterError) as error:
        api.create_job(JOB)
    said = str(error.value)
    assert said.startswith(f"cannot create tfjobs in namespace lab: {FORBIDDEN[1]['message']}")
    assert "apply the manifests" in said
    assert "service account fourfold" in said
    assert not isinstance(error.value, ClusterUnavailableError)
    assert len(lab.asked("create", "tfjobs")) == 1


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(
            status(404, "the server could not find the requested resource", "NotFound"), id="status"
        ),
        # For a group or a kind that was never defined; the words above are mostly kubectl's own.
        pytest.param(UNKNOWN, id="text"),
    ],
)
@pytest.mark.parametrize("verb", ["get", "create", "list", "watch"])
def test_a_cluster_that_knows_no_tfjobs_is_told_to_need_the_operator(lab, api, verb, answer: Answer):
    lab.refuse(verb, "tfjobs", answer, ALWAYS)
    ask = {
        "get": lambda: api.job("a"),
        "create": lambda: api.create_job(JOB),
        "list": lambda: api.list_jobs("a"),
        "watch": lambda: next(api.watch_jobs("a", "1000")),
    }
    with pytest.raises(ClusterError, match="install the Kubeflow training operator v1"):
        ask[verb]()
    assert len(lab.asked(verb, "tfjobs")) == 1


def test_a_job_that_is_not_there_is_none(api):
    assert api.job("a") is None


def test_a_webhook_that_does_not_answer_is_told_at_once(lab, api):
    lab.refuse("create", "tfjobs", status(500, WEBHOOK, "InternalError"), ALWAYS)
    with pytest.raises(ClusterError, match="connection refused; does the training operator run") as error:
        api.create_job(JOB)
    assert WEBHOOK in str(error.value)
    assert len(lab.asked("create", "tfjobs")) == 1


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(UNAVAILABLE, id="503"),
        pytest.param(status(500, "etcdserver: leader changed", "InternalError"), id="500"),
        pytest.param(status(429, "too many requests", "TooManyRequests"), id="429"),
        pytest.param((502, "<html>Bad Gateway</html>"), id="502 of a proxy"),
    ],
)
def test_what_may_go_away_is_tried_again(lab, api, answer):
    lab.refuse("create", "tfjobs", answer, 2)
    assert api.create_job(JOB)["metadata"]["name"] == "a"
    lab.refuse("list", "pods", answer, 2)
    assert api.list_pods("a")[0] == []
    assert len(lab.asked("create", "tfjobs")) == len(lab.asked("list", "pods")) == 3


@pytest.mark.parametrize("answer", [UNAVAILABLE, (503, "<html>no server</html>")])
def test_a_server_that_stays_unavailable_is_told_when_patience_ends(lab, answer):
    lab.refuse("get", "tfjobs", answer, ALWAYS)
    with pytest.raises(ClusterUnavailableError, match="cannot get tfjobs in namespace lab: "):
        Api(patience=0.5).job("a")
    assert 2 <= len(lab.asked("get", "tfjobs")) <= 4


def test_a_server_that_is_gone_for_good_is_told_by_its_address_when_patience_ends(lab):
    api = Api(patience=0.5)
    lab.stop()
    began = time.monotonic()
    with pytest.raises(ClusterUnavailableError, match=r"cannot list pods .* http://127\.0\.0\.1:\d+ did not"):
        api.list_pods("a")
    assert time.monotonic() - began < 10


def test_a_create_whose_answer_was_lost_says_that_the_job_is_there(lab, api):
    lab.lose("create", "tfjobs")
    with pytest.raises(AlreadyExistsError, match='tfjobs "a" already exists'):
        api.create_job(JOB)
    assert list(lab.objects["tfjobs"]) == ["a"]


def test_an_answer_that_breaks_in_the_middle_is_asked_for_again(lab, api):
    lab.put("tfjobs", {"metadata": {"name": "a"}})
    lab.lose("get", "tfjobs")
    assert api.job("a")["metadata"]["name"] == "a"
    lab.lose("list", "pods")
    assert api.list_pods("a")[0] == []


def test_only_the_job_of_this_uid_is_deleted(lab, api):
    uid = lab.put("tfjobs", {"metadata": {"name": "a"}})["metadata"]["uid"]
    api.delete_job("a", "another uid")
    assert list(lab.objects["tfjobs"]) == ["a"]
    api.delete_job("a", uid)
    assert not lab.objects["tfjobs"]
    api.delete_job("a", uid)


def test_a_delete_whose_answer_was_lost_is_done(lab, api):
    uid = lab.put("tfjobs", {"metadata": {"name": "a"}})["metadata"]["uid"]
    lab.lose("delete", "tfjobs")
    api.delete_job("a", uid)
    assert not lab.objects["tfjobs"]


def test_a_policy_that_is_there_is_no_error(lab, api):
    policy = {"kind": "NetworkPolicy", "metadata": {"name": "a"}}
    api.create_policy(policy)
    api.create_policy(policy)
    assert len(lab.asked("create", "networkpolicies")) == 2


def test_complaints_are_the_warnings_about_one_job_the_last_first(lab, api):
    for number, (kind, name) in enumerate(
        [("Warning", "a"), ("Normal", "a"), ("Warning", "b"), ("Warning", "a")]
    ):
        time_of = f"2026-01-01T00:00:0{number}Z"
        event = {"reason": "No", "message": str(number), "type": kind, "lastTimestamp": time_of}
        lab.put("events", {"metadata": {"name": str(number)}, "involvedObject": {"uid": name}, **event})
    assert api.complaints("a") == ["No: 3", "No: 0"]


# Watches.


def watched(api: Api, lab: Lab, version: str = "0") -> tuple[list[str], threading.Thread]:
    """The names that a watch of jobs tells, and at last how it ended; and the thread that watches."""
    found: list[str] = []

    def watch() -> None:
        try:
            for change, job in api.watch_jobs("a", version):
                found.append(f"{change} {job['metadata']['name']}")
        except ClusterError as error:
            found.append(type(error).__name__)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    return found, thread


def test_a_watch_tells_the_changes_of_the_one_job_since_a_version(lab, api):
    lab.put("tfjobs", {"metadata": {"name": "a"}})
    _, version = api.list_jobs("a")
    found, thread = watched(api, lab, version)
    lab.put("tfjobs", {"metadata": {"name": "b"}})
    lab.put("tfjobs", {"metadata": {"name": "a"}})
    lab.remove("tfjobs", "a")
    lab.until(lambda: len(found) == 2)
    lab.break_watches("tfjobs", clean=True)
    thread.join(10)
    assert found == ["MODIFIED a", "DELETED a", "WatchEndedError"]


BARE = json.dumps({"type": "ERROR", "object": {"kind": "Status", "message": "no"}}).encode() + b"\n"


@pytest.mark.parametrize(
    ("last", "clean"),
    [
        pytest.param(b"", True, id="its time was up"),
        pytest.param(b"", False, id="cut between lines"),
        pytest.param(HALF, False, id="cut in a line"),
        pytest.param(HALF, True, id="ended in a line"),
        pytest.param(HALF + b"\n", True, id="a line that is no JSON"),
        pytest.param(GONE_EVENT, True, id="410 as an event"),
        # Here the client raises KeyError.
        pytest.param(BARE, True, id="an error event without a reason"),
    ],
)
def test_a_watch_that_ends_says_so_however_it_ends(lab, api, last, clean):
    lab.put("tfjobs", {"metadata": {"name": "a"}})
    found, thread = watched(api, lab)
    lab.until(lambda: found)
    lab.break_watches("tfjobs", last, clean)
    thread.join(10)
    assert found == ["ADDED a", "WatchEndedError"]


@pytest.mark.parametrize("answer", [GONE, UNAVAILABLE, status(500, "etcd", "InternalError")])
def test_a_watch_that_is_refused_for_now_has_ended(lab, api, answer):
    lab.refuse("watch", "tfjobs", answer)
    with pytest.raises(WatchEndedError, match=f"the watch of tfjobs ended: {answer[0]}"):
        next(api.watch_jobs("a", "0"))


def test_a_watch_that_meets_a_401_has_ended_and_the_next_has_new_credentials(lab, api):
    lab.put("tfjobs", {"metadata": {"name": "a"}})
    lab.accepts = {"second"}
    lab.give_token("second")
    with pytest.raises(WatchEndedError):
        next(api.watch_jobs("a", "0"))
    change, _ = next(api.watch_jobs("a", "0"))
    assert change == "ADDED"


def test_a_watch_that_is_forbidden_is_told_with_what_to_do(lab, api):
    lab.refuse("watch", "pods", status(403, 'pods is forbidden: User "x" cannot watch', "Forbidden"))
    with pytest.raises(
        ClusterError, match="cannot watch pods in namespace lab: .*apply the manifests"
    ) as error:
        next(api.watch_pods("a", "0"))
    assert not isinstance(error.value, WatchEndedError)


# Who owns what a launcher makes.


def test_the_owner_is_what_controls_the_pod_that_this_process_runs_in(lab, api, monkeypatch):
    monkeypatch.setattr(api_module, "in_cluster", lambda: True)
    monkeypatch.setattr(api_module, "own_namespace", lambda: "lab")
    monkeypatch.setenv("KFP_POD_NAME", "me")
    workflow = {"apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow", "name": "w", "uid": "1"}
    other = {"apiVersion": "v1", "kind": "ConfigMap", "name": "c", "uid": "2"}
    assert api.controller() is None, "the pod is not there"
    references = [other, {**workflow, "controller": True, "blockOwnerDeletion": True}]
    lab.put("pods", {"metadata": {"name": "me", "ownerReferences": references}, "status": {}})
    assert api.controller() == workflow
    assert api.owns_here()
    api.namespace = "other"
    assert api.controller() == workflow, "it still says what the run is called"
    assert not api.owns_here()


# A job that is created, or found.


def test_a_job_that_may_not_be_created_is_asked_for_once(lab, start):
    lab.refuse("create", "tfjobs", FORBIDDEN, ALWAYS)
    with pytest.raises(ClusterError, match="User .*serviceaccount:lab:default.* apply the manifests"):
        start().result(20)
    assert len(lab.asked("create", "tfjobs")) == 1


def test_where_the_operator_is_missing_nothing_is_cleaned_away(lab, start):
    cleaned: list[int] = []
    for verb in ("get", "create"):
        lab.refuse(verb, "tfjobs", UNKNOWN, ALWAYS)
    with pytest.raises(ClusterError, match="install the Kubeflow training operator"):
        start(clean=lambda: cleaned.append(1)).result(20)
    assert not cleaned


@pytest.mark.parametrize("conditions", [{}, {"Running": True}, {"Running": False, "Succeeded": True}])
def test_a_job_of_the_same_spec_that_lives_or_succeeded_is_adopted(lab, start, told, conditions):
    cleaned: list[int] = []
    name = lab.make_job(**conditions)
    running = start(clean=lambda: cleaned.append(1))
    if "Succeeded" not in conditions:
        lab.followed()
        lab.succeed(name)
    running.result(20)
    assert told() == [f"solo: goes on with TFJob {name} in namespace lab"]
    assert not cleaned
    assert lab.asked("create", "tfjobs") == []


@pytest.mark.parametrize(
    ("spec", "deleting", "conditions"),
    [
        pytest.param("another", False, {"Succeeded": True}, id="another spec"),
        pytest.param("", False, {"Failed": True}, id="failed"),
        pytest.param("", True, {"Running": True}, id="being deleted"),
        pytest.param("", True, {"Succeeded": True}, id="succeeded, being deleted"),
    ],
)
@pytest.mark.parametrize("late", [False, True], ids=["found", "met by a 409"])
def test_any_other_job_is_left_alone_and_the_next_name_is_used(lab, start, spec, deleting, conditions, late):
    cleaned: list[int] = []
    creating = lab.hold("create", "tfjobs") if late else None
    running = start(clean=lambda: cleaned.append(1)) if late else None
    if creating:
        lab.until(lambda: lab.asked("create", "tfjobs"))
    name = lab.make_job(spec, **conditions)
    if deleting:
        lab.objects["tfjobs"][name]["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    if creating:
        creating.set()
    running = running or start(clean=lambda: cleaned.append(1))
    lab.until(lambda: f"{name}-2" in lab.objects["tfjobs"])
    lab.followed()
    pods = lab.make_pods(f"{name}-2")
    lab.end_pod(pods[0], exits.DIVERGED)
    lab.end_pod(pods[1], exits.PEER_LOST)
    lab.set_job(f"{name}-2", Failed=True)
    with pytest.raises(
        WorkerFailedError, match=rf"TFJob {name}-2 in .* \(pod {pods[0]}\) ended: exit code 3"
    ):
        running.result(20)
    assert cleaned
    assert lab.deleted() == []
    assert name in lab.objects["tfjobs"]


def test_a_create_whose_answer_was_lost_makes_one_job(lab, start, told):
    cleaned: list[int] = []
    lab.lose("create", "tfjobs")
    running = start(clean=lambda: cleaned.append(1))
    job = lab.followed()
    lab.succeed(job)
    running.result(20)
    assert list(lab.objects["tfjobs"]) == [job]
    assert told() == [f"solo: goes on with TFJob {job} in namespace lab"]
    assert len(cleaned) == 1
