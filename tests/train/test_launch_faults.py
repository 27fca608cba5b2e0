"""A launcher under faults: it goes on where it can, ends where it must, says why, and leaves no job."""

import contextlib
import signal
import subprocess
import sys
from dataclasses import replace

import pytest

from fourfold.contract import exits
from fourfold.contract.errors import ClusterError, ClusterUnavailableError, WorkerFailedError
from fourfold.contract.pods import Pods
from fourfold.train import follow, launch, tfjob
from tests.train.conftest import (
    ALWAYS,
    GONE,
    GONE_EVENT,
    HALF,
    TRAINING,
    UNAVAILABLE,
    Lab,
)
from tests.train.fake_cluster import status

QUOTA = 'Error creating: pods "run-worker-0" is forbidden: exceeded quota: small, requested: pods=1'
UNSCHEDULABLE = "0/3 nodes are available: 3 Insufficient nvidia.com/gpu."


# Watches that break.


@pytest.mark.parametrize(
    ("refused", "last", "clean"),
    [
        pytest.param(True, b"", True, id="410 as a status"),
        pytest.param(False, GONE_EVENT, True, id="410 as an event"),
        pytest.param(False, b"", False, id="cut"),
        pytest.param(False, HALF, False, id="cut in a line"),
    ],
)
def test_after_a_watch_broke_the_end_is_seen_and_nothing_is_told_twice(
    lab, start, told, capsys, refused, last, clean
):
    running = start()
    job = lab.job()
    pods = lab.make_pods(job)
    lab.write(pods[0], "hello")
    lab.end_pod(pods[1], 137)
    lab.followed()
    lab.until(lambda: len(told()) == 2)
    for what in ("tfjobs", "pods"):
        if refused:
            lab.refuse("watch", what, GONE)
        lab.break_watches(what, last, clean)
    lab.followed(2 + refused)
    lab.succeed(job)
    running.result(20)
    created, lost = told()
    assert created == f"solo: created TFJob {job} in namespace lab"
    assert lost.startswith(f"solo: worker 1 (pod {pods[1]}) was lost: exit code 137: killed by SIGKILL")
    assert capsys.readouterr().out.count("hello") == 1


def test_a_pod_that_was_deleted_while_the_watch_was_broken_is_told_by_name(lab, start, told):
    running = start()
    job = lab.job()
    pods = lab.make_pods(job)
    lab.followed()
    listing = lab.hold("list", "pods")
    lab.break_watches("pods")
    lab.until(lambda: len(lab.asked("list", "pods")) == 2)
    lab.remove("pods", pods[1])
    listing.set()
    lab.until(lambda: len(told()) == 2)
    lab.succeed(job)
    running.result(20)
    assert [line.partition(": somebody deleted it")[0] for line in told()[1:]] == [
        f"solo: worker 1 (pod {pods[1]}) was lost"
    ]


def test_a_server_that_is_unavailable_for_a_while_does_not_end_a_launcher(lab, start):
    running = start(patience=5.0)
    job = lab.followed()
    for what in ("tfjobs", "pods"):
        lab.refuse("list", what, UNAVAILABLE, 2)
        lab.break_watches(what)
    lab.followed(2)
    lab.succeed(job)
    running.result(20)
    assert lab.deleted() == []


def test_a_server_that_is_gone_for_good_ends_a_launcher_so_that_it_is_tried_again(lab, start):
    running = start(patience=0.5)
    lab.followed()
    lab.stop()
    with pytest.raises(ClusterUnavailableError, match="the API server at http://127.0.0.1") as error:
        running.result(20)
    assert exits.of(error.value) == exits.CLUSTER_FAILED >= exits.FIRST_RETRYABLE


def test_a_token_that_rotates_does_not_end_a_launcher(lab, start):
    running = start()
    job = lab.followed()
    lab.accepts = {"second"}
    lab.give_token("second")
    lab.break_watches("tfjobs")
    lab.break_watches("pods")
    lab.until(lambda: [r for r in lab.asked("watch", "tfjobs") if r.token == "Bearer second"])
    lab.succeed(job)
    running.result(20)


