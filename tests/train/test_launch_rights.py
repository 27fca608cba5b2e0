"""What a launcher does that may not do all that it wants, and with lines that are not what they seem."""

from dataclasses import replace

import pytest

from fourfold.contract import events, exits
from fourfold.contract.errors import ClusterError, WorkerFailedError
from fourfold.train import follow
from tests.train.conftest import ALWAYS, FORBIDDEN, TRAINING


def test_a_job_whose_policy_may_not_be_made_is_not_left_running(lab, start):
    lab.refuse("create", "networkpolicies", FORBIDDEN, ALWAYS)
    running = start(replace(TRAINING, scenario="data_parallel"))
    with pytest.raises(ClusterError, match="cannot create networkpolicies"):
        running.result(20)
    assert len(lab.deleted()) == 1
    assert not lab.objects["tfjobs"]


def test_a_job_that_may_not_be_followed_is_not_left_running(lab, start):
    lab.refuse("list", "pods", FORBIDDEN, ALWAYS)
    with pytest.raises(ClusterError, match="cannot list pods"):
        start().result(20)
    assert len(lab.deleted()) == 1


def test_complaints_that_may_not_be_read_do_not_end_a_run(lab, start, told, monkeypatch):
    monkeypatch.setattr(follow, "NO_PODS_AFTER", 0.2)
    lab.refuse("list", "events", FORBIDDEN, ALWAYS)
    running = start()
    job = lab.followed()
    lab.until(lambda: any("no training operator has taken up" in line for line in told()))
    lab.make_pods(job)
    lab.succeed(job)
    running.result(20)


@pytest.mark.parametrize(
    "line",
    [
        events.MARK + '{"event": "epoch"}',
        events.MARK + '{"event": "said", "message": NaN}',
        events.MARK + '{"event": "said", "kind": "a"}',
        events.MARK + '{"event": "worker-failed"}',
        events.MARK + '{"event": ["said"]}',
    ],
)
def test_a_line_that_only_looks_like_an_event_ends_nothing(lab, start, line):
    running = start()
    job = lab.followed()
    (pod,) = lab.make_pods(job, 1)
    lab.write(pod, line)
    lab.write(pod, "after")
    lab.end_pod(pod, exits.DIVERGED)
    lab.set_job(job, Failed=True)
    with pytest.raises(WorkerFailedError, match=r"\| after"):
        running.result(20)


def test_a_pod_made_again_that_fails_is_told_with_its_own_cause(lab, start):
    running = start()
    job = lab.followed()
    (pod,) = lab.make_pods(job, 1)
    lab.write(pod, events.encode("worker-failed", scenario="solo", message="the first one's cause"))
    lab.end_pod(pod, exits.PEER_LOST)
    lab.remove("pods", pod)
    lab.make_pods(job, 1)
    lab.write(pod, events.encode("worker-failed", scenario="solo", message="the second one's cause"))
    lab.end_pod(pod, exits.DIVERGED)
    lab.set_job(job, Failed=True)
    with pytest.raises(WorkerFailedError, match="the second one's cause"):
        running.result(20)
