"""The bytes of a data set: NumPy alone reads them, nothing is ever unpickled, no damage goes unseen."""

import hashlib
import io
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, strategies as st

from fourfold.cache import dataset, layout
from fourfold.contract import keys
from fourfold.contract.errors import DamagedObjectError, StoreError
from fourfold.store.formats import array_from_bytes, array_to_bytes
from fourfold.store.objects import FolderStore

SHAPE = (3, 2, 1)
KEY = keys.batch("f00d", "train", 2)


@pytest.fixture(scope="module")
def written(tmp_path_factory, parts, describe):
    """A store that no test changes, with a data set in it."""
    store = FolderStore(tmp_path_factory.mktemp("written"))
    return store, dataset.write_dataset(store, describe(), parts)


@pytest.fixture(scope="module")
def batches(written):
    store, manifest = written
    return dataset.Batches(store, manifest, "train")


@pytest.fixture(scope="module")
def data(written):
    return written[0].read(KEY)


def test_numpy_json_and_hashlib_are_all_that_is_needed_to_read_a_data_set(root, made, parts):
    folder = root / "datasets" / "f00d"
    manifest = json.loads((folder / "manifest.json").read_text())
    for part, (x, y) in parts.items():
        listed, index = manifest["parts"][part], np.load(folder / part / "index.npy", allow_pickle=False)
        assert hashlib.sha256((folder / part / "index.npy").read_bytes()).hexdigest() == listed["sha256"]
        assert len(index) == listed["batches"]
        for number, entry in enumerate(index):
            path = folder / part / f"{number:09d}.npy"
            assert hashlib.sha256(path.read_bytes()).digest() == entry["sha256"].tobytes()
            assert path.stat().st_size == entry["bytes"]
            with path.open("rb") as file:
                found_x, found_y = np.load(file, allow_pickle=False), np.load(file, allow_pickle=False)
                assert file.read() == b""
            rows = slice(number * manifest["rows_per_batch"], (number + 1) * manifest["rows_per_batch"])
            assert (found_x.dtype, found_y.dtype) == (manifest["dtype"], np.int32)
            np.testing.assert_array_equal(found_x, x[rows])
            np.testing.assert_array_equal(found_y, y[rows])
            np.testing.assert_array_equal(entry["classes"], np.bincount(found_y, minlength=3))


# Never a pickle.