def test_credentials_that_are_no_longer_accepted_end_a_launcher(lab, start):
    running = start()
    lab.followed()
    lab.accepts = set()
    before = len(lab.requests)
    lab.break_watches("tfjobs")
    with pytest.raises(ClusterError, match="does not accept our credentials; log in again"):
        running.result(20)
    assert len(lab.requests) - before <= 4


@pytest.mark.parametrize("what", ["tfjobs", "pods"])
@pytest.mark.parametrize("verb", ["list", "watch"])
def test_a_launcher_that_may_not_look_ends(lab, start, verb, what):
    lab.refuse(verb, what, status(403, f'{what} is forbidden: User "me" cannot {verb}', "Forbidden"), ALWAYS)
    with pytest.raises(ClusterError, match=f'cannot {verb} {what} in namespace lab: {what} .*User "me"'):
        start().result(20)
    assert len(lab.asked(verb, what)) == 1


# The end.


def test_workers_that_talk_to_each_other_get_a_policy_that_goes_with_their_job(lab, start):
    running = start(replace(TRAINING, scenario="data_parallel"))
    job = lab.followed()
    (policy,) = lab.objects["networkpolicies"].values()
    assert [o["uid"] for o in policy["metadata"]["ownerReferences"]] == [lab.uid(job)]
    lab.succeed(job)
    running.result(20)


@pytest.mark.parametrize("again", [False, True], ids=["deleted", "made again by somebody"])
@pytest.mark.parametrize("seen", [False, True], ids=["while the watch was broken", "before its eyes"])
def test_a_job_that_is_deleted_while_it_is_waited_for_is_told(lab, start, seen, again):
    running = start()
    job = lab.followed()
    listing = None if seen else lab.hold("list", "tfjobs")
    if listing:
        lab.break_watches("tfjobs")
        lab.until(lambda: len(lab.asked("list", "tfjobs")) == 2)
    lab.remove("tfjobs", job)
    if again:
        lab.make_job(Succeeded=True)
    if listing:
        listing.set()
    with pytest.raises(WorkerFailedError, match=f"TFJob {job} .* was deleted while it was waited for"):
        running.result(20)


def test_a_job_that_has_succeeded_has_so_beside_conditions_that_are_history(lab, start, told):
    running = start()
    job = lab.followed()
    lab.set_job(job, Created=True, Running=True, Succeeded=False, Failed=False, Suspended=True)
    lab.end_pod(lab.make_pods(job, 1)[0], 137)
    lab.until(lambda: len(told()) == 2)
    lab.set_job(job, Succeeded=True, Running=True, Restarting=True)
    running.result(20)


def test_a_job_that_has_failed_has_so_also_where_it_runs_later(lab, start):
    running = start()
    job = lab.followed()
    lab.end_pod(lab.make_pods(job, 1)[0], exits.DIVERGED)
    lab.set_job(job, Failed=True, Running=True, Succeeded=True)
    with pytest.raises(WorkerFailedError, match=r"failed \(TFJobFailed: it is Failed\): worker 0 .*diverged"):
        running.result(20)


def test_a_job_that_restarts_for_ever_ends_at_its_deadline(lab, start, told, monkeypatch):
    monkeypatch.setattr(follow, "GRACE", 0.1)
    running = start(deadline_seconds=2)
    job = lab.job()
    uid = lab.uid(job)
    pods = lab.make_pods(job)
    lab.end_pod(pods[0], 137, reason="OOMKilled")
    lab.set_job(job, Running=False, Restarting=True)
    with pytest.raises(WorkerFailedError, match=f"TFJob {job} .* did not end within 2 s; it was deleted"):
        running.result(20)
    assert lab.deleted() == [(job, uid)]
    assert [line for line in told() if "OOMKilled" in line]


