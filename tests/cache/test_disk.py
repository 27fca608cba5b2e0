"""The disk tier, shared by processes of a node: nothing half, nothing twice, nobody held up by the dead."""

import collections
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from fourfold.cache import dataset, disk as disks
from fourfold.cache.budgets import Budgets
from fourfold.cache.disk import DiskTier
from fourfold.cache.reader import Reader
from fourfold.contract import keys
from fourfold.store.folder import FolderStore
from tests.cache.stores import FarStore, bytes_below, files_below, random_rows
from tests.conftest import described

PROGRAM = Path(__file__).with_name("disk_program.py")
ROOT = Path(__file__).parents[2]
ROWS, BATCH = 120, 5
LARGE = 10**9


@pytest.fixture(scope="module")
def rows():
    return random_rows(ROWS, (6, 4))


@pytest.fixture(scope="module")
def root(tmp_path_factory, rows):
    root = tmp_path_factory.mktemp("data")
    manifest = described("beef", (6, 4), BATCH)
    dataset.write_dataset(FolderStore(root), manifest, {"train": rows})
    return root


@pytest.fixture
def manifest(root):
    return dataset.read_manifest(FolderStore(root), "beef")


def start(root, log, folder, budget=LARGE, partial=-1):
    return subprocess.Popen(
        [sys.executable, str(PROGRAM), str(root), str(log), str(folder), str(budget), str(partial)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )


def total_of(process):
    said, _ = process.communicate(timeout=60)
    assert process.returncode == 0, said
    return float(said.split()[-1])


def fetched(log):
    """How often each cached batch was fetched from the store."""
    names = [line for line in log.read_text().splitlines() if line.rpartition("/")[2][0].isdigit()]
    return collections.Counter(names)


def read_all(root, manifest, folder, budget=LARGE, store=None):
    with Reader(
        store or FarStore(root), manifest, "train", None, Budgets(1, budget, str(folder), at_once=2)
    ) as reader:
        found = reader.epoch([np.arange(a, a + 10) for a in range(0, ROWS, 10)]).take(ROWS)
        return (*found, reader.said)


def test_several_processes_at_once_fetch_each_object_once(root, rows, tmp_path):
    log, folder = tmp_path / "log", tmp_path / "cache"
    running = [start(root, log, folder) for _ in range(3)]
    expected = float(rows[0].astype(np.float64).sum())
    assert [total_of(process) for process in running] == pytest.approx([expected] * 3, rel=1e-12)
    assert set(fetched(log).values()) == {1}
    assert len(fetched(log)) == ROWS // BATCH == len(files_below(folder))
    assert not list(folder.rglob(f"{keys.PART}*"))


def test_one_that_is_killed_with_a_lock_holds_nobody_up(root, rows, manifest, tmp_path):
    log, folder = tmp_path / "log", tmp_path / "cache"
    killed = start(root, log, folder, partial=7)
    assert killed.stdout is not None
    assert killed.stdout.readline() == "stopped\n"
    waiting = start(root, log, folder)
    killed.send_signal(signal.SIGKILL)
    killed.communicate(timeout=20)
    assert total_of(waiting) == pytest.approx(float(rows[0].astype(np.float64).sum()), rel=1e-12)
    assert set(fetched(log).values()) == {1}


def test_one_that_is_stopped_with_a_lock_is_waited_for_and_then_not_any_more(
    root, rows, manifest, tmp_path, monkeypatch
):
    log, folder = tmp_path / "log", tmp_path / "cache"
    stopped = start(root, log, folder, partial=3)
    try:
        assert stopped.stdout is not None
        assert stopped.stdout.readline() == "stopped\n"
        stopped.send_signal(signal.SIGSTOP)
        monkeypatch.setattr(disks, "PATIENCE", 0.2)
        x, y, _ = read_all(root, manifest, folder)
    finally:
        stopped.kill()
        stopped.communicate(timeout=20)
    np.testing.assert_array_equal(x, rows[0])
    np.testing.assert_array_equal(y, rows[1])


WRITING = """
import os, signal, sys, tempfile
from fourfold.cache.disk import DiskTier
tier = DiskTier(sys.argv[1], 10**9)
replace = os.replace
import pathlib
def killed(self, target):
    os.kill(os.getpid(), signal.SIGKILL)
pathlib.Path.replace = killed
tier.put("datasets/beef/train/000000000.npy", b"x" * 100)
"""


def test_what_was_half_written_is_never_seen_and_cleared_after_a_while(
    root, rows, manifest, tmp_path, monkeypatch
):
    killed = subprocess.run([sys.executable, "-c", WRITING, str(tmp_path)], check=False, timeout=60)
    assert killed.returncode == -signal.SIGKILL
    (part,) = tmp_path.rglob(f"{keys.PART}*")
    tier = DiskTier(str(tmp_path), LARGE)
    assert tier.get(keys.batch("beef", "train", 0)) is None
    assert part.exists()
    x, _, _ = read_all(root, manifest, tmp_path)
    np.testing.assert_array_equal(x, rows[0])
    long_ago = part.stat().st_mtime - disks.STALE_SECONDS - 1
    os.utime(part, (long_ago, long_ago))
    DiskTier(str(tmp_path), LARGE)
    assert not part.exists()


def test_a_file_that_was_damaged_or_cut_on_disk_is_fetched_again_and_said(root, rows, manifest, tmp_path):
    read_all(root, manifest, tmp_path)
    first, second = sorted(files_below(tmp_path))[:2]
    data = first.read_bytes()
    first.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    second.write_bytes(b"")
    store = FarStore(root)
    x, y, said = read_all(root, manifest, tmp_path, store=store)
    np.testing.assert_array_equal(x, rows[0])
    np.testing.assert_array_equal(y, rows[1])
    assert sorted(store.batches_read) == [keys.batch("beef", "train", index) for index in (0, 1)]
    assert sorted(said) == [
        f"{keys.batch('beef', 'train', i)} was damaged on disk and is fetched again" for i in (0, 1)
    ]
    assert first.read_bytes() == data


# Budgets.


def test_several_processes_together_stay_within_one_budget(root, rows, tmp_path):
    log, folder, budget = tmp_path / "log", tmp_path / "cache", 5000
    running, seen = [start(root, log, folder, budget) for _ in range(3)], []
    while any(process.poll() is None for process in running):
        seen.append(bytes_below(folder))
        time.sleep(0.005)
    assert len({total_of(process) for process in running}) == 1
    assert 0 < max(seen) <= budget
    assert 0 < bytes_below(folder) <= budget


def test_what_was_damaged_on_disk_makes_room_for_itself(root, rows, manifest, tmp_path):
    budget = manifest.parts["train"].bytes
    read_all(root, manifest, tmp_path, budget)
    damaged = sorted(files_below(tmp_path))[3]
    whole = damaged.read_bytes()
    damaged.write_bytes(b"x" + whole[1:])
    x, _, said = read_all(root, manifest, tmp_path, budget)
    np.testing.assert_array_equal(x, rows[0])
    assert said == [f"{keys.batch('beef', 'train', 3)} was damaged on disk and is fetched again"]
    assert damaged.read_bytes() == whole


def test_where_nobody_can_say_what_is_in_use_nothing_is_put_and_that_is_said(root, rows, manifest, tmp_path):
    (tmp_path / disks.USAGE).mkdir()
    x, _, said = read_all(root, manifest, tmp_path)
    np.testing.assert_array_equal(x, rows[0])
    assert files_below(tmp_path) == []
    assert said == [f"no more is kept on disk: {tmp_path}/usage cannot be written, or somebody holds it"]


# Disks that cannot be written.


@contextlib.contextmanager
def mounted(folder, size):
    folder.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)], capture_output=True, check=False
    )
    if made.returncode:
        pytest.skip("a tmpfs cannot be mounted here: this needs root")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.skipif(sys.platform != "linux", reason="a tmpfs is mounted")
