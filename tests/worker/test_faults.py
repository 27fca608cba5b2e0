"""What goes wrong in a training is told by name, and no process is left behind."""

import functools
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from fourfold.cache import dataset
from fourfold.contract import events, exits, keys
from fourfold.contract.errors import InvalidInputError, MissingObjectError, WorkerFailedError
from fourfold.contract.strict import to_json
from fourfold.store.objects import open_store
from fourfold.train import processes
from fourfold.train.step import train
from fourfold_pipelines.local import worker_server

LONG = {"epochs": 500, "rows": 2000}
"""A training that goes on until it is ended."""


@pytest.fixture
def told(tmp_path, monkeypatch):
    """The events of trainings in this test, as a function that waits for one."""
    path = tmp_path / "events.jsonl"
    path.touch()
    monkeypatch.setenv(events.FILE, str(path))

    def wait_for(kind, count=1, seconds=90):
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            found = [json.loads(line) for line in path.read_text().splitlines()]
            found = [event for event in found if event["event"] == kind]
            if len(found) >= count:
                return found
            time.sleep(0.05)
        raise AssertionError(f"no {count} events {kind!r} within {seconds} s")

    return wait_for


def alive(pid):
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return False


def all_gone(pids, seconds=15.0):
    until = time.monotonic() + seconds
    while any(alive(pid) for pid in pids) and time.monotonic() < until:
        time.sleep(0.05)
    return not any(alive(pid) for pid in pids)


def in_thread(training, tries=1):
    caught = []

    def run():
        try:
            train(training, functools.partial(processes.run, tries=tries))
        except Exception as error:
            caught.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    return thread, caught


@pytest.mark.usefixtures("workers")
def test_workers_are_processes_that_talk_and_a_killed_one_ends_the_step_by_name(make_training, told):
    thread, caught = in_thread(make_training("data_parallel", **LONG))
    started = sorted(told("started", 2), key=lambda event: event["worker"])
    pids = [int(event["process"]) for event in started]
    told("epoch", 1)
    assert len(set(pids)) == 2
    assert all(alive(pid) for pid in pids)
    assert connections_between(*pids)
    os.kill(pids[1], signal.SIGKILL)
    thread.join(30)
    assert not thread.is_alive()
    assert isinstance(caught[0], WorkerFailedError)
    assert re.search(r"worker 1 of 2 \(process \d+\) ended: killed by SIGKILL", str(caught[0]))
    assert caught[0].exit_code >= exits.FIRST_RETRYABLE
    assert all_gone(pids)


def test_workers_whose_server_is_killed_end_and_the_step_says_so(make_training, told, monkeypatch):
    with worker_server() as path:
        monkeypatch.setenv(processes.SERVER, path)
        thread, caught = in_thread(make_training("sequential", **LONG))
        worker = int(told("started")[0]["process"])
        server = parent_of(parent_of(worker))
        os.kill(server, signal.SIGKILL)
        thread.join(30)
    assert not thread.is_alive()
    assert "the workers' parent was lost: somebody killed it" in str(caught[0])
    assert all_gone([worker])


def parent_of(pid):
    return int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])


def connections_between(a, b):
    """TCP connections with one end in each process, as pairs of ports."""
    ends = {}
    for pid in (a, b):
        links = [link_of(fd) for fd in Path(f"/proc/{pid}/fd").iterdir()]
        inodes = {match[1] for link in links if (match := re.match(r"socket:\[(\d+)\]", link))}
        tables = (Path(f"/proc/{pid}/net/{kind}").read_text().splitlines()[1:] for kind in ("tcp", "tcp6"))
        rows = [line.split() for table in tables for line in table]
        established = [row for row in rows if row[3] == "01" and row[9] in inodes]
        ends[pid] = {(row[1].rsplit(":")[-1], row[2].rsplit(":")[-1]) for row in established}
    return {(local, remote) for local, remote in ends[a] if (remote, local) in ends[b]}


def link_of(fd):
    try:
        return str(fd.readlink())
    except FileNotFoundError:  # closed since the folder was listed
        return ""


def pod(training, tf_config, **environment):
    """The worker program as it runs in a pod."""
    command = [sys.executable, "-m", "fourfold.worker", "--training", to_json(training).decode()]
    variables = {k: v for k, v in os.environ.items() if k != "TF_CONFIG"} | environment
    if tf_config is not None:
        variables["TF_CONFIG"] = tf_config
    return subprocess.run(command, capture_output=True, text=True, timeout=120, env=variables)


def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    for sock in sockets:
        sock.bind(("127.0.0.1", 0))
    ports = [sock.getsockname()[1] for sock in sockets]
    for sock in sockets:
        sock.close()
    return ports


def test_a_worker_whose_peer_does_not_come_ends_within_its_limit_and_names_it(make_training):
    mine, other = free_ports(2)
    tf_config = {
        "cluster": {"worker": [f"127.0.0.1:{mine}", f"127.0.0.1:{other}"]},
        "task": {"type": "worker", "index": 0},
    }
    done = pod(make_training("data_parallel", start_seconds=8.0), json.dumps(tf_config))
    assert done.returncode == exits.PEER_MISSING >= exits.FIRST_RETRYABLE
    assert f"worker 1 at 127.0.0.1:{other}" in done.stdout


