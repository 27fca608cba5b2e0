"""Logs of pods over connections that break: each line once, in order, and none is lost."""

import contextlib
import re
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, strategies as st

from fourfold.contract import events, exits
from fourfold.contract.errors import WorkerFailedError
from fourfold.train import follow, logs
from fourfold.train.api import Api
from tests.train.conftest import ALWAYS, UNAVAILABLE, Lab
from tests.train.fake_cluster import stamp, status

WAITING = status(
    400, 'container "tensorflow" in pod "p" is waiting to start: ContainerCreating', "BadRequest"
)


@pytest.fixture(autouse=True)
def short_pause(monkeypatch):
    monkeypatch.setattr(logs, "PAUSE", 0.02)


@pytest.fixture
def pod(lab: Lab) -> str:
    lab.put("pods", {"metadata": {"name": "p"}, "status": {"phase": "Running"}})
    return "p"


class Reader:
    """Reads a pod's log in a thread, as the launcher does."""

    def __init__(self, lab: Lab, pod: str, goes_on: Callable[[], bool] | None = None):
        self.lines: list[str] = []
        self.stopped = threading.Event()
        self._goes_on = goes_on or (lambda: lab.objects["pods"][pod]["status"]["phase"] == "Running")
        self._what = (Api(patience=1.0), pod)
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        for line in logs.read(*self._what, self._goes_on, self.stopped):
            self.lines.append(line)

    def result(self) -> list[str]:
        """All lines, when the log has ended."""
        self._thread.join(15)
        assert not self._thread.is_alive(), self.lines
        return self.lines


def end(lab: Lab, pod: str) -> None:
    lab.put("pods", {"metadata": {"name": pod}, "status": {"phase": "Failed"}})


def second(number: int) -> str:
    """A whole second from now on: ahead of the clock, so that no request asks for less than that."""
    return (datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=60 + number)).strftime("%FT%T")


def test_lines_come_as_they_are_written_until_the_pod_ends(lab, pod):
    reader = Reader(lab, pod)
    lab.write(pod, "one")
    lab.until(lambda: reader.lines == ["one"])
    lab.write(pod, "")
    lab.write(pod, "  three \x1b[0m é  ")
    end(lab, pod)
    assert reader.result() == ["one", "", "  three \x1b[0m é  "]


@pytest.mark.parametrize("breaks", [[1], [70], [75, 1, 90], [63, 63, 63, 64, 65, 66]])
def test_a_connection_that_breaks_is_taken_up_again_with_each_line_once(lab, pod, breaks):
    lab.log_breaks[pod] = list(breaks)
    written = [f"line {number} of a log that is long enough" for number in range(8)]
    for number, text in enumerate(written):
        lab.write(pod, text, f"{second(number)}.123456789Z")
    reader = Reader(lab, pod)
    lab.until(lambda: len(lab.asked("get", "pods/log")) == len(breaks) + 1)
    end(lab, pod)
    assert reader.result() == written


def test_times_whose_zeros_were_trimmed_stand_in_their_order(lab, pod):
    base = second(0)
    times = ["", ".1", ".12", ".12000001", ".123", ".123000001", ".2", ".21"]
    for time_of in times:
        lab.write(pod, time_of, f"{base}{time_of}Z")
    lab.log_breaks[pod] = [80, 120, 150, 200]
    reader = Reader(lab, pod)
    lab.until(lambda: len(lab.asked("get", "pods/log")) == 5)
    end(lab, pod)
    assert reader.result() == times


@given(st.integers(0, 10**9 - 1), st.integers(0, 10**9 - 1))
def test_the_order_of_times_is_that_of_their_nanoseconds(a: int, b: int):
    def written(nanoseconds: int) -> str:
        return f"2026-01-01T00:00:01.{nanoseconds:09d}".rstrip("0").rstrip(".") + "Z"

    assert (logs.order_of(written(a)) < logs.order_of(written(b))) == (a < b)


# Within one connection nothing comes twice.
@pytest.mark.parametrize("step", [0, -5], ids=["one and the same time", "a clock that was put back"])
def test_lines_of_one_connection_are_all_told_whatever_their_times(lab, pod, step):
    for number in range(3):
        lab.write(pod, f"{number}", f"{second(step * number)}.5Z")
    reader = Reader(lab, pod)
    end(lab, pod)
    assert reader.result() == ["0", "1", "2"]


