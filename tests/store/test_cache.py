"""The batch cache: a name for every content, whole or not there, and every damage found and named."""

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from fourfold.contract import keys
from fourfold.contract.errors import DamagedObjectError, InvalidInputError, MissingObjectError, StoreError
from fourfold.contract.records import Split
from fourfold.contract.strict import to_json
from fourfold.store import cache
from fourfold.store.formats import array_to_bytes, sha256
from fourfold.store.objects import FolderStore

CONTENT = {"source": "ab12", "rows": 2000, "holdout": 1000, "dtype": "float32", "rows_per_batch": 100}
JSON = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
)
MIDDLE = keys.batch("f00d", "train", 2, "x")


class FailingStore(FolderStore):
    """A store whose n-th write, counted from 0, fails."""

    def __init__(self, root, fails_at):
        super().__init__(root)
        self.left = fails_at

    def write(self, key, data):
        if self.left == 0:
            raise StoreError(f"no room for {key}")
        self.left -= 1
        super().write(key, data)


@pytest.fixture(scope="module")
def written(tmp_path_factory, parts, describe):
    """A store that no test changes, with a data set in it."""
    store = FolderStore(tmp_path_factory.mktemp("written"))
    return store, cache.write_dataset(store, describe(), parts)


@pytest.mark.parametrize("name", CONTENT)
def test_the_fingerprint_changes_with_every_part_of_the_content(name):
    value = CONTENT[name]
    changed = {**CONTENT, name: value + 1 if isinstance(value, int) else value + "x"}
    assert cache.fingerprint(changed) != cache.fingerprint(CONTENT)
    assert cache.fingerprint({k: v for k, v in CONTENT.items() if k != name}) != cache.fingerprint(CONTENT)


@given(st.dictionaries(st.text(), JSON), st.randoms())
def test_the_fingerprint_does_not_change_with_the_order(content, random):
    names = list(content)
    random.shuffle(names)
    name = cache.fingerprint({name: content[name] for name in names})
    assert name == cache.fingerprint(content)
    assert len(name) == 32
    assert int(name, 16) >= 0


def test_the_fingerprint_changes_with_the_layout_of_the_cache(monkeypatch):
    before = cache.fingerprint(CONTENT)
    monkeypatch.setattr(cache, "FORMAT", cache.FORMAT + 1)
    assert cache.fingerprint(CONTENT) != before


def test_content_that_is_not_json_has_no_fingerprint():
    with pytest.raises(ValueError, match="Out of range float"):
        cache.fingerprint({**CONTENT, "mean": float("nan")})


def test_what_is_written_is_read_back_equal(objects, dataset, parts):
    manifest = cache.read_manifest(objects, "f00d")
    assert manifest == dataset
    assert list(cache.damaged(objects, manifest)) == []
    for part, (x, y) in parts.items():
        found_x, found_y = cache.read_rows(objects, manifest, part)
        assert (found_x.dtype, found_y.dtype) == (np.float32, np.int32)
        np.testing.assert_array_equal(found_x, x)
        np.testing.assert_array_equal(found_y, y)


def test_the_manifest_lists_every_batch_as_it_lies_in_the_store(objects, dataset):
    assert [batch.rows for batch in dataset.parts["train"]] == [10, 10, 10, 10, 7]
    assert [batch.index for batch in dataset.parts["train"]] == [0, 1, 2, 3, 4]
    assert dataset.classes("train") == [16, 16, 15]
    expected = {keys.dataset_manifest("f00d")}
    for part, batches in dataset.parts.items():
        for batch in batches:
            stored = {array: objects.read(keys.batch("f00d", part, batch.index, array)) for array in "xy"}
            assert batch.sha256 == {array: sha256(data) for array, data in stored.items()}
            assert batch.bytes == sum(map(len, stored.values()))
            expected |= {keys.batch("f00d", part, batch.index, array) for array in "xy"}
    assert set(objects.list("")) == expected


def test_progress_counts_every_batch(objects, parts, describe):
    told = []
    cache.write_dataset(objects, describe(), parts, progress=lambda done, total: told.append((done, total)))
    assert told == [(done, 8) for done in range(1, 9)]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sets(st.integers(0, 46)).map(sorted))