def test_a_full_disk_is_said_once_and_every_row_is_right(root, rows, manifest, tmp_path):
    with mounted(tmp_path / "small", "12k") as folder:
        x, y, said = read_all(root, manifest, folder)
        np.testing.assert_array_equal(x, rows[0])
        np.testing.assert_array_equal(y, rows[1])
        assert said == ["no more is kept on disk: No space left on device"]
        assert not list(folder.rglob(f"{keys.PART}*"))
        kept = files_below(folder)
        assert len(kept) < ROWS // BATCH
        for path in kept:
            assert path.read_bytes() == (root / path.relative_to(folder)).read_bytes()
        # Once there is room again, more is kept.
        subprocess.run(["mount", "-o", "remount,size=1m", str(folder)], check=True)
        x, _, said = read_all(root, manifest, folder)
        np.testing.assert_array_equal(x, rows[0])
        assert said == []
        assert len(files_below(folder)) == ROWS // BATCH


def remounted(folder, how):
    subprocess.run(["mount", "-o", f"remount,{how}", str(folder)], check=True)


@pytest.mark.skipif(sys.platform != "linux", reason="a tmpfs is mounted")
def test_a_folder_that_may_only_be_read_is_read_and_said(root, rows, manifest, tmp_path):
    with mounted(tmp_path / "small", "1m") as folder:
        read_all(root, manifest, folder)
        (gone,) = [path for path in files_below(folder) if path.name == "000000003.npy"]
        gone.unlink()
        remounted(folder, "ro")
        store = FarStore(root)
        x, y, said = read_all(root, manifest, folder, store=store)
        np.testing.assert_array_equal(x, rows[0])
        np.testing.assert_array_equal(y, rows[1])
        assert store.batches_read == [keys.batch("beef", "train", 3)]
        assert not gone.exists()
        remounted(folder, "rw")
        assert read_all(root, manifest, folder)[2] == []
        assert gone.exists()