# As of a job that is adopted: its lines are heard long after they were written.
def test_a_log_that_is_read_late_is_taken_up_where_it_broke(lab, pod):
    written = [f"line {number}" for number in range(6)]
    for number, text in enumerate(written):
        lab.write(pod, text, stamp(number - 3600))
    lab.log_breaks[pod] = [100]
    reader = Reader(lab, pod)
    lab.until(lambda: len(lab.asked("get", "pods/log")) == 2)
    end(lab, pod)
    assert reader.result() == written


def test_a_connection_that_breaks_after_the_pod_has_ended_is_taken_up_again(lab, pod):
    written = [f"line {number}" for number in range(6)]
    for number, text in enumerate(written):
        lab.write(pod, text, f"{second(number)}.5Z")
    end(lab, pod)
    lab.log_breaks[pod] = [100]
    assert Reader(lab, pod).result() == written


def test_no_more_is_asked_for_again_than_what_may_have_been_missed(lab, pod):
    lab.write(pod, "one")
    reader = Reader(lab, pod)
    lab.until(lambda: reader.lines == ["one"])
    lab.log_breaks[pod] = [1]
    end(lab, pod)
    reader.result()
    first, *later = [request.query.get("sinceSeconds") for request in lab.asked("get", "pods/log")]
    assert first is None
    assert all(since is not None and 1 <= int(since) <= 20 for since in later)


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(WAITING, id="not started"),
        pytest.param(
            status(500, "dial tcp 10.0.0.2:10250: connection refused", "InternalError"), id="kubelet"
        ),
        pytest.param(status(404, 'pods "p" not found', "NotFound"), id="not found"),
    ],
)
def test_a_log_that_is_not_to_be_had_for_a_while_is_read_from_its_beginning(lab, pod, answer):
    lab.refuse("get", "pods/log", answer, 3)
    lab.write(pod, "one")
    reader = Reader(lab, pod)
    lab.until(lambda: reader.lines == ["one"])
    end(lab, pod)
    assert reader.result() == ["one"]


def test_a_log_that_is_never_to_be_had_ends_with_its_pod(lab, pod):
    lab.refuse("get", "pods/log", WAITING, ALWAYS)
    reader = Reader(lab, pod)
    lab.until(lambda: len(lab.asked("get", "pods/log")) > 2)
    end(lab, pod)
    assert reader.result() == []


def test_a_reader_that_is_stopped_asks_no_more(lab, pod):
    reader = Reader(lab, pod, goes_on=lambda: True)
    lab.until(lambda: lab.asked("get", "pods/log"))
    reader.stopped.set()
    lab.log_breaks[pod] = [1]
    end(lab, pod)
    assert reader.result() == []
    assert len(lab.asked("get", "pods/log")) == 1


def test_bytes_that_are_no_text_do_not_end_a_log(lab, pod):
    lab.write(pod, "caf\udce9")
    lab.write(pod, "after")
    reader = Reader(lab, pod)
    end(lab, pod)
    assert reader.result() == ["caf\ufffd", "after"]


# What a launcher makes of the lines.


def test_a_failure_is_told_with_its_last_lines_and_exit_code(lab, start, capsys):
    running = start()
    job = lab.followed()
    pods = lab.make_pods(job)
    for number in range(30):
        lab.write(pods[1], f"line {number}")
    lab.end_pod(pods[1], 1)
    lab.write(pods[0], "a peer was lost")
    lab.end_pod(pods[0], exits.PEER_LOST)
    lab.set_job(job, Running=False, Failed=True)
    with pytest.raises(WorkerFailedError) as error:
        running.result(20)
    tail = "".join(f"\n  | line {number}" for number in range(30 - follow.TAIL, 30))
    assert str(error.value) == (
        f"solo: TFJob {job} in namespace lab failed (TFJobFailed: it is Failed): worker 1 (pod {pods[1]}) "
        f"ended: exit code 1: an error of the program; its last lines:{tail}\n"
        f"Its pods are kept for 86,400 s: kubectl -n lab logs {pods[1]}"
    )
    assert error.value.exit_code == exits.FAILED
    said = capsys.readouterr().out
    assert [said.count(f"[solo worker 1] line {number}\n") for number in range(30)] == [1] * 30
    assert said.count("[solo worker 0] a peer was lost\n") == 1