def test_any_rows_are_those_of_fancy_indexing(written, parts, numbers):
    store, manifest = written
    x, y = cache.read_rows(store, manifest, "train", np.array(numbers, dtype=np.int64))
    np.testing.assert_array_equal(x, parts["train"][0][numbers])
    np.testing.assert_array_equal(y, parts["train"][1][numbers])


def test_rows_may_be_asked_for_in_any_order_and_twice(written, parts):
    store, manifest = written
    numbers = np.array([46, 0, 10, 9, 0])
    x, _ = cache.read_rows(store, manifest, "train", numbers)
    np.testing.assert_array_equal(x, parts["train"][0][numbers])


@pytest.mark.parametrize("numbers", [[-1], [0, 47], [-1, 3]])
def test_rows_out_of_range_are_refused(written, numbers):
    store, manifest = written
    with pytest.raises(InvalidInputError, match="train has rows 0 to 46"):
        cache.read_rows(store, manifest, "train", np.array(numbers))


def test_only_the_batches_that_hold_the_rows_are_read(objects, dataset):
    for index in (0, 1, 3, 4):
        objects.delete(keys.batch("f00d", "train", index, "x"))
    assert len(cache.read_rows(objects, dataset, "train", np.array([20, 29]))[1]) == 2


def flipped(data: bytes) -> bytes:
    return data[:-3] + bytes([data[-3] ^ 1]) + data[-2:]


@pytest.mark.parametrize("array", ["x", "y"])
@pytest.mark.parametrize(
    "damage", [flipped, lambda data: data[:-1], lambda data: data + b"\0", lambda data: b""],
    ids=["one bit", "cut", "longer", "empty"],
)  # fmt: skip
def test_a_damaged_object_is_named_and_never_read(objects, dataset, array, damage):
    key = keys.batch("f00d", "train", 2, array)
    objects.write(key, damage(objects.read(key)))
    with pytest.raises(DamagedObjectError, match=key):
        cache.read_rows(objects, dataset, "train")
    assert [key in fault for fault in cache.damaged(objects, dataset)] == [True]


@pytest.mark.parametrize("array", ["x", "y"])
def test_a_missing_batch_is_named(objects, dataset, array):
    key = keys.batch("f00d", "holdout", 1, array)
    objects.delete(key)
    with pytest.raises(MissingObjectError, match=key):
        cache.read_rows(objects, dataset, "holdout")
    assert [key in fault for fault in cache.damaged(objects, dataset)] == [True]


def test_two_batches_swapped_are_found(objects, dataset):
    first, second = (objects.read(keys.batch("f00d", "train", index, "x")) for index in (0, 1))
    objects.write(keys.batch("f00d", "train", 0, "x"), second)
    objects.write(keys.batch("f00d", "train", 1, "x"), first)
    assert len(list(cache.damaged(objects, dataset))) == 2


def test_a_batch_of_another_shape_than_the_manifest_says_is_refused(objects, dataset):
    short = array_to_bytes(np.zeros((9, 3, 2, 1), np.float32))
    objects.write(MIDDLE, short)
    batch = dataset.parts["train"][2]
    batches = list(dataset.parts["train"])
    batches[2] = replace(batch, sha256={**batch.sha256, "x": sha256(short)})
    lying = replace(dataset, parts={**dataset.parts, "train": batches})
    with pytest.raises(DamagedObjectError, match="train/2 holds .9, 3, 2, 1., not .10, 3, 2, 1."):
        cache.read_rows(objects, lying, "train")


def test_a_manifest_without_an_objects_sha256_trusts_nothing(objects, dataset):
    bare = replace(dataset, parts={"test": [replace(dataset.parts["test"][0], sha256={})]})
    with pytest.raises(DamagedObjectError, match="test/000000.x.npy"):
        cache.read_rows(objects, bare, "test")


def test_a_missing_manifest_is_named(objects):
    with pytest.raises(MissingObjectError, match="datasets/f00d/manifest.json"):
        cache.read_manifest(objects, "f00d")


@pytest.mark.parametrize("text", [b"", b"{}", b'{"format": 1', b"[]"])
def test_a_damaged_manifest_is_named(objects, dataset, text):
    objects.write(keys.dataset_manifest("f00d"), text)
    with pytest.raises(DamagedObjectError, match="datasets/f00d/manifest.json"):
        cache.read_manifest(objects, "f00d")


