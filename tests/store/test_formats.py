"""Arrays as bytes: what was written comes back, what is damaged is refused, and nothing is ever executed."""

import contextlib
import io
import json
import struct
import warnings
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
from hypothesis import given, strategies as st
from hypothesis.extra import numpy as npst

from fourfold.contract.errors import DamagedObjectError
from fourfold.store.formats import (
    array_from_bytes,
    array_to_bytes,
    arrays_from_bytes,
    arrays_to_bytes,
    sha256,
)

DTYPES = st.sampled_from(["uint8", "int32", "int64", "float16", "float32", "float64", "bool"])
ARRAYS = npst.arrays(DTYPES, npst.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=5))


class Bomb:
    """Makes a file when it is unpickled."""

    def __init__(self, path: Path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


def assert_same(found: np.ndarray, expected: np.ndarray):
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    assert found.tobytes() == expected.tobytes()


def assert_refused(reader, data: bytes):
    with pytest.raises(DamagedObjectError, match="train/000000.x.npy"):
        reader(data, "train/000000.x.npy")


@given(ARRAYS)
def test_an_array_comes_back_bit_for_bit(array):
    assert_same(array_from_bytes(array_to_bytes(array), "k"), array)


@given(st.dictionaries(st.text(st.characters(exclude_categories=["Cs"]), min_size=1), ARRAYS, max_size=4))
def test_named_arrays_come_back_bit_for_bit(arrays):
    arrays.pop("__metadata__", None)
    found = arrays_from_bytes(arrays_to_bytes(arrays), "k")
    assert set(found) == set(arrays)
    for name, array in arrays.items():
        assert_same(found[name], array)


def test_a_view_and_a_transposed_array_come_back_in_their_order():
    array = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    for view in (array.T, array[:, ::-1], array[..., 1:3], np.asfortranarray(array)):
        assert_same(array_from_bytes(array_to_bytes(view), "k"), view)
        assert_same(arrays_from_bytes(arrays_to_bytes({"v": view}), "k")["v"], view)


def test_the_npy_bytes_are_numpys_own():
    array = np.arange(6, dtype=np.int32).reshape(2, 3)
    assert_same(np.load(io.BytesIO(array_to_bytes(array)), allow_pickle=False), array)


def test_equal_arrays_give_equal_bytes_however_they_lie_in_memory():
    array = np.arange(6.0).reshape(2, 3)
    assert array_to_bytes(array) == array_to_bytes(np.asfortranarray(array))


def test_a_pickle_in_a_npy_is_refused_and_not_executed(tmp_path):
    buffer = io.BytesIO()
    np.save(buffer, np.array([Bomb(tmp_path / "executed")], dtype=object), allow_pickle=True)
    assert_refused(array_from_bytes, buffer.getvalue())
    assert not (tmp_path / "executed").exists()
    np.load(io.BytesIO(buffer.getvalue()), allow_pickle=True)
    assert (tmp_path / "executed").exists(), "the bomb is a dud, so the test shows nothing"


def test_an_object_array_is_not_written():
    with pytest.raises(ValueError, match="Object arrays"):
        array_to_bytes(np.array([{}], dtype=object))


@pytest.mark.parametrize("extra", [b"\0", b"abc", array_to_bytes(np.zeros(2))])
def test_bytes_after_the_array_are_refused_and_counted(extra):
    data = array_to_bytes(np.arange(5)) + extra
    with pytest.raises(DamagedObjectError, match=f"k has {len(extra)} bytes after its array"):
        array_from_bytes(data, "k")


def test_a_npy_cut_anywhere_is_refused():
    data = array_to_bytes(np.arange(5, dtype=np.float32))
    for length in range(len(data)):
        assert_refused(array_from_bytes, data[:length])


def test_a_safetensors_cut_anywhere_is_refused():
    data = arrays_to_bytes({"kernel": np.arange(5.0), "bias": np.zeros(2, np.float32)})
    for length in range(len(data)):
        assert_refused(arrays_from_bytes, data[:length])


@pytest.mark.parametrize("data", [b"", b"PK\x03\x04", b"<!DOCTYPE html>", b"\x93NUMPY", b"\x80\x04N."])
def test_other_files_are_refused(data):
    assert_refused(array_from_bytes, data)
    assert_refused(arrays_from_bytes, data)


@given(st.integers(0, 127), st.integers(1, 255))
def test_one_wrong_byte_in_a_npy_header_raises_nothing_but_damage(place, change):
    data = bytearray(array_to_bytes(np.arange(5)))
    data[place] ^= change
    with warnings.catch_warnings(), contextlib.suppress(DamagedObjectError):
        warnings.simplefilter("ignore")  # NumPy's own, about old names of dtypes.
        array_from_bytes(bytes(data), "k")


@pytest.mark.parametrize(
    ("place", "byte"), [(8, 1), (21, 44), (26, 66)], ids=["no Python", "no literal", "keys not text"]
)
def test_npy_headers_that_numpy_trips_over_are_refused(place, byte):
    data = bytearray(array_to_bytes(np.arange(5.0)))
    data[place] = byte
    assert_refused(array_from_bytes, bytes(data))


def safetensors_bytes(header: dict, data: bytes) -> bytes:
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


@pytest.mark.parametrize(
    ("header", "data"),
    [
        ({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}}, bytes(4)),
        ({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}, bytes(5)),
        ({"a": {"dtype": "F32", "shape": [1], "data_offsets": [4, 8]}}, bytes(8)),
        ({"a": {"dtype": "BF16", "shape": [1], "data_offsets": [0, 2]}}, bytes(2)),
        ({"a": {"dtype": "Q7", "shape": [1], "data_offsets": [0, 4]}}, bytes(4)),
        ([], b""),
    ],
    ids=["shape too large", "bytes too many", "a hole", "a type that NumPy has not", "no type", "no table"],
)
def test_safetensors_whose_header_lies_are_refused(header, data):
    assert_refused(arrays_from_bytes, safetensors_bytes(header, data))


def test_safetensors_of_others_are_read():
    data = safetensors.numpy.save({"w": np.arange(3.0)}, metadata={"format": "np"})
    assert arrays_from_bytes(data, "k")["w"].tolist() == [0, 1, 2]


def test_sha256_is_the_published_one():
    assert sha256(b"abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
