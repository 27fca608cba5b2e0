"""The step: the right rows, normalised; the same settings again reuse, other settings never do."""

import json
import signal
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from fourfold.cache import dataset, splits
from fourfold.contract import events, exits, keys
from fourfold.contract.caching import Caching
from fourfold.contract.errors import InvalidInputError
from fourfold.prepare import download, source
from fourfold.prepare.publish import run
from fourfold.prepare.step import prepare
from fourfold.store.objects import FolderStore

TRAIN_X, TRAIN_Y, TEST_X, TEST_Y = download.MD5_OF_UNCOMPRESSED
EIGHT = Caching(batch_rows=8)
SMALL = {"rows": 30, "holdout": 10, "caching": EIGHT}


@pytest.fixture
def store(tmp_path):
    return FolderStore(tmp_path / "store")


@pytest.fixture
def small(store, idx_folder):
    """Prepares 30 and 10 rows of the folder; keywords change the settings."""

    def run(**changes):
        return prepare(store.uri, **{"data": str(idx_folder), **SMALL, **changes})

    return run


@pytest.fixture
def stamps(store, tmp_path):
    """Gives the time of the last write of every object below a prefix, by key."""
    return lambda prefix="": {
        key: (tmp_path / "store" / key).stat().st_mtime_ns for key in written(store, prefix)
    }


def written(store, prefix=""):
    """The keys of a store, without those that say who reads what."""
    return [key for key in store.list(prefix) if "/readers/" not in key]


def content(manifest):
    """A manifest without the time at which it was written."""
    return replace(manifest, created=0.0)


def normalised(pixels):
    return pixels[..., np.newaxis].astype(np.float32) / np.float32(255)


def test_rows_are_the_first_divided_by_255_and_the_hold_out_the_next(store, small, arrays):
    done = small()
    expected = {
        "train": (arrays[TRAIN_X][:30], arrays[TRAIN_Y][:30]),
        "holdout": (arrays[TRAIN_X][30:40], arrays[TRAIN_Y][30:40]),
        "test": (arrays[TEST_X], arrays[TEST_Y]),
    }
    assert set(done.manifest.parts) == set(expected)
    for part, (pixels, labels) in expected.items():
        x, y = dataset.read_rows(store, done.manifest, part)
        assert x.tobytes() == normalised(pixels).tobytes()
        assert (x.dtype, x.shape) == (np.float32, (len(labels), 5, 4, 1))
        assert 0 <= x.min() <= x.max() <= 1
        np.testing.assert_array_equal(y, labels)


def test_the_defaults_are_those_of_the_design(store):
    done = prepare(store.uri)
    manifest = dataset.read_manifest(store, done.manifest.fingerprint)
    assert manifest == done.manifest
    assert [manifest.rows(part) for part in ("train", "holdout", "test")] == [2000, 1000, 2000]
    assert (manifest.parts["train"].batches, manifest.rows_per_batch) == (20, 100)
    assert (manifest.shape, manifest.dtype) == ([28, 28, 1], "float32")
    assert (manifest.normalisation, manifest.source) == ("x / 255", "MNIST sample")
    size = sum(len(store.read(keys.batch(manifest.fingerprint, "train", i))) for i in range(20))
    assert size == manifest.parts["train"].bytes == (1_568_000 + 2000) * 4 + 20 * 2 * 128
    _, shards = splits.read_split(store, manifest.fingerprint, done.split.id)
    assert [(shard[0], shard[-1]) for shard in shards] == [(0, 999), (1000, 1999)]


def test_the_same_settings_again_write_nothing(small, stamps):
    first = small()
    before = stamps()
    again = small()
    assert (first.reused, again.reused) == (False, True)
    assert (again.manifest, again.split) == (first.manifest, first.split)
    assert stamps() == before


@pytest.mark.parametrize(
    "changes", [{"rows": 29}, {"holdout": 11}, {"caching": Caching(batch_rows=9)}], ids=str
)
def test_a_changed_setting_is_another_data_set_and_leaves_the_first(small, stamps, changes):
    first = small()
    before = stamps()
    other = small(**changes)
    assert not other.reused
    assert other.manifest.fingerprint != first.manifest.fingerprint
    assert stamps(keys.dataset(first.manifest.fingerprint)) == before