@pytest.mark.skipif(sys.platform != "linux", reason="a tmpfs is mounted")
def test_an_empty_folder_that_may_only_be_read_is_said_and_done_without(root, rows, manifest, tmp_path):
    with mounted(tmp_path / "small", "1m") as folder:
        remounted(folder, "ro")
        x, _, said = read_all(root, manifest, folder)
        np.testing.assert_array_equal(x, rows[0])
        assert said == [f"the disk tier {folder} cannot be used: Read-only file system"]


@pytest.mark.parametrize("is_emptied", [True, False], ids=["emptied", "in the way"])
def test_a_folder_that_goes_in_mid_epoch_costs_no_row(root, rows, manifest, tmp_path, is_emptied):
    folder = tmp_path / "cache"
    with Reader(
        FarStore(root), manifest, "train", None, Budgets(1, LARGE, str(folder), ahead=0, at_once=1)
    ) as reader:
        stream = reader.epoch([np.arange(a, a + BATCH) for a in range(0, ROWS, BATCH)])
        x = [stream.take(BATCH * 3)[0]]
        assert len(files_below(folder)) == 3
        shutil.rmtree(folder)
        if not is_emptied:
            folder.write_text("in the way")
        x.append(stream.take(ROWS - BATCH * 3)[0])
        np.testing.assert_array_equal(np.concatenate(x), rows[0])
        # What was emptied is filled again.
        said = ["no more is kept on disk: it cannot be written (Not a directory)"]
        assert reader.said == ([] if is_emptied else said)
    if is_emptied:
        assert len(files_below(folder)) == ROWS // BATCH - 3


def test_a_folder_that_cannot_be_used_is_said_and_done_without(root, rows, manifest, tmp_path):
    file = tmp_path / "file"
    file.write_text("in the way")
    x, _, said = read_all(root, manifest, file)
    np.testing.assert_array_equal(x, rows[0])
    assert len(said) == 1
    assert said[0].startswith(f"the disk tier {file} cannot be used: ")


def test_threads_of_one_process_fetch_each_object_once_too(root, manifest, tmp_path):
    store = FarStore(root)
    threads = [
        threading.Thread(target=read_all, args=(root, manifest, tmp_path), kwargs={"store": store})
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(store.batches_read) == len(set(store.batches_read)) == ROWS // BATCH
