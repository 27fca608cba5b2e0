"""Sources: the packaged sample, MNIST by name, folders of IDX files, and what is wrong with them."""

import gzip
from pathlib import Path

import numpy as np
import pytest

from fourfold.contract.errors import InvalidInputError
from fourfold.prepare import download, idx, source
from fourfold.prepare.step import prepare

TRAIN_X, TRAIN_Y, TEST_X, TEST_Y = download.MD5_OF_UNCOMPRESSED


@pytest.fixture
def refused(make_folder, tmp_path):
    """Makes a folder with changed files, prepares from it, returns the error; nothing may be written."""

    def read(changed: dict[str, bytes | None]) -> str:
        folder = make_folder(changed)
        with pytest.raises(InvalidInputError) as error:
            prepare(str(tmp_path / "store"), data=str(folder), rows=4, holdout=4)
        assert not (tmp_path / "store").exists()
        return str(error.value)

    return read


def test_a_folder_is_read_whole(idx_folder, arrays):
    read = source.read(str(idx_folder))
    np.testing.assert_array_equal(read.train_x[..., 0], arrays[TRAIN_X])
    np.testing.assert_array_equal(read.train_y, arrays[TRAIN_Y])
    np.testing.assert_array_equal(read.test_x[..., 0], arrays[TEST_X])
    np.testing.assert_array_equal(read.test_y, arrays[TEST_Y])
    assert read.train_x.shape == (60, 5, 4, 1)
    assert (read.train_x.dtype, read.train_y.dtype) == (np.uint8, np.int32)
    assert (read.name, read.class_names) == ("digits", tuple("0123456789"))


def test_raw_files_and_gzip_files_are_one_source(idx_folder, make_folder, arrays, idx_bytes):
    raw = {f"{name}.gz": None for name in arrays} | {name: idx_bytes(a) for name, a in arrays.items()}
    disguised = {f"{TRAIN_X}.gz": idx_bytes(arrays[TRAIN_X]), f"{TEST_Y}.gz": None}
    disguised[TEST_Y] = gzip.compress(idx_bytes(arrays[TEST_Y]))
    digests = {
        source.read(str(folder)).sha256
        for folder in (idx_folder, make_folder(raw, "raw"), make_folder(disguised, "disguised"))
    }
    assert len(digests) == 1


@pytest.mark.parametrize("name", [TRAIN_X, TRAIN_Y, TEST_X, TEST_Y])
def test_one_changed_byte_in_any_file_is_another_source(idx_folder, make_folder, arrays, idx_bytes, name):
    array = arrays[name].copy()
    array.flat[-1] ^= 1
    changed = make_folder({f"{name}.gz": idx_bytes(array)}, "changed")
    assert source.read(str(changed)).sha256 != source.read(str(idx_folder)).sha256


@pytest.mark.parametrize("name", [TRAIN_X, TRAIN_Y, TEST_X, TEST_Y])
def test_a_missing_file_is_named(refused, name):
    message = refused({f"{name}.gz": None})
    assert f"has no {name} and no {name}.gz" in message


@pytest.mark.parametrize("name", [TRAIN_X, TRAIN_Y, TEST_X, TEST_Y])
@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda data: data[: len(data) // 2], "is cut"),
        (lambda data: b"", "is empty"),
        (lambda data: gzip.decompress(data)[:-1], "is cut"),
        (lambda data: gzip.decompress(data) + b"abc", "has bytes after its end"),
        (lambda data: b"<!DOCTYPE html>", "web page"),
    ],
    ids=["cut gzip", "empty", "cut", "longer", "web page"],
)
def test_a_broken_file_is_named_and_nothing_is_written(refused, arrays, idx_bytes, name, damage, said):
    message = refused({f"{name}.gz": damage(gzip.compress(idx_bytes(arrays[name])))})
    assert f"{name}.gz {said}" in message or f"{name}.gz is a {said}" in message


def test_images_and_labels_swapped_are_refused(refused, arrays, idx_bytes):
    message = refused({TRAIN_X: idx_bytes(arrays[TRAIN_Y]), TRAIN_Y: idx_bytes(arrays[TRAIN_X])})
    assert "are the two files swapped?" in message


def test_60_images_with_10_labels_are_refused(refused, arrays, idx_bytes):
    message = refused({f"{TRAIN_Y}.gz": idx_bytes(arrays[TRAIN_Y][:10])})
    assert f"{TRAIN_X}.gz has 60 images but" in message
    assert f"{TRAIN_Y}.gz has 10 labels" in message


def test_training_images_with_test_labels_are_refused(refused, arrays, idx_bytes):
    assert "has 20 labels" in refused({f"{TRAIN_Y}.gz": idx_bytes(arrays[TEST_Y])})


def test_a_source_without_rows_is_refused(refused, idx_bytes):
    message = refused({TEST_X: idx_bytes(np.zeros((0, 5, 4))), TEST_Y: idx_bytes(np.zeros(0))})
    assert f"{TEST_X} has no rows" in message


def test_images_of_two_sizes_are_refused(refused, idx_bytes):
    message = refused({TEST_X: idx_bytes(np.zeros((20, 4, 5)))})
    assert "has images of (5, 4)" in message
    assert "of (4, 5): they must have one size" in message


