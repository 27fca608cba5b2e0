"""The batch cache: a name for every content, whole or not there, and every damage found and named."""

import json
import threading
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from fourfold.cache import dataset, layout, splits
from fourfold.contract import keys
from fourfold.contract.datasets import Split
from fourfold.contract.errors import DamagedObjectError, InvalidInputError, MissingObjectError, StoreError
from fourfold.contract.strict import to_json
from fourfold.store.formats import array_from_bytes, array_to_bytes, sha256
from fourfold.store.objects import FolderStore

CONTENT = {"source": "ab12", "rows": 2000, "holdout": 1000, "dtype": "float32", "rows_per_batch": 100}
JSON = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
)
MIDDLE = keys.batch("f00d", "train", 2)


class FailingStore(FolderStore):
    """A store whose n-th write, counted from 0, fails."""

    def __init__(self, root, fails_at):
        super().__init__(root)
        self.left, self.guard = fails_at, threading.Lock()

    def write(self, key, data):
        with self.guard:
            if self.left == 0:
                raise StoreError(f"no room for {key}")
            self.left -= 1
        super().write(key, data)


@pytest.fixture(scope="module")
def written(tmp_path_factory, parts, describe):
    """A store that no test changes, with a data set in it."""
    store = FolderStore(tmp_path_factory.mktemp("written"))
    return store, dataset.write_dataset(store, describe(), parts)


@pytest.mark.parametrize("name", CONTENT)
def test_the_fingerprint_changes_with_every_part_of_the_content(name):
    value = CONTENT[name]
    changed = {**CONTENT, name: value + 1 if isinstance(value, int) else value + "x"}
    assert layout.fingerprint(changed) != layout.fingerprint(CONTENT)
    assert layout.fingerprint({k: v for k, v in CONTENT.items() if k != name}) != layout.fingerprint(CONTENT)


@given(st.dictionaries(st.text(), JSON), st.randoms())
def test_the_fingerprint_does_not_change_with_the_order(content, random):
    names = list(content)
    random.shuffle(names)
    name = layout.fingerprint({name: content[name] for name in names})
    assert name == layout.fingerprint(content)
    assert len(name) == 32
    assert int(name, 16) >= 0


def test_the_fingerprint_changes_with_the_layout_of_the_cache(monkeypatch):
    before = layout.fingerprint(CONTENT)
    monkeypatch.setattr(layout, "FORMAT", layout.FORMAT + 1)
    assert layout.fingerprint(CONTENT) != before


def test_content_that_is_not_json_has_no_fingerprint():
    with pytest.raises(ValueError, match="Out of range float"):
        layout.fingerprint({**CONTENT, "mean": float("nan")})


def test_what_is_written_is_read_back_equal(objects, made, parts):
    manifest = dataset.read_manifest(objects, "f00d")
    assert manifest == made
    assert list(dataset.damaged(objects, manifest)) == []
    for part, (x, y) in parts.items():
        found_x, found_y = dataset.read_rows(objects, manifest, part)
        assert (found_x.dtype, found_y.dtype) == (np.float32, np.int32)
        np.testing.assert_array_equal(found_x, x)
        np.testing.assert_array_equal(found_y, y)


def test_manifest_and_index_list_every_batch_as_it_lies_in_the_store(objects, made):
    expected = {keys.dataset_manifest("f00d")}
    assert made.parts["train"].classes == [16, 16, 15]
    for part, listed in made.parts.items():
        batches = dataset.Batches(objects, made, part)
        assert len(batches) == listed.batches
        assert sum(batches.rows(index) for index in range(len(batches))) == listed.rows == made.rows(part)
        stored = [objects.read(batches.key(index)) for index in range(len(batches))]
        assert [batches.size(index) for index in range(len(batches))] == [len(data) for data in stored]
        assert all(batches.is_whole(index, data) for index, data in enumerate(stored))
        assert sum(map(len, stored)) == listed.bytes
        expected |= {keys.index("f00d", part), *map(batches.key, range(len(batches)))}
    assert set(objects.list("")) == expected


def test_progress_counts_every_batch(objects, parts, describe):
    told = []
    dataset.write_dataset(objects, describe(), parts, progress=lambda done, total: told.append((done, total)))
    assert told == [(done, 8) for done in range(1, 9)]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sets(st.integers(0, 46)).map(sorted))