def test_a_job_whose_pods_are_lost_is_made_again_but_not_for_ever(lab, start):
    cleaned: list[int] = []
    running = start(clean=lambda: cleaned.append(1))
    for count in range(1, launch.TRIES + 1):
        lab.until(lambda count=count: len(lab.objects["tfjobs"]) == count)
        job = lab.job()
        lab.end_pod(lab.make_pods(job, 1)[0], 137, reason="OOMKilled")
        lab.set_job(job, Failed=True)
    with pytest.raises(WorkerFailedError, match=rf"TFJob {job} .*code 137: killed by SIGKILL \(OOMKilled\)"):
        running.result(20)
    assert len(lab.objects["tfjobs"]) == len(cleaned) == launch.TRIES


# Pods have the label with a job's name, whichever job of that name they belong to.
def test_pods_that_an_earlier_job_of_the_same_name_left_are_not_this_jobs(lab, start, told):
    name = lab.make_job(Running=True)
    for pod in lab.make_pods(name):
        lab.end_pod(pod, 1)
    old = list(lab.objects["pods"].values())
    lab.remove("tfjobs", name)
    for pod in old:
        pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        lab.put("pods", pod)
    running = start()
    lab.followed()
    for pod in old:
        lab.remove("pods", pod["metadata"]["name"])
    lab.end_pod(lab.make_pods(name, 1)[0], exits.DIVERGED)
    lab.set_job(name, Failed=True)
    with pytest.raises(WorkerFailedError, match="ended: exit code 3: diverged"):
        running.result(20)
    assert len(told()) == 1


# A policy that was left goes when its own job's rest is collected.
def test_a_policy_that_an_earlier_job_of_the_same_name_left_does_not_stand_for_this_jobs(lab, start):
    training = replace(TRAINING, scenario="data_parallel")
    old = tfjob.build(training, Pods(namespace="lab"), "run")
    lab.put("networkpolicies", tfjob.policy({**old, "metadata": {**old["metadata"], "uid": "old"}}))
    running = start(training)
    job = lab.followed()
    lab.succeed(job)
    running.result(20)
    owners = [p["metadata"]["ownerReferences"][0]["uid"] for p in lab.objects["networkpolicies"].values()]
    assert lab.uid(job) in owners


# Pods that do not start.


@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setattr(follow, "NO_PODS_AFTER", 0.2)
    monkeypatch.setattr(follow, "DOUBTFUL_SECONDS", 1.5)


def test_where_no_operator_takes_up_a_job_that_is_told(lab, start, told, impatient):
    running = start(start_seconds=1)
    job = lab.job()
    uid = lab.uid(job)
    why = f"no training operator has taken up TFJob {job}: does it run, and does it watch namespace lab? "
    with pytest.raises(WorkerFailedError, match="did not start within 1 s: no training operator") as error:
        running.result(20)
    assert [line for line in told() if line.startswith(f"solo: {why}")] == told()[1:]
    assert len(told()) == 2
    assert error.value.exit_code == exits.PEER_MISSING
    assert lab.deleted() == [(job, uid)]


def test_where_pods_may_not_be_made_the_operators_complaint_is_told(lab, start, told, impatient):
    running = start()
    job = lab.job()
    event = {"type": "Warning", "reason": "FailedCreatePod", "message": QUOTA}
    lab.put("events", {"metadata": {"name": "e"}, "involvedObject": {"uid": lab.uid(job)}, **event})
    lab.set_job(job, Created=True)
    complaint = f"solo: the pods of TFJob {job} are not made: FailedCreatePod: {QUOTA}"
    lab.until(lambda: complaint in told())
    lab.make_pods(job)
    lab.succeed(job)
    running.result(20)
    assert told()[1:] == [complaint]


def test_pods_that_find_no_node_are_told_once_each_and_given_up_when_it_takes_too_long(lab, start, told):
    running = start(start_seconds=1)
    job = lab.job()
    scheduled = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": UNSCHEDULABLE,
    }
    pods = lab.make_pods(job, phase="Pending")
    for pod in pods:
        lab.set_pod(pod, "Pending", conditions=[scheduled])
    with pytest.raises(
        WorkerFailedError, match=f"did not start within 1 s: .*{UNSCHEDULABLE}; it was deleted"
    ):
        running.result(20)
    assert sorted(told()[1:]) == [
        f"solo: worker {n} (pod {pod}) finds no node (Unschedulable): {UNSCHEDULABLE}"
        for n, pod in enumerate(pods)
    ]
    assert len(lab.deleted()) == 1