@pytest.mark.parametrize("name", [TRAIN_X, TRAIN_Y, TEST_X, TEST_Y])
def test_a_changed_byte_of_the_source_is_another_data_set(small, idx_folder, arrays, idx_bytes, name):
    first = small()
    array = arrays[name].copy()
    array.flat[0] ^= 1
    (idx_folder / f"{name}.gz").write_bytes(idx_bytes(array))
    other = small()
    assert not other.reused
    assert other.manifest.fingerprint != first.manifest.fingerprint


@pytest.mark.parametrize(
    "changes",
    [{"split": "disjoint"}, {"workers": 3}, {"split": "dirichlet:5", "seed": 4}, {"seed": 1}],
    ids=str,
)
def test_split_workers_and_seed_share_one_copy(store, small, stamps, changes):
    first = small()
    before = stamps()
    other = small(**changes)
    assert other.reused
    assert other.manifest == first.manifest
    assert {item for item in before.items() if "/splits/" not in item[0]} <= stamps().items()
    found, shards = splits.read_split(store, other.manifest.fingerprint, other.split.id)
    assert found == other.split
    assert [len(shard) for shard in shards] == found.sizes


def test_the_same_files_elsewhere_are_the_same_data_set(small, make_folder, arrays, idx_bytes):
    first = small()
    raw = {f"{name}.gz": None for name in arrays} | {name: idx_bytes(a) for name, a in arrays.items()}
    other = small(data=str(make_folder(raw, "unpacked elsewhere")))
    assert other.reused
    assert other.manifest.fingerprint == first.manifest.fingerprint


@pytest.mark.parametrize("part", ["train", "holdout", "test"])
def test_a_damaged_batch_is_said_and_rebuilt(store, small, capsys, part):
    first = small()
    key = keys.batch(first.manifest.fingerprint, part, 1)
    whole = store.read(key)
    store.write(key, whole[:-1] + b"\xff")
    capsys.readouterr()
    again = small()
    assert not again.reused
    assert content(again.manifest) == content(first.manifest)
    assert store.read(key) == whole
    assert f"rebuilding the cached batches: {key}" in capsys.readouterr().out


@pytest.mark.parametrize("damage", ["missing batch", "cut manifest", "missing manifest"])
def test_what_is_missing_is_rebuilt(store, small, capsys, damage):
    first = small()
    name = first.manifest.fingerprint
    if damage == "missing batch":
        store.delete(keys.batch(name, "train", 0))
    elif damage == "cut manifest":
        store.write(keys.dataset_manifest(name), store.read(keys.dataset_manifest(name))[:-20])
    else:
        store.delete(keys.dataset_manifest(name))
    capsys.readouterr()
    again = small()
    assert not again.reused
    assert content(again.manifest) == content(first.manifest)
    assert list(dataset.damaged(store, dataset.read_manifest(store, name))) == []
    assert ("rebuilding" in capsys.readouterr().out) == (damage != "missing manifest")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"rows": 51}, "rows 51 + hold-out 10 = 61, but digits has 60 training rows"),
        ({"holdout": 31}, "rows 30 + hold-out 31 = 61"),
        ({"rows": 0}, "rows must be at least 1, got 0"),
        ({"holdout": 0}, "holdout must be at least 1, got 0"),
        ({"caching": Caching(batch_rows=0)}, "batch-rows of the cache must be at least 1, got 0"),
        ({"workers": 0}, "workers must be at least 1"),
        ({"workers": 31}, "30 rows cannot be dealt to 31 workers"),
        ({"split": "sizes:1"}, "names 1 sizes for 2 workers"),
        ({"seed": -1}, "seed at least 0"),
        ({"data": "nowhere"}, "is no folder"),
    ],
)
def test_wrong_settings_are_refused_before_anything_is_written(store, small, changes, said):
    with pytest.raises(InvalidInputError, match=said.replace("+", r"\+")):
        small(**changes)
    assert store.list("") == []