def test_any_rows_are_those_of_fancy_indexing(written, parts, numbers):
    store, manifest = written
    x, y = dataset.read_rows(store, manifest, "train", np.array(numbers, dtype=np.int64))
    np.testing.assert_array_equal(x, parts["train"][0][numbers])
    np.testing.assert_array_equal(y, parts["train"][1][numbers])


def test_rows_may_be_asked_for_in_any_order_and_twice(written, parts):
    store, manifest = written
    numbers = np.array([46, 0, 10, 9, 0])
    x, _ = dataset.read_rows(store, manifest, "train", numbers)
    np.testing.assert_array_equal(x, parts["train"][0][numbers])


@pytest.mark.parametrize("numbers", [[-1], [0, 47], [-1, 3]])
def test_rows_out_of_range_are_refused(written, numbers):
    store, manifest = written
    with pytest.raises(InvalidInputError, match="train has rows 0 to 46"):
        dataset.read_rows(store, manifest, "train", np.array(numbers))


def test_only_the_batches_that_hold_the_rows_are_read(objects, made):
    for index in (0, 1, 3, 4):
        objects.delete(keys.batch("f00d", "train", index))
    assert len(dataset.read_rows(objects, made, "train", np.array([20, 29]))[1]) == 2


def flipped(data: bytes) -> bytes:
    return data[:-3] + bytes([data[-3] ^ 1]) + data[-2:]


@pytest.mark.parametrize(
    "damage", [flipped, lambda data: data[:-1], lambda data: data + b"\0", lambda data: b""],
    ids=["one bit", "cut", "longer", "empty"],
)  # fmt: skip
def test_a_damaged_object_is_named_and_never_read(objects, made, damage):
    key = MIDDLE
    objects.write(key, damage(objects.read(key)))
    with pytest.raises(DamagedObjectError, match=key):
        dataset.read_rows(objects, made, "train")
    assert [key in fault for fault in dataset.damaged(objects, made)] == [True]


def test_a_missing_batch_is_named(objects, made):
    key = keys.batch("f00d", "holdout", 1)
    objects.delete(key)
    with pytest.raises(MissingObjectError, match=key):
        dataset.read_rows(objects, made, "holdout")
    assert [key in fault for fault in dataset.damaged(objects, made)] == [True]


def test_every_object_that_is_missing_or_damaged_is_named_each_once(objects, made):
    assert list(dataset.damaged(objects, made)) == []
    missing = [keys.batch("f00d", "train", 0), keys.batch("f00d", "test", 0)]
    broken = [keys.batch("f00d", "train", 4), keys.batch("f00d", "train", 1), keys.index("f00d", "holdout")]
    for key in missing:
        objects.delete(key)
    for key in broken:
        objects.write(key, flipped(objects.read(key)))
    counted = []
    told = list(dataset.damaged(objects, made, lambda: counted.append(1)))
    for key in missing:
        assert sum(f"there is no {key}" in sentence for sentence in told) == 1
    for key in broken:
        assert sum(key in sentence and "is damaged" in sentence for sentence in told) == 1
    assert len(told) == len(missing) + len(broken)
    # Also those that are damaged count as looked at; of a part without an index nothing can be.
    assert len(counted) == made.parts["train"].batches + made.parts["test"].batches


def test_1001_batches_are_read_in_the_order_of_their_numbers_beside_a_neighbour_of_a_like_name(
    objects, describe, monkeypatch
):
    """O10: a listing ends after 1,000, ``f00d`` begins like ``f00d2``, and 10 comes before 9 as text."""
    monkeypatch.setattr("fourfold.store.folder.os.fsync", lambda handle: None)
    x = np.arange(1001, dtype=np.float32).reshape(-1, 1)
    y = np.arange(1001, dtype=np.int32) % 3
    made = {}
    for name, sign in (("f00d", 1), ("f00d2", -1)):
        told = replace(describe(name), rows_per_batch=1, shape=[1])
        made[name] = dataset.write_dataset(objects, told, {"train": (sign * x, y), "test": (x[:2], y[:2])})
        assert made[name].parts["train"].batches == 1001
    # The batches of two parts, two indexes and the manifest.
    assert len(objects.list(keys.dataset("f00d"))) == 1001 + 2 + 3
    np.testing.assert_array_equal(dataset.read_rows(objects, made["f00d"], "train")[0], x)
    broken = [keys.batch("f00d", "train", index) for index in (125, 128, 1000)]
    for key in broken:
        objects.write(key, flipped(objects.read(key)))
    for key, sentence in zip(broken, dataset.damaged(objects, made["f00d"]), strict=True):
        assert key in sentence
    for key in objects.list(keys.dataset("f00d")):
        objects.delete(key)
    assert list(dataset.damaged(objects, made["f00d2"])) == []
    np.testing.assert_array_equal(dataset.read_rows(objects, made["f00d2"], "train")[0], -x)


