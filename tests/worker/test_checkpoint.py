"""What is kept after each epoch, and what of it counts when workers are started again."""

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from fourfold.contract import keys
from fourfold.contract.errors import DamagedObjectError, StoreError
from fourfold.contract.records import Training, WorkerReport
from fourfold.model import weights
from fourfold.model.pinned import keras
from fourfold.store.objects import open_store
from fourfold.worker import parts
from fourfold.worker.checkpoint import KEPT, Checkpoints
from fourfold.worker.steps import Group, Steps

TRAINING = Training("data_parallel", 2, "store", "f", "s", "output")
OBJECTS = {
    "what all share": lambda epoch: keys.shared_state(0, epoch),
    "the chief's own": lambda epoch: keys.own_state(0, epoch, 0),
    "the peer's own": lambda epoch: keys.own_state(0, epoch, 1),
    "the chief's report": lambda epoch: keys.saved_report(0, epoch, 0),
    "the peer's report": lambda epoch: keys.saved_report(0, epoch, 1),
    "the manifest": lambda epoch: keys.saved(0, epoch),
}


class KilledError(Exception):
    """A worker was killed."""


class Faulty:
    """A store as one worker sees it: the worker dies around its nth change, or reads something else.

    Args:
        store: the true one.
        dies_at: change, counted from 0, that is its last.
        is_done: whether that change still reaches the store.
        wrong: key of an object that it reads with a flipped bit.
        silent: whether the store answers no read.
    """

    def __init__(self, store, dies_at=-1, is_done=False, wrong="", silent=False):
        self._store, self._dies_at, self._is_done = store, dies_at, is_done
        self._wrong, self._silent, self.changes = wrong, silent, 0

    def __getattr__(self, name):
        return getattr(self._store, name)

    def _change(self, change):
        self.changes += 1
        dies = self.changes > self._dies_at >= 0
        if not dies or self._is_done:
            change()
        if dies:
            raise KilledError

    def write(self, key, data):
        self._change(lambda: self._store.write(key, data))

    def delete(self, key):
        self._change(lambda: self._store.delete(key))

    def read(self, key):
        if self._silent:
            raise StoreError("the store does not answer")
        data = bytearray(self._store.read(key))
        data[-1] ^= key == self._wrong
        return bytes(data)


def together(stores, act, training=TRAINING, model=0) -> list[Any]:
    """What each worker of a group yields, or the error that it ends with; workers are threads here."""
    meeting, values = threading.Barrier(len(stores), timeout=10), {}

    def work(worker):
        def add(vector):
            values[worker] = vector
            meeting.wait()
            total = np.sum([values[each] for each in range(len(stores))], axis=0)
            meeting.wait()
            return total

        workers = tuple(range(len(stores)))
        try:
            return act(Checkpoints(stores[worker], training, model, workers, worker, add), worker)
        except Exception as error:
            meeting.abort()
            return error

    with ThreadPoolExecutor(len(stores)) as pool:
        return list(pool.map(work, range(len(stores))))


def state(epoch, worker):
    """The shared state, the worker's own, and its report, all of which tell epoch and worker."""
    report = WorkerReport(worker, "1", 0, 200, [], [f"digest {epoch}"])
    return {"weight/0000": np.full(3, epoch)}, {"rest/0000": np.array([epoch, worker])}, report


def save(*epochs):
    def act(checkpoints, worker):
        for epoch in epochs:
            checkpoints.save(epoch, *state(epoch, worker))

    return act


def resumed(stores, training=TRAINING, model=0):
    """The epoch that a group goes on after, checked to be whole at each worker; 0 for the beginning."""
    found = together(stores, lambda checkpoints, _: checkpoints.resume(), training, model)
    epochs = set()
    for worker, got in enumerate(found):
        if got is None:
            epochs.add(0)
            continue
        report, shared, own = got
        epoch = int(shared["weight/0000"][0])
        expected_shared, expected_own, expected_report = state(epoch, worker)
        assert report == expected_report
        np.testing.assert_equal((shared, own), (expected_shared, expected_own))
        epochs.add(epoch)
    (epoch,) = epochs
    return epoch


