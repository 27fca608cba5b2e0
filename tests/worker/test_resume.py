"""Workers that were killed are started again, go on from a checkpoint, and end as if nothing had been."""

import functools
import os
import shutil
import signal
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from fourfold.contract import events, keys
from fourfold.contract.errors import WorkerFailedError
from fourfold.store.objects import open_store
from fourfold.train import processes
from fourfold.train.step import train

pytestmark = pytest.mark.usefixtures("workers")

ROWS = 400
SMALL = {"epochs": 4, "batch": 8, "micro_batches": 2, "members": 2}
"""Epochs of a tenth of a second or two: what is killed when one is told is killed in the next."""

WAYS = [
    # scenario, what is its own, the processes killed, the model whose first epoch is waited for
    ("sequential", {}, [0], 0),
    ("data_parallel", {}, [0, 1], 0),
    ("hybrid", {}, [1], 0),
    ("federated", {"server_momentum": 0.5, "proximal": 0.1, "local_steps": 20}, [0], 0),
    ("ensemble", {}, [1], 1),
    ("pipeline", {"stages": 3}, [0], 0),
    ("solo", {}, [0], 0),
]


class Heard:
    """The events of a test's trainings, and what is done as soon as one is told."""

    def __init__(self):
        self.all, self.reactions = [], []

    def of(self, kind):
        return [event for event in self.all if event["event"] == kind]

    def pids(self):
        """The process of each rank, of those that were started last."""
        return {event["worker"]: int(event["process"]) for event in self.of("started")}

    def kill_once(self, ranks, kind, **fields):
        """Kills processes as soon as an event is told, the first time."""

        def react(event):
            if event["event"] == kind and fields.items() <= event.items():
                self.reactions.remove(react)
                for rank in ranks:
                    os.kill(self.pids()[rank], signal.SIGKILL)

        self.reactions.append(react)


def hear(monkeypatch):
    """Listens to the events of trainings from now on."""
    heard, say = Heard(), events.say

    def listen(kind, **fields):
        say(kind, **fields)
        event = {"event": kind, **fields}
        heard.all.append(event)
        for reaction in list(heard.reactions):
            reaction(event)

    monkeypatch.setattr(events, "say", listen)
    return heard


@pytest.fixture
def heard(monkeypatch):
    return hear(monkeypatch)


def yielded(trained):
    """What a restart must not change: all but times, processes, memory, and a file that has a time in it."""
    return [
        (
            report.digests,
            [(epoch.loss, epoch.accuracy, epoch.rows) for epoch in report.epochs],
            report.rounds,
            report.probed,
            {key: digest for key, digest in report.objects.items() if key != keys.model(report.model)},
            report.cut,
            report.bytes_per_step,
            (report.distance, report.drift),
        )
        for report in trained.reports
    ]


def went_on(heard):
    """The epochs that workers said they went on after, in the order of their words."""
    said = [event["message"] for event in heard.of("said")]
    return [int(message.rsplit(" ", 1)[1]) for message in said if ": goes on after epoch " in message]


@pytest.mark.parametrize(
    ("scenario", "own", "killed", "model"),
    WAYS,
    ids=[f"{scenario}, {killed}" for scenario, _, killed, _ in WAYS],
)
def test_a_killed_worker_changes_nothing_of_what_is_yielded(
    once, tmp_path, heard, scenario, own, killed, model
):
    unbroken = once(scenario, ROWS, workers=2, **{**SMALL, **own})
    heard.all.clear()
    heard.kill_once(killed, "epoch", model=model, epoch=1)
    training = replace(unbroken.training, output=str(tmp_path / "output"))
    trained = train(training)
    assert yielded(trained) == yielded(unbroken)
    (told,) = [event["message"] for event in heard.of("said") if "Starting again" in event["message"]]
    assert f"worker {killed[0]}" in told
    assert "ended: killed by SIGKILL" in told
    assert "Starting again (2 more tries after this)." in told
    mine = [report.resumed for report in trained.reports if report.model == model]
    assert mine[0]
    assert all(resumed == mine[0] and 1 <= resumed[0] < training.epochs for resumed in mine)
    chiefs = {report.model: report.resumed for report in reversed(trained.reports)}
    assert sorted(went_on(heard)) == sorted(epoch for resumed in chiefs.values() for epoch in resumed)
    assert all(not report.resumed for report in unbroken.reports)
    for each in (trained, unbroken):
        assert open_store(each.training.output).list(keys.CHECKPOINTS) == []


def test_one_worker_of_a_process_had_ended_when_the_next_was_killed(once, tmp_path, heard):
    # The process is both members, one after the other: the first is not trained again.
    unbroken = once("ensemble", ROWS, workers=2, **SMALL)
    heard.all.clear()
    heard.kill_once([0], "epoch", model=1, epoch=2)
    trained = train(replace(unbroken.training, member_workers=1, output=str(tmp_path / "output")))
    assert yielded(trained) == yielded(unbroken)
    assert trained.reports[0].resumed == [4]
    assert [event["epoch"] for event in heard.of("epoch") if event["model"] == 0] == [1, 2, 3, 4]