def test_two_batches_swapped_are_found(objects, made):
    first, second = (objects.read(keys.batch("f00d", "train", index)) for index in (0, 1))
    objects.write(keys.batch("f00d", "train", 0), second)
    objects.write(keys.batch("f00d", "train", 1), first)
    assert len(list(dataset.damaged(objects, made))) == 2


def with_index(objects, made, part, change):
    """The manifest of a data set one of whose indexes was changed, as if it had been written so."""
    key = keys.index("f00d", part)
    index = array_from_bytes(objects.read(key), key).copy()
    changed = change(index)
    objects.write(key, data := array_to_bytes(changed))
    listed = replace(made.parts[part], sha256=sha256(data), bytes=int(changed["bytes"].sum()))
    return replace(made, parts={**made.parts, part: listed})


def test_a_batch_of_another_shape_than_the_manifest_says_is_refused(objects, made):
    short = layout.batch_to_bytes(np.zeros((9, 3, 2, 1), np.float32), np.zeros(9, np.int32))
    objects.write(MIDDLE, short)

    def lie(index):
        index["sha256"][2] = np.frombuffer(bytes.fromhex(sha256(short)), np.uint8)
        index["bytes"][2] = len(short)
        return index

    with pytest.raises(DamagedObjectError, match=f"{MIDDLE} is no cached batch of 10 rows .3, 2, 1. float32"):
        dataset.read_rows(objects, with_index(objects, made, "train", lie), "train")


def test_an_index_that_does_not_list_every_batch_trusts_nothing(objects, made):
    short = with_index(objects, made, "train", lambda index: index[:-1])
    with pytest.raises(DamagedObjectError, match="train/index.npy is no index of 5 cached batches"):
        dataset.read_rows(objects, short, "train")
    other = with_index(objects, made, "test", lambda index: index[["sha256", "bytes"]])
    with pytest.raises(DamagedObjectError, match="test/index.npy is no index"):
        dataset.read_rows(objects, other, "test")


@pytest.mark.parametrize(
    "damage", [flipped, lambda data: data[:-1], lambda data: b""], ids=["one bit", "cut", "empty"]
)
def test_a_damaged_or_missing_index_is_named_and_no_row_of_its_part_is_read(objects, made, damage):
    key = keys.index("f00d", "holdout")
    objects.write(key, damage(objects.read(key)))
    with pytest.raises(DamagedObjectError, match=f"{key} is damaged"):
        dataset.read_rows(objects, made, "holdout")
    assert len(dataset.read_rows(objects, made, "test")[1]) == 9
    assert [key in fault for fault in dataset.damaged(objects, made)] == [True]
    objects.delete(key)
    with pytest.raises(MissingObjectError, match=key):
        dataset.read_rows(objects, made, "holdout")
    assert [key in fault for fault in dataset.damaged(objects, made)] == [True]


def test_a_missing_manifest_is_named(objects):
    with pytest.raises(MissingObjectError, match="datasets/f00d/manifest.json"):
        dataset.read_manifest(objects, "f00d")


@pytest.mark.parametrize("text", [b"", b"{}", b'{"format": 2', b"[]", b'{"format": 2}'])
def test_a_damaged_manifest_is_named(objects, made, text):
    objects.write(keys.dataset_manifest("f00d"), text)
    with pytest.raises(DamagedObjectError, match="datasets/f00d/manifest.json"):
        dataset.read_manifest(objects, "f00d")


def test_a_manifest_of_another_format_is_named_and_not_called_damaged(objects, made):
    for other, what in ((layout.FORMAT + 1, "upgrade fourfold, or prepare"), (1, "format 2: prepare")):
        # Nothing is known of what another format has in it.
        objects.write(keys.dataset_manifest("f00d"), json.dumps({"format": other, "parts": 7}).encode())
        found = f"datasets/f00d/manifest.json in .* has format {other}, this version reads .*{what} the data"
        with pytest.raises(StoreError, match=found) as refused:
            dataset.read_manifest(objects, "f00d")
        assert not isinstance(refused.value, DamagedObjectError)