@pytest.mark.parametrize(("name", "row"), [(TRAIN_Y, 59), (TEST_Y, 3)])
def test_label_10_is_refused_with_its_row(refused, arrays, idx_bytes, name, row):
    labels = arrays[name].copy()
    labels[row] = 10
    message = refused({name: idx_bytes(labels)})
    assert f"{name}: label of row {row} is 10, allowed are whole numbers from 0 to 9 (1 such rows)" in message


@pytest.mark.parametrize(
    ("value", "dtype", "said"),
    [(-1, np.int8, "-1"), (10, np.uint8, "10"), (3.5, np.float32, "3.5"), (np.nan, np.float64, "nan")],
)
def test_a_wrong_label_is_refused_with_its_row(value, dtype, said):
    labels = np.array([0, 9, 4, value, 5, value], dtype=dtype)
    with pytest.raises(InvalidInputError, match=rf"set: label of row 3 is {said}, .*\(2 such rows\)"):
        source.check_labels(labels, 10, "set")


@pytest.mark.parametrize("labels", [np.zeros((4, 1), int), np.array(["1"]), np.array([True])])
def test_labels_that_are_no_list_of_numbers_are_refused(labels):
    with pytest.raises(InvalidInputError, match="one whole number a row"):
        source.check_labels(labels, 10, "set")


@pytest.mark.parametrize("dtype", [np.uint8, np.int64, np.float32])
def test_whole_labels_of_any_type_become_int32(dtype):
    checked = source.check_labels(np.array([0, 9, 4], dtype=dtype), 10, "set")
    assert checked.dtype == np.int32
    assert checked.tolist() == [0, 9, 4]


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_pixel_that_is_not_finite_is_refused_with_its_row(value):
    x = np.zeros((5, 3, 2, 1), np.float32)
    x[2, 1, 1, 0] = x[4, 0, 0, 0] = value
    with pytest.raises(InvalidInputError, match=r"set: row 2 holds NaN or infinity \(2 such rows\)"):
        source.check_values(x, "set")
    source.check_values(np.zeros((5, 3), np.float32), "set")


@pytest.mark.parametrize("data", ["", "nowhere", "minst", __file__])
def test_what_is_no_source_is_refused_with_what_is(data):
    with pytest.raises(InvalidInputError) as error:
        source.read(data)
    for word in (repr(data), "'sample'", "'mnist'", TRAIN_X):
        assert word in str(error.value)


def test_the_sample_is_whole_and_carries_its_licence():
    read = source.read("sample")
    assert read.train_x.shape == (10_000, 28, 28, 1)
    assert read.test_x.shape == (2_000, 28, 28, 1)
    assert read.class_names == tuple("0123456789")
    assert set(read.train_y) == set(read.test_y) == set(range(10))
    licence = (source.SAMPLE / "LICENSE.txt").read_text()
    assert "Attribution-ShareAlike 3.0" in licence
    assert "Changes:" in licence


def test_the_sample_is_the_first_rows_of_mnist(full_mnist):
    read = source.read("sample")
    for name, found in zip(
        (TRAIN_X, TRAIN_Y, TEST_X, TEST_Y),
        (read.train_x, read.train_y, read.test_x, read.test_y),
        strict=True,
    ):
        whole = idx.read(full_mnist / f"{name}.gz", 3 if "images" in name else 1).values
        np.testing.assert_array_equal(
            found.reshape(len(found), -1), whole[: len(found)].reshape(len(found), -1)
        )


def test_mnist_by_name_is_read_from_the_named_folder(full_mnist, monkeypatch):
    monkeypatch.setenv(source.FOLDER, str(full_mnist))
    monkeypatch.setenv(source.MIRRORS, "http://127.0.0.1:1/")
    read = source.read("mnist")
    assert (read.name, len(read.train_y), len(read.test_y)) == ("MNIST", 60_000, 10_000)


def test_mnist_by_name_is_refused_where_the_named_folder_holds_other_files(idx_folder, monkeypatch):
    monkeypatch.setenv(source.FOLDER, str(idx_folder))
    with pytest.raises(InvalidInputError, match=rf"{TRAIN_X}.gz is not MNIST's .*expected 6bbc9ace.*--data"):
        source.read("mnist")


def test_mnist_by_name_is_fetched_into_the_cache(make_mirror, make_folder, monkeypatch):
    served = make_folder(name="served")
    files = {path.name: path.read_bytes() for path in served.iterdir()}
    md5s = {
        name: download.md5(idx.uncompressed(served / f"{name}.gz")) for name in download.MD5_OF_UNCOMPRESSED
    }
    monkeypatch.setattr(download, "MD5_OF_UNCOMPRESSED", md5s)
    url, asked = make_mirror(files)
    monkeypatch.setenv(source.MIRRORS, f"http://127.0.0.1:1/ {url}")
    assert source.read("mnist").sha256 == source.read(str(served)).sha256
    assert source.read("mnist").name == "MNIST"
    assert sorted(asked) == sorted(files)
    assert {path.name for path in (source.cache_folder() / "mnist").iterdir()} == set(files)


def test_downloads_go_to_the_users_cache(monkeypatch, tmp_path):
    assert source.cache_folder() == tmp_path / "cache-home" / "fourfold"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert source.cache_folder() == Path(tmp_path, ".cache", "fourfold")