def test_a_peer_with_an_unknown_name_is_named(make_training):
    tf_config = {
        "cluster": {"worker": ["127.0.0.1:1", "no-such-host.invalid:2"]},
        "task": {"type": "worker", "index": 0},
    }
    done = pod(make_training("data_parallel", start_seconds=1.0), json.dumps(tf_config))
    assert done.returncode == exits.PEER_MISSING
    assert "no-such-host.invalid" in done.stdout


def test_a_port_in_use_is_told(make_training):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port, (other,) = taken.getsockname()[1], free_ports(1)
        tf_config = {
            "cluster": {"worker": [f"127.0.0.1:{port}", f"127.0.0.1:{other}"]},
            "task": {"type": "worker", "index": 0},
        }
        done = pod(make_training("data_parallel", start_seconds=20.0), json.dumps(tf_config))
    assert done.returncode == exits.PORT_IN_USE >= exits.FIRST_RETRYABLE, done.stdout + done.stderr
    assert str(port) in done.stdout


def test_a_single_worker_saves_the_same_model_however_it_is_told_that_it_is_alone(make_training, monkeypatch):
    training = make_training("sequential", rows=100, workers=1)
    (port,) = free_ports(1)
    alone = json.dumps({"cluster": {"worker": [f"127.0.0.1:{port}"]}, "task": {"type": "worker", "index": 0}})
    digests = set()
    for tf_config in (None, "{}", alone):
        done = pod(training, tf_config, HOSTNAME="the-pod-0")
        assert done.returncode == exits.OK, done.stdout + done.stderr
        report = json.loads(open_store(training.output).read(keys.worker(0)))
        assert report["process"] == "the-pod-0"
        digests.add(report["digests"][-1])
        # Started once more it has nothing to do; its work is to be done anew here.
        again = pod(training, tf_config, HOSTNAME="the-pod-0")
        assert (again.returncode, "all was done before" in again.stdout) == (exits.OK, True)
        open_store(training.output).delete(keys.worker(0))
    monkeypatch.setenv("HOSTNAME", "a-laptop")
    monkeypatch.delenv(processes.SERVER, raising=False)
    trained = train(training)
    assert digests == {trained.reports[0].digests[-1]}
    assert trained.reports[0].process.isdigit()


@pytest.mark.usefixtures("workers")
def test_a_loss_that_is_not_finite_ends_the_training_by_its_step(make_training):
    with pytest.raises(
        WorkerFailedError, match=r"diverged.*step \d+ of 4 in epoch 1.*learning-rate"
    ) as caught:
        train(make_training("sequential", optimizer="sgd", learning_rate=1e9))
    assert caught.value.exit_code == exits.DIVERGED < exits.FIRST_RETRYABLE


@pytest.mark.usefixtures("workers")
def test_a_damaged_cached_batch_is_named_and_never_trained_on(make_training, tmp_path):
    training = make_training("data_parallel")
    source, target = open_store(training.store), open_store(str(tmp_path / "copy"))
    for key in source.list(f"datasets/{training.fingerprint}"):
        target.write(key, source.read(key))
    key = keys.batch(training.fingerprint, "train", 3)
    data = bytearray(target.read(key))
    data[-1] ^= 1
    target.write(key, bytes(data))
    with pytest.raises(WorkerFailedError, match=re.escape(key)) as caught:
        train(replace(training, store=target.uri))
    assert caught.value.exit_code == exits.INVALID_INPUT
    with pytest.raises(MissingObjectError):
        open_store(training.output).read(keys.TRAINED)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"scenario": "sequental"}, "did you mean 'sequential'"),
        ({"epochs": 0}, "epochs must be at least 1"),
        ({"batch": 0}, "batch must be at least 1"),
        ({"learning_rate": float("nan")}, "learning-rate"),
        ({"learning_rate": -1.0}, "learning-rate"),
        ({"optimizer": "adamm"}, "use one of adam, sgd, momentum"),
        ({"seed": -1}, "seed"),
        ({"workers": 3}, "shards"),
    ],
)
def test_what_cannot_be_trained_is_refused_before_a_worker_starts(make_training, wrong, said):
    def launch(training, clean):
        raise AssertionError("a worker was started")

    with pytest.raises(InvalidInputError, match=re.escape(said)):
        train(replace(make_training("data_parallel"), **wrong), launch)


def test_a_missing_data_set_is_told_before_a_worker_starts(make_training):
    with pytest.raises(MissingObjectError, match="datasets/none"):
        train(replace(make_training("sequential"), fingerprint="none"))


def test_what_the_step_knows_of_optimizers_is_what_the_model_knows():
    from fourfold.model import network
    from fourfold.train import step

    assert step.OPTIMIZERS == network.OPTIMIZERS


def test_copies_that_differ_are_refused(make_training):
    training = make_training("data_parallel")

    def launch(asked, clean):
        from fourfold.contract.records import Epoch, WorkerReport

        output = open_store(asked.output)
        for worker in (0, 1):
            report = WorkerReport(worker, "1", 0, 200, [Epoch(1.0, 0.5, 1.0, 400)], [f"digest of {worker}"])
            output.write(keys.worker(worker), to_json(report))

    with pytest.raises(Exception, match="the copies of worker 0 and worker 1 differ after epoch 1"):
        train(training, launch)
    manifest = dataset.read_manifest(open_store(training.store), training.fingerprint)
    assert manifest.rows("train") == 400