def test_an_image_that_is_not_found_is_told_and_given_up_before_the_time_to_start_ends(
    lab, start, told, impatient
):
    running = start()
    job = lab.job()
    pod, _ = lab.make_pods(job, phase="Pending")
    uid = lab.uid(job)
    for reason in ("ErrImagePull", "ImagePullBackOff") * 3:
        lab.set_pod(pod, "Pending", {"waiting": {"reason": reason, "message": "not found"}})
        lab.until(lambda reason=reason: [line for line in told() if f": {reason}: not found" in line])
    with pytest.raises(WorkerFailedError, match=r"cannot start: .*\(image the/image:1\)") as error:
        running.result(20)
    assert error.value.exit_code == exits.INVALID_INPUT
    assert len(told()) == len({*told()}) == 3
    assert lab.deleted() == [(job, uid)]


# A launcher that is told to end.

PROGRAM = """
import sys
from fourfold.contract.pods import Pods
from fourfold.contract.records import Training
from fourfold.train import launch

launch.SECONDS_TO_DELETE = 0.5
launch.run(Training("solo", 2, "s3://b/s", "f", "s", "s3://b/o"), lambda: None, Pods())
"""


@pytest.fixture
def process(lab):
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as found:
        yield found
        found.kill()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_launcher_that_is_told_to_end_deletes_its_job_once(lab, process, number):
    job = lab.followed()
    uid = lab.uid(job)
    process.send_signal(number)
    said, _ = process.communicate(timeout=20)
    assert process.returncode == exits.TERMINATED, said
    assert said.endswith(f"told to end: TFJob {job} is deleted\n")
    assert lab.deleted() == [(job, uid)]


def tell_to_end(lab: Lab, process: subprocess.Popen[str]) -> None:
    """Sends SIGTERM and leaves the process the time in which one that does wrong would act."""
    process.send_signal(signal.SIGTERM)
    with contextlib.suppress(AssertionError):
        lab.until(lambda: lab.asked("delete", "tfjobs"), 0.3)


def test_a_job_that_is_being_created_when_its_launcher_is_told_to_end_is_deleted(lab, process):
    creating = lab.hold("create", "tfjobs", done=True)
    job = lab.job()
    uid = lab.uid(job)
    tell_to_end(lab, process)
    creating.set()
    said, _ = process.communicate(timeout=20)
    assert process.returncode == exits.TERMINATED, said
    assert lab.deleted() == [(job, uid)]
    assert lab.asked("watch", "tfjobs") == []


def test_a_launcher_that_cannot_delete_its_job_ends_all_the_same_and_says_so(lab, process):
    lab.followed()
    lab.refuse("delete", "tfjobs", UNAVAILABLE, ALWAYS)
    process.send_signal(signal.SIGTERM)
    said, _ = process.communicate(timeout=20)
    assert process.returncode == exits.TERMINATED, said
    assert "told to end, but the TFJob is left behind until its deadline: cannot delete tfjobs" in said


# The first job is not what must be deleted now, and the create must not be left in the middle.
def test_a_second_job_that_is_being_created_when_its_launcher_is_told_to_end_is_deleted(lab, process):
    job = lab.followed()
    creating = lab.hold("create", "tfjobs", done=True)
    lab.end_pod(lab.make_pods(job, 1)[0], exits.PEER_LOST)
    lab.set_job(job, Failed=True)
    lab.until(lambda: len(lab.objects["tfjobs"]) == 2)
    uid = lab.uid(f"{job}-2")
    tell_to_end(lab, process)
    creating.set()
    said, _ = process.communicate(timeout=20)
    assert process.returncode == exits.TERMINATED, said
    assert (f"{job}-2", uid) in lab.deleted()
