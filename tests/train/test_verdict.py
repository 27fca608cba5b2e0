"""What the status of a job and of its pods means, on statuses as API servers write them."""

from datetime import UTC, datetime, timedelta
from itertools import permutations
from typing import Any

import pytest
from hypothesis import given, strategies as st

from fourfold.contract import exits
from fourfold.train import verdict

TYPES = ["Created", "Running", "Restarting", "Suspended", "Paused", "Succeeded", "Failed"]


def job(*conditions: str, **words: str) -> dict[str, Any]:
    """A job with conditions such as ``Running=False``; without ``=`` they are True."""
    found = []
    for text in conditions:
        kind, _, status = text.partition("=")
        found.append({"type": kind, "status": status or "True", **words})
    return {"status": {"conditions": found}}


def pod(name: str = "p-worker-0", phase: str = "Failed", **status: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, "status": {"phase": phase, **status}}


def contained(state: dict[str, Any], name: str = "tensorflow", **more: Any) -> list[dict[str, Any]]:
    return [{"name": name, "image": "a.registry/worker:1", "state": state, **more}]


def ended(code: int, at: str = "10:00:00", name: str = "p-worker-0", **more: Any) -> dict[str, Any]:
    """A pod whose program ended with a code."""
    state = {"exitCode": code, "reason": "Error", "finishedAt": f"2026-11-30T{at}Z", **more}
    return pod(name, containerStatuses=contained({"terminated": state}))


def waiting(reason: str, message: str = "", phase: str = "Pending") -> dict[str, Any]:
    state = {"reason": reason, **({"message": message} if message else {})}
    return pod(phase=phase, containerStatuses=contained({"waiting": state}))


@pytest.mark.parametrize(
    ("conditions", "expected"),
    [
        ((), None),
        (("Created",), None),
        (("Created", "Running"), None),
        (("Created", "Running=False", "Succeeded"), "succeeded"),
        (("Created", "Running", "Succeeded"), "succeeded"),
        (("Succeeded", "Running=False", "Created"), "succeeded"),
        (("Created", "Failed", "Running"), "failed"),
        (("Created", "Running=False", "Failed"), "failed"),
        (("Created", "Running", "Restarting"), None),
        (("Created", "Running=False", "Restarting"), None),
        (("Failed=False", "Restarting", "Running"), None),
        (("Created", "Suspended"), None),
        (("Evaporated",), None),
        (("Failed=False",), None),
        (("Failed=Unknown", "Succeeded=Unknown"), None),
        (("Succeeded=False", "Running"), None),
        (("Failed", "Succeeded"), "failed"),
        (("Succeeded", "Failed"), "failed"),
        (("Failed=False", "Succeeded"), "succeeded"),
    ],
)
def test_only_true_terminal_conditions_end_a_job_and_failed_wins(conditions, expected):
    assert verdict.outcome(job(*conditions)) == expected


@pytest.mark.parametrize("status", [{}, {"status": None}, {"status": {}}, {"status": {"conditions": None}}])
def test_a_job_without_conditions_goes_on_and_nobody_has_taken_it_up(status):
    assert verdict.outcome(status) is None
    assert not verdict.is_taken_up(status)


@given(st.lists(st.tuples(st.sampled_from(TYPES), st.sampled_from(["True", "False", "Unknown"])), max_size=5))
def test_the_order_of_conditions_does_not_matter(pairs):
    said = [f"{kind}={status}" for kind, status in pairs]
    assert len({verdict.outcome(job(*order)) for order in permutations(said)}) == 1
    assert verdict.is_taken_up(job(*said)) == bool(said)


def test_a_job_failed_for_the_reason_of_its_failed_condition():
    found = job(
        "Failed", reason="TFJobFailed", message="TFJob x has failed because 1 Worker replica failed.\n"
    )
    found["status"]["conditions"].append({"type": "Running", "status": "True", "reason": "TFJobRunning"})
    assert verdict.reason(found) == "TFJobFailed: TFJob x has failed because 1 Worker replica failed."


@pytest.mark.parametrize(
    ("words", "said"),
    [({"reason": "DeadlineExceeded"}, "DeadlineExceeded"), ({"message": "too long"}, "too long")]
    + [({}, "the operator gave no reason"), ({"reason": "", "message": ""}, "the operator gave no reason")],
)
def test_a_reason_is_what_there_is_of_it(words, said):
    assert verdict.reason(job("Failed", **words)) == said


@pytest.mark.parametrize("conditions", [(), ("Failed=False",), ("Running",)])
def test_a_job_that_has_not_failed_has_no_reason(conditions):
    assert verdict.reason(job(*conditions, reason="Stale")) == "the operator gave no reason"


