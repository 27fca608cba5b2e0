"""The disk tier's budget: what is kept, what makes room, what is counted."""

import errno
import fcntl
import os
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from fourfold.cache import disk as disks
from fourfold.cache.disk import DiskTier
from fourfold.contract import keys
from tests.cache.stores import bytes_below, files_below


@settings(max_examples=25, deadline=None)
@given(
    sizes=st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 400)), max_size=30),
    budget=st.integers(1, 1500),
    held=st.sampled_from("abc"),
)
def test_no_more_is_kept_than_the_budget_and_what_is_held_stays(sizes, budget, held, tmp_path_factory):
    folder = tmp_path_factory.mktemp("cache")
    tier, kept = DiskTier(str(folder), budget), {}
    with tier.held(held):
        for index, (name, size) in enumerate(sizes):
            key = keys.batch(name, "train", index)
            before = {k: v for k, v in kept.items() if k.split("/")[1] == held}
            if DiskTier(str(folder), budget).put(key, b"x" * size):
                kept[key] = size
            assert sum(path.stat().st_size for path in files_below(folder)) <= budget
            for key_held in before:
                assert tier.get(key_held) is not None
    for key, size in kept.items():
        assert tier.get(key) in (None, b"x" * size)


def test_the_data_set_that_was_used_least_recently_makes_room(tmp_path):
    tier = DiskTier(str(tmp_path), 1000)
    for age, name in enumerate(("old", "older", "held")):
        assert tier.put(keys.batch(name, "train", 0), b"x" * 300)
        with tier.held(name):
            pass
        mark = tmp_path / keys.dataset(name) / disks.HELD
        os.utime(mark, (1000 - age, 1000 - age))
    with tier.held("held"):
        os.utime(tmp_path / keys.dataset("held") / disks.HELD, (1, 1))
        assert tier.put(keys.batch("new", "train", 0), b"x" * 300)
        assert set(tier.datasets()) == {"old", "held", "new"}
    assert tier.put(keys.batch("new", "train", 1), b"x" * 300)
    assert set(tier.datasets()) == {"old", "new"}


@pytest.mark.parametrize("moment", ["open", "replace"])
def test_who_opens_the_folder_counts_what_is_being_written_too(tmp_path, monkeypatch, moment):
    """Before its first byte and after its last."""
    tier, usual, others = DiskTier(str(tmp_path), 1000), getattr(Path, moment), []

    def opened_meanwhile(self, *arguments):
        monkeypatch.setattr(Path, moment, usual)
        others.append(DiskTier(str(tmp_path), 1000))
        assert not others[0].put(keys.batch("aa", "train", 1), b"x" * 401)
        return usual(self, *arguments)

    monkeypatch.setattr(Path, moment, opened_meanwhile)
    assert tier.put(keys.batch("aa", "train", 0), b"x" * 600)
    assert others[0].full == "its budget of 1,000 bytes is used up"
    assert tier.put(keys.batch("aa", "train", 2), b"x" * 400)
    assert bytes_below(tmp_path) == 1000


def test_what_could_not_be_written_takes_no_room_from_others(tmp_path, monkeypatch):
    failing, other, usual = DiskTier(str(tmp_path), 1000), DiskTier(str(tmp_path), 1000), Path.open

    def full(self, *arguments):
        monkeypatch.setattr(Path, "open", usual)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "open", full)
    assert not failing.put(keys.batch("aa", "train", 0), b"x" * 600)
    assert failing.full == "No space left on device"
    assert bytes_below(tmp_path) == 0
    assert other.put(keys.batch("aa", "train", 0), b"x" * 1000)


def test_what_is_larger_than_the_budget_makes_nobody_go(tmp_path):
    tier = DiskTier(str(tmp_path), 1000)
    assert tier.put(keys.batch("aa", "train", 0), b"x" * 600)
    assert not tier.put(keys.batch("bb", "train", 0), b"x" * 1001)
    assert tier.get(keys.batch("aa", "train", 0)) == b"x" * 600
    assert DiskTier(str(tmp_path), 1000).put(keys.batch("bb", "train", 0), b"x" * 1000)
    assert tier.get(keys.batch("aa", "train", 0)) is None


def test_a_data_set_that_is_deleted_while_somebody_is_about_to_hold_it_is_held_then(tmp_path, monkeypatch):
    tier, other, lock = DiskTier(str(tmp_path), 1000), DiskTier(str(tmp_path), 1000), disks._try_lock

    def deleted_before(handle, kind):
        if kind == fcntl.LOCK_SH:
            monkeypatch.setattr(disks, "_try_lock", lock)
            assert other.delete("aa")
        return lock(handle, kind)

    assert tier.put(keys.batch("aa", "train", 0), b"x")
    monkeypatch.setattr(disks, "_try_lock", deleted_before)
    with tier.held("aa"):
        assert disks._try_lock is lock
        assert tier.put(keys.batch("aa", "train", 0), b"x")
        assert not other.delete("aa")
    assert other.delete("aa")