def test_where_no_log_is_to_be_had_the_last_lines_are_those_in_the_pods_status(lab, start):
    lab.refuse("get", "pods/log", WAITING, ALWAYS)
    running = start()
    job = lab.followed()
    pods = lab.make_pods(job)
    lab.end_pod(pods[0], exits.DIVERGED, message="step 7\nstep 8\n")
    lab.set_job(job, Failed=True)
    with pytest.raises(
        WorkerFailedError, match=r"code 3: diverged; its last lines:\n  \| step 7\n  \| step 8\n"
    ):
        running.result(20)


def test_the_log_of_a_pod_that_is_deleted_when_its_job_fails_is_told(lab, start, capsys):
    running = start()
    job = lab.followed()
    pods = lab.make_pods(job)
    lab.write(pods[0], "the last words")
    lab.until(lambda: "the last words" in capsys.readouterr().out)
    lab.end_pod(pods[0], 1)
    for pod in pods:
        lab.remove("pods", pod)
    lab.set_job(job, Failed=True)
    with pytest.raises(WorkerFailedError, match=r"exit code 1: .*\n  \| the last words$"):
        running.result(20)


# Product bug: a log is asked for by the pod's name. Where the reader of the first pod does not know yet that
# there is a second one of its name, it reads that one's log, and files it under the first one's uid: where
# the second one fails, follow.py finds no lines and no cause of it.
def test_what_a_pod_writes_that_was_made_again_under_its_name_is_told_once(lab, start, told, capsys):
    running = start()
    job = lab.followed()
    (pod,) = lab.make_pods(job, 1)
    lab.until(lambda: lab.asked("get", "pods/log"))
    listing = lab.hold("list", "pods")
    lab.break_watches("pods")
    lab.until(lambda: len(lab.asked("list", "pods")) == 2)
    lab.lines[pod] = []
    lab.remove("pods", pod)
    lab.make_pods(job, 1)
    with contextlib.suppress(AssertionError):
        lab.until(lambda: len(lab.asked("get", "pods/log")) == 2, 0.5)
    listing.set()
    lab.until(lambda: len(lab.asked("watch", "pods")) == 2)
    lab.write(pod, events.encode("said", message="half way", scenario="solo"))
    lab.write(pod, "hello")
    lab.end_pod(pod, 1)
    lab.set_job(job, Failed=True)
    with pytest.raises(WorkerFailedError, match=r"exit code 1: .*its last lines:\n  \| hello\n"):
        running.result(20)
    assert told().count("half way") == 1
    assert capsys.readouterr().out.count("[solo worker 0] hello") == 1


def test_a_failure_is_told_by_its_pod_also_while_pods_cannot_be_watched(lab, start):
    running = start()
    job = lab.followed()
    pods = lab.make_pods(job)
    lab.until(lambda: lab.asked("get", "pods/log"))
    lab.refuse("watch", "pods", UNAVAILABLE, ALWAYS)
    lab.break_watches("pods")
    lab.until(lambda: len(lab.asked("watch", "pods")) == 4)
    lab.write(pods[0], "the last words")
    for pod in pods:
        lab.end_pod(pod, 1)
    lab.set_job(job, Failed=True)
    with pytest.raises(
        WorkerFailedError, match=rf"\(pod {pods[0]}\) ended: exit code 1: (?s:.*)the last words"
    ):
        running.result(20)


def test_an_event_in_a_log_becomes_an_event_of_the_run(lab, start, told, capsys):
    running = start()
    job = lab.followed()
    pods = lab.make_pods(job)
    lab.write(pods[0], events.encode("said", message="half way", scenario="solo"))
    lab.write(pods[0], events.MARK + "{this is no event")
    lab.succeed(job)
    running.result(20)
    assert told()[1:] == ["half way"]
    said = capsys.readouterr().out
    assert said.count("half way") == 1
    assert f"[solo worker 0] {events.MARK}{{this is no event\n" in said


def test_a_cause_that_a_worker_names_is_the_cause_in_the_error(lab, start, told):
    running = start()
    job = lab.followed()
    pods = lab.make_pods(job)
    lab.write(pods[0], "noise")
    lab.write(pods[0], events.encode("worker-failed", message="the loss is no number", code=exits.DIVERGED))
    lab.end_pod(pods[0], exits.DIVERGED)
    lab.set_job(job, Failed=True)
    with pytest.raises(WorkerFailedError, match="exit code 3: diverged; the loss is no number\n") as error:
        running.result(20)
    assert error.value.exit_code == exits.DIVERGED
    assert not re.search("noise", str(error.value))
    assert "worker-failed" not in told()