GPU = "0/3 nodes are available: 3 Insufficient nvidia.com/gpu."


def test_a_pod_without_a_node_says_what_the_scheduler_says():
    scheduled = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": GPU}
    found = verdict.blocker(
        pod(phase="Pending", conditions=[{"type": "Ready", "status": "False"}, scheduled])
    )
    assert found == ("Unschedulable", f"finds no node (Unschedulable): {GPU}")


@pytest.mark.parametrize(
    ("reason", "sentence"),
    [
        ("ErrImagePull", "cannot start (image a.registry/worker:1): ErrImagePull: not found"),
        ("ImagePullBackOff", "cannot start (image a.registry/worker:1): ImagePullBackOff: not found"),
        ("ErrImageNeverPull", "cannot start (image a.registry/worker:1): ErrImageNeverPull: not found"),
        ("InvalidImageName", "cannot start (image a.registry/worker:1): InvalidImageName: not found"),
        ("CreateContainerConfigError", "cannot start: CreateContainerConfigError: not found"),
        ("RunContainerError", "cannot start: RunContainerError: not found"),
    ],
)
def test_a_container_that_does_not_start_says_why(reason, sentence):
    assert verdict.blocker(waiting(reason, "not found")) == (reason, sentence)
    assert verdict.blocker(waiting(reason)) == (reason, sentence.replace("not found", "no message"))


def test_an_init_container_that_somebody_injected_is_named_too():
    found = waiting("PodInitializing")
    state = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}}
    found["status"]["initContainerStatuses"] = contained(state, name="istio-init")
    assert verdict.blocker(found) == ("CrashLoopBackOff", "cannot start: CrashLoopBackOff: back-off")


@pytest.mark.parametrize(
    "found",
    [
        {"metadata": {"name": "new"}},
        pod(phase="Pending"),
        pod(phase="Pending", conditions=None, containerStatuses=None),
        pod(phase="Pending", conditions=[{"type": "PodScheduled", "status": "True"}]),
        waiting("ContainerCreating"),
        waiting("PodInitializing"),
        pod(phase="Running", containerStatuses=contained({"running": {"startedAt": "2026-11-30T10:00:00Z"}})),
        pod(phase="Pending", containerStatuses=contained({"waiting": {}})),
        ended(1),
    ],
)
def test_nothing_is_in_the_way_of_a_pod_that_is_on_its_way(found):
    assert verdict.blocker(found) is None


def test_what_does_not_go_away_is_told_from_what_may():
    assert not verdict.HOPELESS & verdict.DOUBTFUL
    assert not {"Unschedulable", "ContainerCreating", "PodInitializing"} & (
        verdict.HOPELESS | verdict.DOUBTFUL
    )


@pytest.mark.parametrize(
    ("found", "started"),
    [
        (pod(phase="Pending"), False),
        ({"metadata": {"name": "new"}}, False),
        (waiting("ContainerCreating"), False),
        (waiting("ErrImagePull"), False),
        (pod(phase="Pending", containerStatuses=contained({"running": {}})), True),
        (pod(phase="Running", containerStatuses=contained({"running": {}})), True),
        (ended(0), True),
        (pod(phase="Succeeded"), True),
    ],
)
def test_a_pod_has_started_when_its_program_runs_or_has_run(found, started):
    assert verdict.has_started(found) == started


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (ended(2), "exit code 2: bad input"),
        (ended(0, reason="Completed"), "exit code 0: done"),
        (ended(137, reason="OOMKilled"), "exit code 137: killed by SIGKILL (OOMKilled)"),
        (ended(137), "exit code 137: killed by SIGKILL"),
        (ended(139), "exit code 139: killed by SIGSEGV"),
        (ended(143), "exit code 143: terminated"),
        (ended(150), "exit code 150: a peer was lost"),
        (ended(7), "exit code 7"),
        (ended(128, reason="ContainerCannotRun"), "exit code 128 (ContainerCannotRun)"),
        (
            pod(reason="Evicted", message="The node was low on resource: memory."),
            "Evicted: The node was low on resource: memory.",
        ),
        (pod(reason="NodeLost"), "NodeLost"),
        (pod(), "phase Failed"),
        (pod(phase="Unknown"), "phase Unknown"),
    ],
)
def test_how_a_pod_ended(found, said):
    assert verdict.how_it_ended(found) == said


def test_a_code_beyond_all_signals_is_not_taken_for_one():
    assert verdict.how_it_ended(ended(255)) == "exit code 255"


def test_an_evicted_pod_whose_container_has_a_status_says_why():
    found = ended(137)
    found["status"].update(reason="Evicted", message="The node was low on resource: memory.")
    assert "Evicted: The node was low on resource: memory." in verdict.how_it_ended(found)