def test_all_rows_of_a_source_can_be_taken(small):
    assert small(rows=50).manifest.rows("train") == 50


def test_full_mnist_by_name(full_mnist, store, monkeypatch):
    monkeypatch.setenv(source.FOLDER, str(full_mnist))
    done = prepare(store.uri, data="mnist", rows=500, holdout=100, caching=Caching(batch_rows=500))
    sample = prepare(store.uri, rows=500, holdout=100, caching=Caching(batch_rows=500))
    assert done.manifest.rows("test") == 10_000
    assert done.manifest.fingerprint != sample.manifest.fingerprint
    assert done.manifest.parts["train"] == sample.manifest.parts["train"]
    assert done.split == sample.split


KILLED = """
import os, signal, sys
from fourfold.contract.caching import Caching
from fourfold.prepare.step import prepare
from fourfold.store.objects import FolderStore
whole, left = FolderStore.write, int(sys.argv[3])
def write(self, key, data):
    global left
    left -= 1
    if left < 0:
        os.kill(os.getpid(), signal.SIGKILL)
    whole(self, key, data)
FolderStore.write = write
prepare(sys.argv[1], data=sys.argv[2], rows=30, holdout=10, caching=Caching(batch_rows=8))
"""


def start(program, store, folder, *arguments):
    command = [sys.executable, "-c", program, store.uri, str(folder), *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


@pytest.mark.parametrize("writes", [0, 5, 12, 13, 14])
def test_a_run_that_was_killed_while_writing_is_made_good_by_the_next(store, small, idx_folder, writes):
    killed = start(KILLED, store, idx_folder, writes)
    killed.communicate(timeout=60)
    was_whole = any(key.endswith("manifest.json") for key in store.list(""))
    assert killed.returncode == -signal.SIGKILL
    # Some batches were being written at the same time: what had begun is not there.
    assert len(store.list("")) <= writes
    done = small()
    assert done.reused == was_whole
    assert list(dataset.damaged(store, dataset.read_manifest(store, done.manifest.fingerprint))) == []
    assert len(splits.read_split(store, done.manifest.fingerprint, done.split.id)[1]) == 2


def test_several_runs_at_once_share_one_store(store, small, idx_folder):
    running = [start(KILLED, store, idx_folder, 1_000_000) for _ in range(4)]
    said = [process.communicate(timeout=100)[0] for process in running]
    assert [process.returncode for process in running] == [0] * 4, said
    done = small()
    assert done.reused
    assert len(store.list("datasets/")) == len(store.list(keys.dataset(done.manifest.fingerprint)))


def test_the_steps_result_is_handed_over(store, idx_folder, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv(events.FILE, str(tmp_path / "events.jsonl"))
    metadata, path = {}, tmp_path / "outputs" / "dataset"
    outputs = run(store.uri, str(idx_folder), 30, 10, "contiguous", 4, 0, "{}", "", str(path), metadata)
    manifest = dataset.read_manifest(store, outputs.fingerprint)
    assert json.loads(path.read_text()) == json.loads(store.read(keys.dataset_manifest(outputs.fingerprint)))
    assert splits.read_split(store, outputs.fingerprint, outputs.split_id)[0].sizes == [8, 8, 7, 7]
    assert metadata["rows"] == manifest.rows("train") == 30
    assert metadata["rows_a_worker"] == "[8, 8, 7, 7]"
    told = [json.loads(line) for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    assert [event["event"] for event in told] == ["step-started", "said", "prepared", "step-done"]
    assert "30 rows do not divide by 4 workers: dealt 8, 8, 7, 7" in capsys.readouterr().out


def test_a_step_that_fails_says_why_and_writes_no_result(store, tmp_path, capsys):
    with pytest.raises(SystemExit) as ended:
        run(store.uri, "nowhere", 30, 10, "contiguous", 2, 0, "{}", "", str(tmp_path / "dataset"), {})
    assert ended.value.code == exits.INVALID_INPUT
    assert "prepare failed: --data 'nowhere' is no folder" in capsys.readouterr().out
    assert not (tmp_path / "dataset").exists()


# How rows are kept.


@pytest.mark.parametrize("dtype", ["uint8", "float16"])
def test_another_dtype_is_another_data_set(small, dtype):
    first, other = small(), small(caching=replace(EIGHT, dtype=dtype))
    assert other.manifest.fingerprint != first.manifest.fingerprint
    assert (other.manifest.dtype, other.manifest.scale) == (dtype, 255.0 if dtype == "uint8" else 1.0)
    assert other.manifest.bytes < first.manifest.bytes


@pytest.mark.parametrize("how", [{"order": "batches"}, {"window": 3}, {"ahead": 0}, {"ram": 5}, {"disk": -1}])
def test_how_rows_are_read_makes_no_other_data_set(small, how):
    first, other = small(), small(caching=replace(EIGHT, **how))
    assert other.reused
    assert (other.manifest, other.split) == (first.manifest, first.split)


def test_an_order_from_a_file_or_a_store_is_kept_with_the_split(store, small, tmp_path):
    numbers = np.random.default_rng(0).permutation(30)
    (tmp_path / "order.txt").write_text("\n".join(map(str, numbers)))
    usual = small()
    made = small(caching=replace(EIGHT, order=f"list:{tmp_path}/order.txt"))
    assert made.reused
    assert made.split.id != usual.split.id
    assert made.split.sizes == usual.split.sizes
    kept = splits.read_order(store, made.manifest.fingerprint, made.split)
    assert kept is not None
    assert kept.tolist() == numbers.tolist()
    assert splits.read_order(store, usual.manifest.fingerprint, usual.split) is None
    again = small(caching=replace(EIGHT, order=f"list:file://{tmp_path}/order.txt"))
    assert again.split == made.split
    # Another order in the same file is another split: a training that is told of the one never takes the
    # other.
    (tmp_path / "order.txt").write_text("\n".join(map(str, numbers[::-1])))
    assert small(caching=replace(EIGHT, order=f"list:{tmp_path}/order.txt")).split.id != made.split.id


def test_an_order_that_is_not_there_or_is_none_is_refused_before_anything_is_written(store, small, tmp_path):
    (tmp_path / "short.txt").write_text("0 1 2")
    for place, said in (("absent.npy", "there is no order"), ("short.txt", "27 rows not at all")):
        with pytest.raises(InvalidInputError, match=said):
            small(caching=replace(EIGHT, order=f"list:{tmp_path}/{place}"))
    assert store.list("") == []


def test_a_disk_tier_that_is_named_is_filled_while_preparing(small, tmp_path, monkeypatch):
    monkeypatch.setenv("FOURFOLD_CACHE", str(tmp_path / "cache"))
    made = small()
    kept = [path for path in (tmp_path / "cache").rglob("0*.npy")]
    assert len(kept) == made.manifest.batches
    assert sum(path.stat().st_size for path in kept) == made.manifest.bytes


POOR = """
import resource, sys
from fourfold.contract.caching import Caching
from fourfold.prepare import publish, source, step
import numpy as np
# As much as it has by now, and a little: what the rows need is more than that.
read = source.read
def then_poor(data):
    found = read(data)
    used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + 4_000_000, used + 4_000_000))
    return found
source.read = then_poor
publish.run(sys.argv[1], "sample", 8000, 1000, "contiguous", 2, 0, "{}", "", sys.argv[2], {})
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the limit is Linux's")
def test_a_step_without_enough_memory_says_so_and_leaves_no_data_set(store, tmp_path):
    ended = subprocess.run(
        [sys.executable, "-c", POOR, store.uri, str(tmp_path / "dataset")],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert ended.returncode == exits.FAILED, ended.stdout + ended.stderr
    assert "prepare failed: out of memory" in ended.stdout
    assert "give this step more memory" in ended.stdout
    assert "Traceback" not in ended.stderr
    assert [key for key in store.list("") if key.endswith("manifest.json")] == []
    assert not prepare(store.uri, rows=8000, holdout=1000).reused
