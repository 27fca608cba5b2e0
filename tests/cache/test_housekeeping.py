"""Leases and pruning: what a run reads is never touched, what nobody needs goes, nothing is half there."""

import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st

from fourfold.cache import dataset, housekeeping, leases
from fourfold.cache.housekeeping import Entry, Rule
from fourfold.contract import keys
from fourfold.contract.datasets import Lease
from fourfold.contract.errors import MissingObjectError, StoreDeniedError, StoreError
from fourfold.contract.strict import to_json

PROGRAM = Path(__file__).with_name("pruning_program.py")
ROOT = Path(__file__).parents[2]
NOW = 1_000_000.0
DAY = 24 * 3600.0


def start(what, root, seconds):
    return subprocess.Popen(
        [sys.executable, str(PROGRAM), what, str(root), str(seconds)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )


@pytest.fixture
def beef(objects, parts, describe):
    """A data set of this name, in a store that it shares with another one."""
    dataset.write_dataset(objects, describe("other"), parts)
    return dataset.write_dataset(objects, describe("beef"), parts)


def delete(store, now=NOW):
    return housekeeping.delete(store, "beef", lambda: now)


# Leases.


def test_a_reader_has_a_lease_while_it_reads_and_leaves_when_it_last_did(objects, beef):
    with leases.reading(objects, "beef", clock=lambda: NOW):
        (lease,) = leases.living(objects, "beef", NOW)
        assert (lease.since, lease.until) == (NOW, NOW + leases.SECONDS)
        assert str(os.getpid()) in lease.who
    assert leases.living(objects, "beef", NOW) == []
    assert objects.list(keys.leases("beef")) == []
    assert leases.last_used(objects, "beef") == NOW


def test_a_lease_is_renewed_while_its_reader_lives(objects, beef):
    with leases.reading(objects, "beef", seconds=0.3):
        (first,) = leases.living(objects, "beef", time.time())
        until = time.monotonic() + 10
        while not [x for x in leases.living(objects, "beef", time.time()) if x.until > first.until + 0.3]:
            assert time.monotonic() < until
            time.sleep(0.02)


def test_a_killed_readers_lease_runs_out(objects, root, beef):
    killed = start("hold", root, 2)
    assert killed.stdout is not None
    assert killed.stdout.readline() == "held\n"
    killed.send_signal(signal.SIGKILL)
    killed.communicate(timeout=20)
    now = time.time()
    assert [lease.who for lease in housekeeping.delete(objects, "beef", lambda: now)]
    assert dataset.read_manifest(objects, "beef") == beef
    assert housekeeping.delete(objects, "beef", lambda: now + 3) == []


def test_a_run_that_has_prepared_holds_one_lease_however_often_it_does(objects, beef):
    for _ in range(3):
        leases.leave(objects, "beef", 100.0, lambda: NOW)
    assert [lease.until for lease in leases.living(objects, "beef", NOW + 99)] == [NOW + 100]
    assert leases.living(objects, "beef", NOW + 101) == []


def test_a_store_that_may_only_be_read_is_read_without_a_lease(objects, beef, monkeypatch):
    def denied(key, data):
        raise StoreDeniedError("read only")

    monkeypatch.setattr(objects, "write", denied)
    with leases.reading(objects, "beef"):
        assert len(dataset.read_rows(objects, beef, "train")[1]) == 47
    leases.leave(objects, "beef", 5.0)


def test_a_lease_that_cannot_be_read_counts_as_living(objects, beef):
    objects.write(keys.lease("beef", "someone"), b"{")
    assert [lease.who for lease in leases.living(objects, "beef", NOW)] == [
        "datasets/beef/readers/someone.json, which cannot be read"
    ]
    assert delete(objects)


def test_who_finds_that_it_is_being_pruned_waits_and_the_mark_of_the_dead_stops_nobody(objects, beef):
    objects.write(keys.pruning("beef"), to_json(leases.Mark(NOW)))
    assert leases.is_being_pruned(objects, "beef", NOW + leases.MARK_SECONDS - 1)
    assert not leases.is_being_pruned(objects, "beef", NOW + leases.MARK_SECONDS)
    began = time.monotonic()
    with leases.reading(objects, "beef", clock=lambda: NOW, patience=0.3):
        assert time.monotonic() - began >= 0.3
    with leases.reading(objects, "beef", clock=lambda: NOW + leases.MARK_SECONDS, patience=1000.0):
        pass


def test_who_is_about_to_write_waits_until_nobody_deletes_any_more(objects, beef):
    """Else what is written now would be deleted with what was there."""
    objects.write(keys.pruning("beef"), to_json(leases.Mark(NOW)))
    with pytest.raises(StoreError, match="datasets/beef in .* is being pruned"):
        leases.leave(objects, "beef", 10.0, lambda: NOW, patience=0.2)
    threading.Timer(0.3, objects.delete, [keys.pruning("beef")]).start()
    leases.leave(objects, "beef", 10.0, lambda: NOW, patience=30.0)
    assert not objects.exists(keys.pruning("beef"))


def test_a_mark_is_renewed_while_much_is_deleted(objects, beef, monkeypatch):
    times = iter(range(1000, 2000))
    seen = []
    whole = objects.write
    monkeypatch.setattr(objects, "write", lambda key, data: seen.append((key, data)) or whole(key, data))
    monkeypatch.setattr(housekeeping, "SLICE", 2)
    housekeeping.delete(objects, "beef", lambda: float(next(times)))
    marks = [data for key, data in seen if key == keys.pruning("beef")]
    assert len(marks) > 3
    assert len(set(marks)) == len(marks)


# Deleting.


def test_a_data_set_is_deleted_whole_and_its_neighbour_left(objects, beef):
    told = []
    assert (
        housekeeping.delete(objects, "beef", lambda: NOW, lambda done, total: told.append((done, total)))
        == []
    )
    assert objects.list(keys.dataset("beef")) == []
    assert list(dataset.damaged(objects, dataset.read_manifest(objects, "other"))) == []
    assert told[-1][0] == told[-1][1] > 0


def test_what_is_read_is_left_as_it_was(objects, beef):
    before = {key: objects.read(key) for key in objects.list("")}
    with leases.reading(objects, "beef", clock=lambda: NOW):
        assert delete(objects)
        left = {key: objects.read(key) for key in objects.list("") if "/readers/" not in key}
    assert left == before


def test_who_begins_to_read_meanwhile_gets_it_back(objects, beef, monkeypatch):
    """Between the look for leases and the end of the manifest."""
    whole = objects.delete

    def and_then_somebody_reads(key):
        whole(key)
        if key == keys.dataset_manifest("beef"):
            objects.write(keys.lease("beef", "late"), to_json(Lease("late", NOW, NOW + 10)))

    monkeypatch.setattr(objects, "delete", and_then_somebody_reads)
    assert [lease.who for lease in delete(objects)] == ["late"]
    assert dataset.read_manifest(objects, "beef") == beef
    assert list(dataset.damaged(objects, beef)) == []
    assert not leases.is_being_pruned(objects, "beef", NOW)


@pytest.mark.parametrize("stops_at", range(0, 13, 2))
def test_one_that_was_stopped_half_way_is_no_data_set_and_is_deleted_by_the_next(
    objects, beef, monkeypatch, stops_at
):
    whole, left = objects.delete, [stops_at]

    def stopped(key):
        if left[0] == 0:
            raise StoreError("the store is gone")
        left[0] -= 1
        whole(key)

    monkeypatch.setattr(objects, "delete", stopped)
    with pytest.raises(StoreError, match="the store is gone"):
        delete(objects)
    monkeypatch.undo()
    if stops_at:
        with pytest.raises(MissingObjectError):
            dataset.read_manifest(objects, "beef")
    assert delete(objects, NOW + leases.MARK_SECONDS) == []
    assert objects.list(keys.dataset("beef")) == []


def test_what_was_half_deleted_is_made_whole_by_the_next_that_prepares(objects, beef, parts, describe):
    objects.write(keys.pruning("beef"), to_json(leases.Mark(NOW)))
    objects.delete(keys.dataset_manifest("beef"))
    objects.delete(keys.batch("beef", "train", 2))
    assert dataset.write_dataset(objects, describe("beef"), parts).parts == beef.parts
    assert list(dataset.damaged(objects, dataset.read_manifest(objects, "beef"))) == []


def test_readers_and_pruners_in_real_processes_never_meet_half_a_data_set(
    objects, root, beef, parts, describe
):
    """A reader that found the manifest reads every batch; one that does not is told that there is none."""
    readers = [start("read", root, 4) for _ in range(2)]
    pruner, until, written = start("prune", root, 4), time.monotonic() + 4, 0
    while time.monotonic() < until:
        # As `prepare` does: a lease first, which is short here.
        leases.leave(objects, "beef", 0.1)
        try:
            dataset.read_manifest(objects, "beef")
        except MissingObjectError:
            dataset.write_dataset(objects, describe("beef"), parts)
            written += 1
        time.sleep(0.25)
    said = [process.communicate(timeout=60)[0] for process in (*readers, pruner)]
    assert [process.returncode for process in (*readers, pruner)] == [0, 0, 0], said
    read, pruned = [int(each.split()[-1]) for each in said[:2]], int(said[2].split()[-1])
    assert min(read) > 0, (read, pruned, written)
    assert min(pruned, written) > 0, (read, pruned, written)


# Which.


def entry(name, used, size=100, created=0.0, readers=()):
    manifest = replace(MANIFEST, fingerprint=name, created=created or used)
    manifest = replace(manifest, parts={"train": replace(PART, bytes=size)})
    return Entry(name, manifest, "", used, list(readers))


@pytest.fixture(autouse=True)
def _templates(describe):
    global MANIFEST, PART
    from fourfold.contract.datasets import Part

    MANIFEST, PART = describe("f"), Part(1, 10, 100, [10], "0" * 64)


READER = Lease("pod-7", NOW, NOW + 1)


def gone(entries, **rule):
    go, stay = housekeeping.chosen(entries, Rule(**rule), NOW)
    return [each.fingerprint for each in go], {each.fingerprint: why for each, why in stay}


def test_age_and_use_choose():
    entries = [
        entry("new", NOW - 1),
        entry("old but used", NOW - 1, created=NOW - 40 * DAY),
        entry("unused", NOW - 8 * DAY),
        entry("read", NOW - 9 * DAY, readers=[READER]),
    ]
    assert gone(entries, unused_for=7 * DAY) == (["unused"], {"read": "read by pod-7"})
    assert gone(entries, older_than=30 * DAY) == (["old but used"], {})
    assert gone(entries, older_than=50 * DAY) == ([], {})


@given(
    st.lists(st.tuples(st.integers(0, 50), st.integers(0, 100), st.booleans()), max_size=12),
    st.integers(0, 600),
)
def test_by_size_the_least_recently_used_go_and_no_more_of_them_than_must(made, limit):
    entries = [
        entry(f"{number}", NOW - age, size, readers=[READER] if is_read else [])
        for number, (age, size, is_read) in enumerate(made)
    ]
    go, _ = housekeeping.chosen(entries, Rule(max_bytes=limit), NOW)
    names = {each.fingerprint for each in go}
    left = [each for each in entries if each.fingerprint not in names]
    assert not any(each.readers for each in go)
    if go:
        assert sum(each.bytes for each in left) + go[-1].bytes > limit
    movable = [each for each in left if not each.readers]
    if sum(each.bytes for each in left) > limit:
        assert movable == []
    assert all(mine.used <= other.used for mine in go for other in movable)


def test_leftovers_go_after_a_day_and_what_a_later_version_wrote_stays(objects, root, beef):
    objects.write(keys.batch("half", "train", 0), b"x")
    objects.write(keys.dataset_manifest("old"), b'{"format": 1}')
    objects.write(keys.dataset_manifest("newer"), b'{"format": 99}')
    objects.write(keys.dataset_manifest("cut"), b'{"format": 2, "fing')
    leases.leave(objects, "writing", 10.0, lambda: NOW)
    entries = housekeeping.listed(objects, NOW)
    assert {each.fingerprint for each in entries} == {
        "beef",
        "other",
        "half",
        "old",
        "newer",
        "cut",
        "writing",
    }
    assert {each.fingerprint for each in entries if each.is_left} == {"half", "old", "cut", "writing"}
    go, stay = housekeeping.chosen(entries, Rule(unused_for=10**12), NOW)
    assert {each.fingerprint for each in go} == {"half", "old", "cut"}
    assert stay == []
    go, _ = housekeeping.chosen(entries, Rule(max_bytes=0), NOW)
    assert {each.fingerprint for each in go} == {"half", "old", "cut", "beef", "other"}
    later = housekeeping.listed(objects, NOW + 2 * DAY)
    go, _ = housekeeping.chosen(later, Rule(unused_for=10**12), NOW + 2 * DAY)
    assert "writing" in {each.fingerprint for each in go}


def test_a_store_that_does_not_answer_leaves_nothing_to_prune(objects, beef, monkeypatch):
    """What cannot be read now is not what nobody can read."""

    def away(key):
        raise StoreError("no good answer in 5 tries")

    monkeypatch.setattr(objects, "read", away)
    with pytest.raises(StoreError, match="no good answer"):
        housekeeping.listed(objects, NOW)


def test_listing_looks_at_no_batch(objects, beef, monkeypatch):
    looked, whole = [], objects.list
    monkeypatch.setattr(objects, "list", lambda prefix: looked.append(prefix) or whole(prefix))
    housekeeping.listed(objects, NOW)
    assert all(prefix.endswith("/readers") for prefix in looked)


def test_verifying_holds_a_lease(objects, beef):
    objects.delete(keys.batch("beef", "train", 1))
    for fault in housekeeping.verify(objects, beef):
        assert keys.batch("beef", "train", 1) in fault
        assert leases.living(objects, "beef", time.time())
    assert not leases.living(objects, "beef", time.time())
    assert leases.last_used(objects, "beef") == 0.0
    assert np.array_equal(dataset.read_rows(objects, beef, "test")[1], np.arange(9) % 3)