def test_a_manifest_of_a_newer_format_is_named_and_not_called_damaged(objects, dataset):
    newer = json.loads(to_json(dataset)) | {"format": cache.FORMAT + 1}
    objects.write(keys.dataset_manifest("f00d"), json.dumps(newer).encode())
    with pytest.raises(StoreError, match="datasets/f00d/manifest.json has format 2.*upgrade") as refused:
        cache.read_manifest(objects, "f00d")
    assert not isinstance(refused.value, DamagedObjectError)


def test_the_manifest_of_another_data_set_is_refused(objects, dataset):
    objects.write(keys.dataset_manifest("beef"), objects.read(keys.dataset_manifest("f00d")))
    with pytest.raises(DamagedObjectError, match="datasets/beef/manifest.json is the manifest of f00d"):
        cache.read_manifest(objects, "beef")


@pytest.mark.parametrize("fails_at", range(17))
def test_whichever_write_fails_there_is_no_data_set(root, parts, describe, fails_at):
    store = FailingStore(root, fails_at)
    with pytest.raises(StoreError, match="no room"):
        cache.write_dataset(store, describe(), parts)
    with pytest.raises(MissingObjectError):
        cache.read_manifest(store, "f00d")


def test_the_manifest_is_the_seventeenth_and_last_write(root, parts, describe):
    store = FailingStore(root, 17)
    cache.write_dataset(store, describe(), parts)
    assert store.left == 0
    assert cache.read_manifest(store, "f00d").rows("train") == 47


SHARDS = [np.array([0, 2, 5], np.int64), np.array([1], np.int64), np.array([3, 4], np.int64)]


@pytest.fixture
def split(objects):
    digest = sha256(array_to_bytes(np.concatenate(SHARDS)))
    split = Split("5eed", "sizes:3,1,2", 0, [3, 1, 2], [[1, 2], [1, 0], [2, 0]], digest, ["said"])
    cache.write_split(objects, "f00d", split, SHARDS)
    return split


def test_a_split_is_read_back_equal(objects, split):
    found, shards = cache.read_split(objects, "f00d", "5eed")
    assert found == split
    assert [shard.tolist() for shard in shards] == [shard.tolist() for shard in SHARDS]


def test_a_missing_split_is_named(objects, split):
    with pytest.raises(MissingObjectError, match="datasets/f00d/splits/other.json"):
        cache.read_split(objects, "f00d", "other")
    objects.delete(keys.split_rows("f00d", "5eed"))
    with pytest.raises(MissingObjectError, match="datasets/f00d/splits/5eed.npy"):
        cache.read_split(objects, "f00d", "5eed")


@pytest.mark.parametrize("damage", [flipped, lambda data: data[:-8]], ids=["one bit", "cut"])
def test_damaged_row_numbers_are_named(objects, split, damage):
    key = keys.split_rows("f00d", "5eed")
    objects.write(key, damage(objects.read(key)))
    with pytest.raises(DamagedObjectError, match=key):
        cache.read_split(objects, "f00d", "5eed")


@pytest.mark.parametrize("sizes", [[3, 1, 1], [3, 1], [3, 1, 3]])
def test_a_description_with_other_sizes_is_named(objects, split, sizes):
    objects.write(keys.split("f00d", "5eed"), to_json(replace(split, sizes=sizes)))
    with pytest.raises(DamagedObjectError, match="splits/5eed.json"):
        cache.read_split(objects, "f00d", "5eed")


@pytest.mark.parametrize("key", [keys.split("f00d", "5eed"), keys.split_rows("f00d", "5eed")])
def test_writing_a_split_again_mends_what_is_damaged_and_leaves_what_is_whole(objects, root, split, key):
    whole = (root / key).stat().st_mtime_ns
    cache.write_split(objects, "f00d", split, SHARDS)
    assert (root / key).stat().st_mtime_ns == whole
    objects.write(key, b"damage")
    cache.write_split(objects, "f00d", split, SHARDS)
    assert cache.read_split(objects, "f00d", "5eed")[0] == split


def test_a_split_whose_writing_fails_half_way_does_not_exist(root, objects, split):
    other = replace(split, id="cafe")
    with pytest.raises(StoreError, match="no room"):
        cache.write_split(FailingStore(root, 1), "f00d", other, SHARDS)
    with pytest.raises(MissingObjectError, match="splits/cafe.json"):
        cache.read_split(objects, "f00d", "cafe")