def test_the_manifest_of_another_data_set_is_refused(objects, made):
    objects.write(keys.dataset_manifest("beef"), objects.read(keys.dataset_manifest("f00d")))
    with pytest.raises(DamagedObjectError, match="datasets/beef/manifest.json is the manifest of f00d"):
        dataset.read_manifest(objects, "beef")


@pytest.mark.parametrize("fails_at", range(12))
def test_whichever_write_fails_there_is_no_data_set(root, parts, describe, fails_at):
    store = FailingStore(root, fails_at)
    with pytest.raises(StoreError, match="no room"):
        dataset.write_dataset(store, describe(), parts)
    with pytest.raises(MissingObjectError):
        dataset.read_manifest(store, "f00d")
    dataset.write_dataset(FolderStore(root), describe(), parts)
    assert list(dataset.damaged(store, dataset.read_manifest(store, "f00d"))) == []


def test_the_manifest_is_the_last_write(root, parts, describe):
    store = FailingStore(root, 12)
    dataset.write_dataset(store, describe(), parts)
    assert store.left == 0
    assert dataset.read_manifest(store, "f00d").rows("train") == 47


SHARDS = [np.array([0, 2, 5], np.int64), np.array([1], np.int64), np.array([3, 4], np.int64)]


@pytest.fixture
def split(objects):
    digest = sha256(array_to_bytes(np.concatenate(SHARDS)))
    split = Split("5eed", "sizes:3,1,2", 0, [3, 1, 2], [[1, 2], [1, 0], [2, 0]], digest, ["said"])
    splits.write_split(objects, "f00d", split, SHARDS)
    return split


def test_a_split_is_read_back_equal(objects, split):
    found, shards = splits.read_split(objects, "f00d", "5eed")
    assert found == split
    assert [shard.tolist() for shard in shards] == [shard.tolist() for shard in SHARDS]


def test_a_missing_split_is_named(objects, split):
    with pytest.raises(MissingObjectError, match="datasets/f00d/splits/other.json"):
        splits.read_split(objects, "f00d", "other")
    objects.delete(keys.split_rows("f00d", "5eed"))
    with pytest.raises(MissingObjectError, match="datasets/f00d/splits/5eed.npy"):
        splits.read_split(objects, "f00d", "5eed")


@pytest.mark.parametrize("damage", [flipped, lambda data: data[:-8]], ids=["one bit", "cut"])
def test_damaged_row_numbers_are_named(objects, split, damage):
    key = keys.split_rows("f00d", "5eed")
    objects.write(key, damage(objects.read(key)))
    with pytest.raises(DamagedObjectError, match=key):
        splits.read_split(objects, "f00d", "5eed")


@pytest.mark.parametrize("sizes", [[3, 1, 1], [3, 1], [3, 1, 3]])
def test_a_description_with_other_sizes_is_named(objects, split, sizes):
    objects.write(keys.split("f00d", "5eed"), to_json(replace(split, sizes=sizes)))
    with pytest.raises(DamagedObjectError, match="splits/5eed.json"):
        splits.read_split(objects, "f00d", "5eed")


@pytest.mark.parametrize("key", [keys.split("f00d", "5eed"), keys.split_rows("f00d", "5eed")])
def test_writing_a_split_again_mends_what_is_damaged_and_leaves_what_is_whole(objects, root, split, key):
    whole = (root / key).stat().st_mtime_ns
    splits.write_split(objects, "f00d", split, SHARDS)
    assert (root / key).stat().st_mtime_ns == whole
    objects.write(key, b"damage")
    splits.write_split(objects, "f00d", split, SHARDS)
    assert splits.read_split(objects, "f00d", "5eed")[0] == split


def test_a_split_whose_writing_fails_half_way_does_not_exist(root, objects, split):
    other = replace(split, id="cafe")
    with pytest.raises(StoreError, match="no room"):
        splits.write_split(FailingStore(root, 1), "f00d", other, SHARDS)
    with pytest.raises(MissingObjectError, match="splits/cafe.json"):
        splits.read_split(objects, "f00d", "cafe")