class Bomb:
    """Makes a file when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


@pytest.fixture
def pickled(tmp_path):
    """A ``.npy`` that makes a file when it is unpickled, and the file."""
    buffer, path = io.BytesIO(), tmp_path / "ran"
    np.save(buffer, np.array([Bomb(path)] * 10, dtype=object), allow_pickle=True)
    yield buffer.getvalue(), path
    np.load(io.BytesIO(buffer.getvalue()), allow_pickle=True)
    assert path.exists(), "the bomb was none"


def test_a_pickle_in_a_cached_batch_is_refused_and_nothing_runs_though_its_sha256_is_right(
    objects, made, pickled
):
    (npy, ran), key = pickled, keys.index("f00d", "train")
    x, y = array_to_bytes(np.zeros((10, *SHAPE), np.float32)), array_to_bytes(np.zeros(10, np.int32))
    for data in (npy, npy + y, x + npy):
        objects.write(KEY, data)
        index = array_from_bytes(objects.read(key), key).copy()
        index["sha256"][2] = np.frombuffer(hashlib.sha256(data).digest(), np.uint8)
        index["bytes"][2] = len(data)
        objects.write(key, array_to_bytes(index))
        listed = replace(
            made.parts["train"],
            sha256=hashlib.sha256(objects.read(key)).hexdigest(),
            bytes=int(index["bytes"].sum()),
        )
        lying = replace(made, parts={**made.parts, "train": listed})
        with pytest.raises(DamagedObjectError, match=f"{KEY} is no cached batch of 10 rows"):
            dataset.read_rows(objects, lying, "train")
        assert not ran.exists()


def test_a_pickle_for_an_index_is_refused_and_nothing_runs_though_its_sha256_is_right(objects, made, pickled):
    (npy, ran), key = pickled, keys.index("f00d", "train")
    objects.write(key, npy)
    listed = replace(made.parts["train"], sha256=hashlib.sha256(npy).hexdigest())
    lying = replace(made, parts={**made.parts, "train": listed})
    with pytest.raises(DamagedObjectError, match=f"{key} is not a .npy array"):
        dataset.read_rows(objects, lying, "train")
    assert not ran.exists()


def test_rows_that_are_objects_are_not_written(objects, parts, describe):
    x = np.array([{}] * 47, dtype=object)
    with pytest.raises(ValueError, match="Object arrays cannot be saved"):
        dataset.write_dataset(objects, describe(), {"train": (x, parts["train"][1])})
    assert objects.list("") == []


# Damage.


@pytest.mark.parametrize(
    ("rows", "shape", "dtype"),
    [(9, SHAPE, "float32"), (11, SHAPE, "float32"), (10, (2, 3, 1), "float32"), (10, (3, 2), "float32"),
     (10, SHAPE, "float16"), (10, SHAPE, "uint8"), (10, SHAPE, ">f4")],
)  # fmt: skip
def test_a_batch_of_other_rows_shape_or_dtype_is_refused_by_name(data, rows, shape, dtype):
    assert layout.batch_from_bytes(data, KEY, 10, SHAPE, "float32")[1].tolist() == [2, 0, 1] * 3 + [2]
    with pytest.raises(DamagedObjectError, match=f"{KEY} is no cached batch of {rows} rows"):
        layout.batch_from_bytes(data, KEY, rows, shape, dtype)


def test_class_numbers_of_another_type_or_number_are_refused_by_name():
    x = array_to_bytes(np.zeros((10, *SHAPE), np.float32))
    for y in (
        np.zeros(10, np.int64),
        np.zeros(10, np.float32),
        np.zeros(9, np.int32),
        np.zeros((10, 1), "i4"),
    ):
        with pytest.raises(DamagedObjectError, match=f"{KEY} is no cached batch of 10 rows"):
            layout.batch_from_bytes(x + array_to_bytes(y), KEY, 10, SHAPE, "float32")


def test_a_batch_that_is_cut_anywhere_is_refused_by_name(data, batches):
    for cut in range(len(data)):
        with pytest.raises(DamagedObjectError, match=KEY):
            layout.batch_from_bytes(data[:cut], KEY, 10, SHAPE, "float32")
        with pytest.raises(DamagedObjectError, match=KEY):
            batches.decode(2, data[:cut])


@given(st.binary(min_size=1, max_size=40))
def test_bytes_after_the_rows_are_refused_and_counted(data, batches, more):
    with pytest.raises(DamagedObjectError, match=f"{KEY} has {len(more)} bytes after its rows"):
        layout.batch_from_bytes(data + more, KEY, 10, SHAPE, "float32")
    with pytest.raises(DamagedObjectError, match=KEY):
        batches.decode(2, data + more)


@pytest.mark.parametrize("is_known", [False, True], ids=["the first time", "once it was seen whole"])
@given(index=st.sampled_from([2, 4]), place=st.floats(0, 1, exclude_max=True), change=st.integers(1, 255))
@example(index=2, place=0.0, change=1)
@example(index=4, place=1 - 1e-9, change=128)
def test_any_byte_that_is_not_as_it_was_is_found(written, is_known, index, place, change):
    """The size of the last batch is no multiple of the words that are summed."""
    store, manifest = written
    batches = dataset.Batches(store, manifest, "train")
    data = store.read(batches.key(index))
    assert (len(data) % 8 == 0) == (index == 2)
    if is_known:
        batches.decode(index, data)
    at = int(place * len(data))
    with pytest.raises(DamagedObjectError, match=f"{batches.key(index)} in file://.* is damaged: its sha256"):
        batches.decode(index, data[:at] + bytes([data[at] ^ change]) + data[at + 1 :])
    assert len(batches.decode(index, data)[1]) == batches.rows(index)


def test_any_bit_of_a_manifest_that_is_not_as_it_was_is_found_or_changes_no_row(objects, root, made):
    path = root / keys.dataset_manifest("f00d")
    whole, refused = path.read_bytes(), 0

    def needed(manifest):
        counted = {name: (each.batches, each.rows, each.sha256) for name, each in manifest.parts.items()}
        return manifest.dtype, manifest.shape, manifest.rows_per_batch, manifest.scale, counted

    for at in range(len(whole)):
        for bit in range(8):
            path.write_bytes(whole[:at] + bytes([whole[at] ^ 1 << bit]) + whole[at + 1 :])
            try:
                found = dataset.read_manifest(objects, "f00d")
                for part in made.parts:
                    dataset.Batches(objects, found, part).decode(0, objects.read(keys.batch("f00d", part, 0)))
            except StoreError as error:
                assert "datasets/f00d/" in str(error)
                refused += 1
                continue
            assert needed(found) == needed(made)
    assert refused > len(whole)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"dtype": "float64"}, "its dtype 'float64' is none of float32, float16, uint8"),
        ({"dtype": "object"}, "its dtype 'object' is none of"),
        ({"scale": 2.0}, "its values of float32 cannot have the scale 2.0"),
        ({"dtype": "uint8", "scale": 0.0}, "its values of uint8 cannot have the scale 0.0"),
        ({"rows_per_batch": 0}, "the rows of its part train do not add up"),
        ({"rows_per_batch": 9}, "the rows of its part train do not add up"),
        ({"class_names": ["a", "b"]}, "the rows of its part train do not add up"),
    ],
)
def test_a_manifest_that_contradicts_itself_is_refused_with_what_is_wrong(made, changes, said):
    assert layout.contradiction(made) == ""
    assert said in layout.contradiction(replace(made, **changes))


@pytest.mark.parametrize("change", [{"rows": 46}, {"batches": 4}, {"classes": [16, 16, 16]}])
def test_a_part_that_does_not_add_up_is_refused(made, change):
    lying = replace(made, parts={**made.parts, "train": replace(made.parts["train"], **change)})
    assert layout.contradiction(lying) == "the rows of its part train do not add up"


@pytest.mark.parametrize("change", [{"bytes": 1}, {"classes": [17, 15, 15]}])
def test_an_index_that_does_not_add_up_to_its_manifest_is_refused_by_name(objects, made, change):
    lying = replace(made, parts={**made.parts, "train": replace(made.parts["train"], **change)})
    with pytest.raises(DamagedObjectError, match="train/index.npy does not add up to what the manifest says"):
        dataset.Batches(objects, lying, "train")


def test_a_part_that_a_data_set_does_not_have_is_told_with_those_it_has(objects, made):
    for read in (dataset.Batches, dataset.read_rows):
        with pytest.raises(
            DamagedObjectError, match="manifest.json has no part 'dev' .train, holdout, test."
        ):
            read(objects, made, "dev")
