"""Stages on processes of their own: the same training, restarted whole, and nobody is left behind."""

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from fourfold.contract import events, exits, keys
from fourfold.contract.records import WorkerReport
from fourfold.contract.strict import from_json, to_json
from fourfold.store.objects import open_store
from fourfold.train.step import train
from fourfold.worker import remote
from tests.worker.test_resume import ROWS, SMALL, hear, workers_here, yielded


@pytest.fixture
def heard(monkeypatch):
    return hear(monkeypatch)


@pytest.fixture
def on_devices(once):
    """The same training, its stages on devices of one process: by how many there are."""
    return lambda stages: once("pipeline", ROWS, workers=2, stages=stages, **SMALL)


@pytest.mark.usefixtures("workers")
def test_a_process_a_stage_yields_what_one_process_yields(on_devices, tmp_path, heard):
    stages = 2
    training = replace(on_devices(stages).training, placement="pods", output=str(tmp_path / "output"))
    trained = train(training)
    assert yielded(trained) == yielded(on_devices(stages))
    (report,) = trained.reports
    assert trained.processes == stages
    # What is not seen of the other processes must not look as if their stages had not worked.
    assert report.busy == []
    pids = [report.process, *report.stage_processes]
    assert len(set(pids)) == stages
    assert pids == [str(pid) for _, pid in sorted(heard.pids().items())]
    assert not workers_here()


@pytest.mark.usefixtures("workers")
def test_where_a_process_that_holds_a_stage_is_killed_all_go_on_from_the_checkpoint(
    on_devices, tmp_path, heard
):
    unbroken = on_devices(3)
    training = replace(unbroken.training, placement="pods", output=str(tmp_path / "output"))
    heard.all.clear()
    heard.kill_once([1], "epoch", epoch=1)
    trained = train(training)
    assert yielded(trained) == yielded(unbroken)
    (report,) = trained.reports
    assert report.resumed
    assert 1 <= report.resumed[0] < training.epochs
    before, after = [[int(event["process"]) for event in heard.of("started")][at : at + 3] for at in (0, 3)]
    assert not set(before) & set(after)
    assert {int(report.process), *map(int, report.stage_processes)} == set(after)
    (told,) = [event["message"] for event in heard.of("said") if "Starting again" in event["message"]]
    assert "worker 1 of 3" in told
    assert "killed by SIGKILL" in told
    assert not workers_here()


class Pod:
    """One process of a training, started as in a pod of its own: nobody else looks after it."""

    def __init__(self, training, addresses, rank):
        task = {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": rank}}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "fourfold.worker", "--training", to_json(training).decode()],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, "TF_CONFIG": json.dumps(task), "HOSTNAME": f"pod-{rank}"},
            start_new_session=True,
        )

    def wait_for(self, kind):
        """Reads what it prints up to an event."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if (event := events.decode(line)) and event["event"] == kind:
                return
        raise AssertionError(f"it ended before the event {kind!r}")

    def kill(self):
        """Kills all of its processes."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self.end()

    def end(self, seconds=60):
        """Waits for its end; gives the exit code and what was not read yet of its words."""
        try:
            said, _ = self._process.communicate(timeout=seconds)
        finally:
            if self._process.returncode is None:
                self.kill()
        until = time.monotonic() + 5
        while living_in(self._process.pid) and time.monotonic() < until:
            time.sleep(0.05)
        assert not living_in(self._process.pid)
        return self._process.returncode, said


def living_in(group):
    """The processes of a group that have not ended."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, _, of_group = path.read_text().rsplit(")", 1)[1].split()[:3]
            if int(of_group) == group and state != "Z":
                found.append(path.parent.name)
    return found


def free_addresses(count):
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    found = [f"127.0.0.1:{sock.getsockname()[1]}" for sock in sockets]
    for sock in sockets:
        sock.close()
    return found


@pytest.mark.parametrize("killed", [0, 1])
def test_in_pods_the_one_that_is_left_leaves_by_itself_and_goes_on_when_both_are_started_again(
    on_devices, tmp_path, killed
):
    unbroken = on_devices(2)
    training = replace(unbroken.training, placement="pods", output=str(tmp_path / "output"))
    addresses = free_addresses(2)
    pods = [Pod(training, addresses, rank) for rank in (0, 1)]
    pods[0].wait_for("epoch")
    pods[killed].kill()
    began = time.monotonic()
    code, said = pods[1 - killed].end()
    assert time.monotonic() - began < remote.LOST_SECONDS + 7
    assert code == exits.PEER_LOST, said
    if killed == 1:
        return
    assert f"worker 0 at {addresses[0]} is not there any more" in said
    pods = [Pod(training, addresses, rank) for rank in (1, 0)]
    for pod in reversed(pods):
        code, said = pod.end()
        assert code == exits.OK, said
    report = from_json(WorkerReport, open_store(training.output).read(keys.worker(0)))
    assert report.digests == unbroken.reports[0].digests
    assert 1 <= report.resumed[0] <= training.epochs
    assert (report.process, report.stage_processes) == ("pod-0", ["pod-1"])


def test_a_holder_whose_chief_never_comes_ends_also_where_an_earlier_one_left_its_report(
    make_training, tmp_path
):
    addresses, pods = free_addresses(2), []
    for name in ("empty", "with a report"):
        output = open_store(str(tmp_path / name))
        if name == "with a report":
            output.write(keys.worker(0), to_json(WorkerReport(0, "pod-0", 0, 400, [], [])))
        training = make_training("pipeline", placement="pods", output=output.uri, start_seconds=2.0)
        pods.append(Pod(training, [addresses[0], *free_addresses(1)], 1))
    for pod in pods:
        pod.wait_for("started")
    began = time.monotonic()
    for pod in pods:
        code, said = pod.end()
        assert code == exits.PEER_LOST, said
        assert re.search(f"worker 0 at {addresses[0]} is not there", said)
    assert time.monotonic() - began < 10
