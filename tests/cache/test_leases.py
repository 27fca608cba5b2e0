"""Leases when stores fail, and several that prune at once: nobody reads, or writes, what another deletes."""

import multiprocessing
import random
import time

import pytest
from hypothesis import given, strategies as st

from fourfold.cache import dataset, housekeeping, leases
from fourfold.contract import keys
from fourfold.contract.datasets import Lease
from fourfold.contract.errors import MissingObjectError, StoreDeniedError, StoreError
from fourfold.contract.strict import to_json
from fourfold.store.folder import FolderStore
from tests.cache.stores import wait_until

NOW = 1_000_000.0


@pytest.fixture
def beef(objects, parts, describe):
    """A data set of this name."""
    return dataset.write_dataset(objects, describe("beef"), parts)


def before_first(store, monkeypatch, end, then):
    """Lets something happen just before the first object whose key ends so is deleted."""
    whole, left = store.delete, [then]

    def delete(key):
        if key.endswith(end) and left:
            left.pop()()
        whole(key)

    monkeypatch.setattr(store, "delete", delete)


# Readers.


def test_a_store_that_was_away_when_a_reader_began_has_its_lease_soon(objects, beef, monkeypatch):
    whole, failing = objects.write, [True, True]

    def away(key, data):
        if failing:
            failing.pop()
            raise StoreError("no good answer in 5 tries")
        whole(key, data)

    monkeypatch.setattr(objects, "write", away)
    with leases.reading(objects, "beef", seconds=30.0):
        assert leases.living(objects, "beef", time.time()) == []
        wait_until(lambda: bool(leases.living(objects, "beef", time.time())))
        assert housekeeping.delete(objects, "beef", time.time)
    assert leases.living(objects, "beef", time.time()) == []


def test_a_store_that_denies_is_not_asked_again(objects, beef, monkeypatch):
    asked = []

    def denied(key, data):
        asked.append(key)
        raise StoreDeniedError("read only")

    monkeypatch.setattr(objects, "write", denied)
    with leases.reading(objects, "beef", seconds=0.06):
        time.sleep(0.2)
    assert sum("/readers/" in key for key in asked) == 1


def test_who_may_not_list_a_bucket_reads_though_s3_denies_what_is_not_there(objects, beef, monkeypatch):
    whole = objects.read

    def denied(key):
        if key == keys.pruning("beef"):
            raise StoreDeniedError("AccessDenied")
        return whole(key)

    monkeypatch.setattr(objects, "read", denied)
    with leases.reading(objects, "beef"):
        assert len(leases.living(objects, "beef", time.time())) == 1


def test_who_looks_for_what_is_not_there_leaves_nothing_behind(objects):
    with pytest.raises(MissingObjectError), leases.reading(objects, "beef"):
        dataset.read_manifest(objects, "beef")
    assert objects.list("") == []


def test_a_reader_that_cannot_begin_leaves_no_lease(objects, beef, monkeypatch):
    whole = objects.read

    def away(key):
        if key == keys.pruning("beef"):
            raise StoreError("no good answer in 5 tries")
        return whole(key)

    monkeypatch.setattr(objects, "read", away)
    with pytest.raises(StoreError, match="no good answer"), leases.reading(objects, "beef"):
        pass
    assert objects.list(keys.leases("beef")) == []


def test_the_use_is_noted_before_the_lease_goes_and_if_it_cannot_go(objects, beef, monkeypatch):
    """Else there is a moment in which nobody reads it and nobody has."""
    used_when_let_go = []

    def denied(key):
        used_when_let_go.append(objects.exists(keys.used("beef")))
        raise StoreDeniedError("this key may write, and not delete")

    monkeypatch.setattr(objects, "delete", denied)
    with leases.reading(objects, "beef", clock=lambda: NOW):
        pass
    assert used_when_let_go == [True]
    assert leases.last_used(objects, "beef") == NOW


def test_who_ends_to_read_while_it_is_looked_at_is_seen(objects, beef, monkeypatch):
    later = beef.created + 1000.0
    times = iter([beef.created, beef.created, beef.created, later])
    reader, whole = leases.reading(objects, "beef", clock=lambda: next(times)), objects.list
    objects.write(keys.used("beef"), to_json(leases.Mark(1.0)))
    reader.__enter__()
    ending = [lambda: reader.__exit__(None, None, None)]

    def ends_before_the_leases_are_listed(prefix):
        if ending:
            ending.pop()()
        return whole(prefix)

    monkeypatch.setattr(objects, "list", ends_before_the_leases_are_listed)
    found = housekeeping.entry(objects, "beef", later)
    assert found.readers == []
    assert found.used == later