def test_another_containers_end_is_not_the_programs():
    other = contained({"terminated": {"exitCode": 9}}, name="istio-proxy")
    own = contained({"terminated": {"exitCode": 3}})
    assert verdict.exit_code(pod(containerStatuses=other)) is None
    assert verdict.exit_code(pod(containerStatuses=other + own)) == 3


@pytest.mark.parametrize("found", [pod(), waiting("ErrImagePull"), pod(containerStatuses=contained({}))])
def test_a_program_that_has_not_ended_has_no_code(found):
    assert verdict.exit_code(found) is None


@pytest.mark.parametrize("lost_by", [128, 134, 137, 139, 140, 143, 150, 151, 152, 255])
def test_the_cause_is_the_pod_that_failed_by_itself_not_one_that_lost_a_peer(lost_by):
    lost = ended(lost_by, at="10:00:00", name="lost")
    own = ended(exits.DIVERGED, at="10:00:05", name="own")
    others = [pod("evicted", reason="Evicted"), pod("done", phase="Succeeded"), pod("busy", phase="Running")]
    for order in permutations([lost, own, *others]):
        assert verdict.cause(order) is own


@given(st.integers(1, 127))
def test_a_code_that_is_not_worth_a_restart_is_a_cause(code):
    found = ended(code)
    assert verdict.cause([ended(150), found]) is found


def test_of_several_causes_it_is_the_first_that_ended():
    pods = [ended(1, at=f"10:00:0{second}", name=str(second)) for second in (1, 2, 3)]
    unknown = ended(1, name="at no known time", finishedAt=None)
    for order in permutations([*pods, unknown]):
        assert verdict.cause(order) is pods[0]
    assert verdict.cause([unknown]) is unknown


@given(st.lists(st.integers(128, 255), max_size=3))
def test_where_pods_were_only_lost_there_is_no_cause(codes):
    evicted, busy = pod(reason="Evicted"), pod(phase="Running", containerStatuses=contained({"running": {}}))
    assert verdict.cause(iter([evicted, busy, ended(0), *map(ended, codes)])) is None


@pytest.mark.parametrize(
    ("phase", "deleted", "present", "lost"),
    [
        ("Failed", False, True, True),
        ("Failed", False, False, True),
        ("Failed", True, True, True),
        ("Running", False, True, False),
        ("Running", True, True, True),
        ("Running", False, False, True),
        ("Pending", False, True, False),
        ("Pending", True, True, True),
        ("Pending", False, False, True),
        ("Succeeded", False, True, False),
        ("Succeeded", True, True, False),
        ("Succeeded", True, False, False),
    ],
)
def test_a_pod_is_lost_when_it_failed_or_is_deleted_before_its_end(phase, deleted, present, lost):
    found = pod(phase=phase)
    if deleted:
        found["metadata"]["deletionTimestamp"] = "2026-11-30T10:00:00Z"
    assert verdict.is_lost(found, present) == lost


def test_a_loss_is_told_with_worker_pod_and_how():
    assert verdict.loss(ended(150)) == "p-worker-0 (pod p-worker-0) was lost: exit code 150: a peer was lost"
    indexed = pod(phase="Running")
    indexed["metadata"]["labels"] = {"training.kubeflow.org/replica-index": "0"}
    assert verdict.loss(indexed) == "worker 0 (pod p-worker-0) was lost: somebody deleted it"


def test_the_last_lines_are_those_of_the_status():
    assert verdict.last_lines(ended(1, message="Traceback\n  boom\n")) == ["Traceback", "  boom"]
    assert verdict.last_lines(ended(1)) == []
    assert verdict.last_lines(pod()) == []


CREATED = {"metadata": {"creationTimestamp": "2026-11-30T10:00:00Z"}}
START = datetime(2026, 11, 30, 10, tzinfo=UTC)


@given(st.floats(0, 1e6))
def test_seconds_since_a_job_was_created(seconds):
    found = verdict.seconds(CREATED, START + timedelta(seconds=seconds))
    assert found == pytest.approx(seconds, abs=1e-5)


def test_a_job_is_never_younger_than_new_whatever_this_clock_says():
    assert verdict.seconds(CREATED, START - timedelta(seconds=30)) == 0.0
    assert verdict.seconds({"metadata": {}}, START) == 0.0
    assert verdict.seconds({}, START) == 0.0


def test_a_worker_is_called_by_its_index_else_by_its_pod():
    indexed = {"metadata": {"name": "p", "labels": {"training.kubeflow.org/replica-index": "0"}}}
    assert verdict.worker(indexed) == "worker 0"
    assert verdict.worker(pod("p-worker-1")) == "p-worker-1"