def damage(store, key):
    data = bytearray(store.read(key))
    data[-1] ^= 1
    store.write(key, bytes(data))


@pytest.fixture
def output(tmp_path):
    return open_store(str(tmp_path / "output"))


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_all_workers_go_on_after_the_last_epoch_each_with_its_own(output, workers):
    stores = [output] * workers
    assert resumed(stores) == 0
    together(stores, save(1, 2, 3))
    assert resumed(stores) == 3


def test_only_the_last_epochs_are_kept(output):
    together([output] * 2, save(1, 2, 3, 4, 5))
    assert {keys.epoch_of(key) for key in output.list(keys.CHECKPOINTS)} == set(range(6 - KEPT, 6))
    assert len(output.list(keys.CHECKPOINTS)) == KEPT * len(OBJECTS)


@pytest.mark.parametrize("is_done", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("worker", [0, 1], ids=["chief", "peer"])
def test_wherever_a_worker_is_killed_in_a_save_an_epoch_is_there_whole_or_not_at_all(
    tmp_path, worker, is_done
):
    found, total = [], 0
    while True:
        place, change = open_store(str(tmp_path / str(total))), total
        together([place] * 2, save(1, 2))
        faulty = Faulty(place, change, is_done)
        stores = [faulty if each == worker else place for each in (0, 1)]
        outcome = together(stores, save(3))
        if not isinstance(outcome[worker], KilledError):
            break
        found.append(resumed([place] * 2))
        assert found[-1] == (3 if place.exists(keys.saved(0, 3)) else 2)
        together([place] * 2, save(found[-1] + 1))
        assert resumed([place] * 2) == found[-1] + 1
        total += 1
    assert total == (4 + len(OBJECTS) if worker == 0 else 2)
    assert found == sorted(found)
    assert found[0] == 2
    assert (found[-1] == 3) == (worker == 0)


@pytest.mark.parametrize("name", OBJECTS)
def test_where_one_object_is_damaged_or_gone_the_epoch_before_is_taken_and_that_is_said(output, name, capsys):
    key = OBJECTS[name](2)
    together([output] * 2, save(1, 2))
    damage(output, key)
    assert resumed([output] * 2) == 1
    assert f"a checkpoint is left out: {key}" in capsys.readouterr().out
    output.delete(key)
    assert resumed([output] * 2) == 1


@pytest.mark.parametrize("name", OBJECTS)
def test_where_no_epoch_is_whole_all_begin_at_the_beginning(output, name):
    together([output] * 2, save(1, 2))
    for epoch in (1, 2):
        damage(output, OBJECTS[name](epoch))
    assert resumed([output] * 2) == 0


@pytest.mark.parametrize("name", ["what all share", "the peer's own", "the peer's report"])
def test_a_peer_that_does_not_find_what_its_chief_found_ends_and_takes_no_other_epoch(output, name):
    together([output] * 2, save(1, 2))
    key = OBJECTS[name](2)
    peer = Faulty(output, wrong=key)
    _, error = together([output, peer], lambda checkpoints, _: checkpoints.resume())
    assert isinstance(error, DamagedObjectError)
    assert key in str(error)


def test_a_store_that_does_not_answer_is_no_reason_to_begin_at_the_beginning(output):
    together([output] * 2, save(1))
    error, _ = together([Faulty(output, silent=True), output], lambda checkpoints, _: checkpoints.resume())
    assert isinstance(error, StoreError)
    assert "does not answer" in str(error)


@pytest.mark.parametrize(
    "other",
    [
        {"learning_rate": 0.01},
        {"seed": 1},
        {"epochs": 9},
        {"optimizer": "sgd"},
        {"fingerprint": "g"},
        {"split": "t"},
        {"code": "c"},
        {"threads": 2},
    ],
    ids=str,
)
def test_what_another_training_left_is_not_gone_on_from(output, other):
    together([output] * 2, save(1, 2))
    changed = replace(TRAINING, **other)
    assert resumed([output] * 2, changed) == 0
    together([output] * 2, save(1), changed)
    assert resumed([output] * 2, changed) == 1


@pytest.mark.parametrize(
    "same",
    [{"output": "elsewhere"}, {"store": "s3://b"}, {"trace": [1]}, {"start_seconds": 1.0}],
    ids=str,
)
def test_what_changes_no_weight_makes_no_other_training(output, same):
    together([output] * 2, save(1, 2))
    assert resumed([output] * 2, replace(TRAINING, **same)) == 2


def test_the_epochs_of_several_models_are_their_own(output):
    together([output], save(1, 2), model=0)
    together([output], save(1), model=1)
    damage(output, keys.shared_state(0, 2))
    assert [resumed([output], model=model) for model in (0, 1, 2)] == [1, 1, 0]


ROWS, CLASSES, SHAPE = 24, 3, (6,)


def noisy(seed, cut):
    """A model that draws (Dropout), and that has moving statistics (BatchNormalization), ready to train."""
    keras.utils.set_random_seed(seed)
    layers = keras.layers
    model = keras.Sequential(
        [
            layers.Input(SHAPE),
            layers.Dense(16, activation="relu", name="dense"),
            layers.BatchNormalization(name="norm"),
            layers.Dropout(0.5, seed=7, name="drop"),
            layers.Dense(CLASSES, name="last"),
        ]
    )
    if cut:
        return parts.staged(model, lambda: keras.optimizers.Adam(0.01), cut, ["CPU:0"] * (len(cut) + 1))
    return parts.whole(model, keras.optimizers.Adam(0.01))


def course(built, epochs):
    """Takes the steps of some epochs; gives after each the digest of what a model's file holds."""
    steps = Steps(tf.distribute.get_strategy(), built, SHAPE, Group())
    for epoch in epochs:
        draw = np.random.default_rng(epoch)
        x = draw.normal(size=(ROWS, *SHAPE)).astype(np.float32)
        y = draw.integers(CLASSES, size=ROWS, dtype=np.int32)
        steps.run(x, y, np.arange(0, ROWS + 1, 8), np.full(ROWS // 8, 8.0), 0.0)
        yield weights.digest(weights.arrays(built.pull()))


@pytest.mark.parametrize("cut", [(), ("dense", "drop")], ids=["whole", "three stages"])
def test_a_model_that_draws_and_keeps_statistics_goes_on_as_if_nothing_had_been(output, cut):
    unbroken = noisy(1, cut)
    following = course(unbroken, [1, 2, 3])
    next(following)
    saved = parts.values(unbroken.saved())
    together([output], lambda checkpoints, _: checkpoints.save(1, {}, saved, state(1, 0)[2]))
    digests = list(following)
    [(_, _, own)] = together([output], lambda checkpoints, _: checkpoints.resume())

    def go_on(*left_out):
        again = noisy(2, cut)
        kept = {name: value for name, value in parts.values(again.saved()).items() if name in left_out}
        parts.restore(again.saved(), {**own, **kept})
        return list(course(again, [2, 3]))

    assert go_on() == digests
    rest = [name for name in own if name.startswith("rest/")]
    seeds = [name for name in rest if own[name].dtype.kind in "iu"]
    statistics = [name for name in rest if name not in seeds]
    counts = [name for name in own if name.startswith("optimizer/") and own[name].dtype.kind == "i"]
    assert (len(seeds), len(statistics), len(counts)) == (1, 2, len(cut) + 1)
    for left_out in (seeds, statistics, *([count] for count in counts), ["weight/0000"]):
        assert go_on(*left_out)[1] != digests[1], left_out