@given(st.lists(st.tuples(st.integers(0, 99), st.integers(0, 200)), max_size=6), st.integers(0, 200))
def test_those_leases_live_that_have_not_run_out(tmp_path_factory, made, now):
    objects = FolderStore(tmp_path_factory.mktemp("store"))
    for number, (since, until) in enumerate(made):
        objects.write(keys.lease("beef", f"r{number}"), to_json(Lease(f"r{number}", since, until)))
    found = {lease.who for lease in leases.living(objects, "beef", now)}
    assert found == {f"r{number}" for number, (_, until) in enumerate(made) if until > now}
    assert leases.last_used(objects, "beef") == max([0.0, *(since for since, _ in made)])


# Several that prune.


def test_who_comes_second_to_prune_gives_way_and_leaves_the_mark_of_the_first(objects, beef, monkeypatch):
    """Else the second ends, a run writes the data set anew, and the first goes on to delete it."""
    second, marked = [], []

    def prune_too():
        second.extend(housekeeping.delete(objects, "beef", lambda: NOW))
        marked.append(leases.is_being_pruned(objects, "beef", NOW))
        with pytest.raises(StoreError, match="is being pruned"):
            leases.leave(objects, "beef", 10.0, lambda: NOW, patience=0.0)

    before_first(objects, monkeypatch, "train/000000000.npy", prune_too)
    assert housekeeping.delete(objects, "beef", lambda: NOW) == []
    # Its lease says nothing of a use: what was not finished would count as used by who deletes it.
    assert [(lease.who.startswith(leases.PRUNER), lease.since) for lease in second] == [(True, 0.0)]
    assert marked == [True]
    assert not [key for key in objects.list(keys.dataset("beef")) if "/readers/" not in key]


def test_who_gives_way_to_another_that_prunes_leaves_the_data_set_whole(objects, beef):
    lease = Lease(f"{leases.PRUNER} (elsewhere)", 0.0, NOW + leases.MARK_SECONDS)
    objects.write(keys.lease("beef", "pruner-elsewhere"), to_json(lease))
    before = {key: objects.read(key) for key in objects.list("")}
    assert housekeeping.delete(objects, "beef", lambda: NOW) == [lease]
    assert {key: objects.read(key) for key in objects.list("")} == before
    assert leases.last_used(objects, "beef") == 0.0
    assert housekeeping.delete(objects, "beef", lambda: NOW + leases.MARK_SECONDS) == []


@pytest.mark.parametrize("end", ["train/000000000.npy", "pruning.json"])
def test_who_was_held_up_for_too_long_deletes_nothing_that_was_written_meanwhile(
    objects, beef, parts, describe, monkeypatch, end
):
    """A machine that slept: its mark is stale, and a run has written the data set anew."""
    now = [NOW]
    whole, slept = objects.list, []

    def sleep():
        slept.append(True)
        now[0] += 600
        leases.leave(objects, "beef", 10.0, lambda: now[0], patience=0.0)
        dataset.write_dataset(objects, describe("beef"), parts)

    def after_listing(prefix):
        found = whole(prefix)
        if prefix == keys.dataset("beef") and not slept and end != "pruning.json":
            sleep()
        return found

    monkeypatch.setattr(objects, "list", after_listing)

    def progress(done, total):
        if end == "pruning.json" and done == total:
            sleep()

    with pytest.raises(StoreError, match="was held up for 600 s"):
        housekeeping.delete(objects, "beef", lambda: now[0], progress)
    assert slept
    monkeypatch.undo()
    assert list(dataset.damaged(objects, dataset.read_manifest(objects, "beef"))) == []


class SlowStore(FolderStore):
    """A folder that takes as long to delete as a store over the network, now and then longer."""

    def delete(self, key):
        time.sleep(random.choice([0.002, 0.01, 0.05]))
        super().delete(key)


def prune_again_and_again(root, seconds, done):
    """A process of its own; counts how often it could."""
    store, until = SlowStore(root), time.monotonic() + seconds
    while time.monotonic() < until:
        if not housekeeping.delete(store, "beef", time.time):
            with done.get_lock():
                done.value += 1
        time.sleep(random.random() / 50)


def test_several_pruners_in_real_processes_delete_nothing_that_a_run_has_just_written(
    objects, root, beef, parts, describe
):
    """Who has left a lease and written the data set finds all of it until the lease is over."""
    spawn = multiprocessing.get_context("spawn")
    done, written, faults = spawn.Value("i", 0), 0, []
    pruners = [spawn.Process(target=prune_again_and_again, args=(root, 8.0, done)) for _ in range(3)]
    for pruner in pruners:
        pruner.start()
    while any(pruner.is_alive() for pruner in pruners):
        leases.leave(objects, "beef", 3600.0)
        try:
            manifest = dataset.read_manifest(objects, "beef")
        except MissingObjectError:
            manifest = dataset.write_dataset(objects, describe("beef"), parts)
            written += 1
        time.sleep(0.06)
        faults += dataset.damaged(objects, manifest)
        objects.delete(keys.lease("beef", leases.PREPARED))
        time.sleep(0.02)
    for pruner in pruners:
        pruner.join(60)
    assert [pruner.exitcode for pruner in pruners] == [0, 0, 0]
    assert faults == []
    assert min(written, done.value) > 1, (written, done.value)