def test_workers_that_are_lost_twice_go_on_twice(once, tmp_path, heard):
    unbroken = once("data_parallel", ROWS, workers=2, **SMALL)
    heard.all.clear()
    heard.kill_once([1], "epoch", epoch=1)
    heard.kill_once([0], "epoch", epoch=3)
    trained = train(replace(unbroken.training, output=str(tmp_path / "output")))
    assert yielded(trained) == yielded(unbroken)
    (first, second) = trained.reports[0].resumed
    assert 1 <= first < 3 <= second
    assert went_on(heard) == [first, second]
    said = [event["message"] for event in heard.of("said") if "Starting again" in event["message"]]
    assert ["worker 1 of 2" in said[0], "worker 0 of 2" in said[1]] == [True, True]
    assert said[1].endswith("Starting again (1 more try after this).")


def test_a_step_that_is_started_again_goes_on_from_the_last_whole_checkpoint(once, tmp_path, heard, capsys):
    unbroken = once("data_parallel", ROWS, workers=2, **SMALL)
    broken = replace(unbroken.training, output=str(tmp_path / "broken"))
    heard.kill_once([0, 1], "epoch", epoch=3)
    with pytest.raises(WorkerFailedError, match="killed by SIGKILL"):
        train(broken, functools.partial(processes.run, tries=1))
    left = open_store(broken.output)
    epochs = sorted({keys.epoch_of(key) for key in left.list(keys.CHECKPOINTS) if key.endswith(keys.SAVED)})
    assert epochs[-1] >= 3
    assert not left.exists(keys.TRAINED)

    def again(damaged, **other):
        training = replace(broken, output=str(tmp_path / f"{damaged}{other}"), **other)
        shutil.copytree(tmp_path / "broken", training.output)
        output = open_store(training.output)
        for epoch in damaged:
            data = bytearray(output.read(keys.shared_state(0, epoch)))
            data[len(data) // 2] ^= 1
            output.write(keys.shared_state(0, epoch), bytes(data))
        capsys.readouterr()
        trained = train(training)
        said = capsys.readouterr().out
        assert [f"left out: {keys.shared_state(0, epoch)}" in said for epoch in damaged] == [True] * len(
            damaged
        )
        assert output.list(keys.CHECKPOINTS) == []
        return trained

    for damaged, expected in (([], epochs[-1:]), (epochs[-1:], epochs[-2:-1])):
        trained = again(damaged)
        assert yielded(trained) == yielded(unbroken)
        assert [report.resumed for report in trained.reports] == [expected, expected]
    other = again([], learning_rate=0.01)
    assert [report.resumed for report in other.reports] == [[], []]
    assert other.reports[0].digests[0] != unbroken.reports[0].digests[0]


def children(pid):
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def workers_here():
    """The workers of trainings: children of the children of the servers that this process has."""
    servers = children(os.getpid())
    return sorted(
        worker for server in servers for request in children(server) for worker in children(request)
    )


def after_start(seconds):
    return lambda output, since: time.monotonic() > since + seconds


def when_there(*names):
    """A moment: as soon as the output has all of these."""
    return lambda output, since: all(output.exists(name) for name in names)


MOMENTS = [
    ("before they meet", after_start(0.0), 0),
    ("before they meet", after_start(0.4), 1),
    ("in a save, before all have met", when_there(keys.own_state(0, 1, 1)), 0),
    ("in a save, before it is whole", when_there(keys.shared_state(0, 2)), 1),
    ("after the last save", when_there(keys.saved(0, 2)), 0),
    ("while the model is written", when_there(keys.model(0)), 0),
    ("while the other one is waited for", when_there(keys.worker(1)), 1),
    ("when all have reported", when_there(keys.worker(0), keys.worker(1)), 0),
    ("some time", after_start(0.9), 1),
]


@pytest.mark.parametrize(
    ("moment", "victim"),
    [(moment, victim) for _, moment, victim in MOMENTS],
    ids=[f"{name}, {victim}" for name, _, victim in MOMENTS],
)
def test_whenever_a_worker_is_killed_the_training_ends_as_if_it_had_not_been(
    once, tmp_path, heard, moment, victim
):
    unbroken = once("data_parallel", ROWS, workers=2, epochs=2, batch=50)
    training = replace(unbroken.training, output=str(tmp_path / "output"))
    killed, is_over = [], threading.Event()

    def kill():
        while len(workers_here()) < 2 and not is_over.is_set():
            time.sleep(0.001)
        since, output = time.monotonic(), open_store(training.output)
        while not moment(output, since) and not is_over.is_set():
            time.sleep(0.001)
        if len(found := workers_here()) == 2:
            killed.append(found[victim])
            os.kill(found[victim], signal.SIGKILL)

    killer = threading.Thread(target=kill)
    began = time.monotonic()
    killer.start()
    try:
        trained = train(training)
    finally:
        is_over.set()
        killer.join()
    assert time.monotonic() - began < training.start_seconds
    assert yielded(trained) == yielded(unbroken)
    # Who is killed when it has ended already is not missed.
    if any("Starting again" in event["message"] for event in heard.of("said")):
        assert not {int(report.process) for report in trained.reports} & set(killed)
    assert not workers_here()
    assert open_store(training.output).list(keys.CHECKPOINTS) == []
