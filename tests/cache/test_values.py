"""Values as they are kept give the bits that preprocessing up front in the same dtype gives."""

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from hypothesis.extra import numpy as arrays

from fourfold.cache import layout, values
from fourfold.cache.budgets import Budgets
from fourfold.cache.dataset import read_rows, write_dataset
from fourfold.cache.reader import Reader
from fourfold.contract.caching import DTYPES, Caching
from fourfold.contract.datasets import DatasetManifest
from fourfold.contract.errors import InvalidInputError
from fourfold.prepare.step import prepare
from fourfold.store.objects import FolderStore, open_store

PIXELS = arrays.arrays(np.uint8, st.tuples(st.integers(0, 5), st.integers(1, 4)))


def up_front(x: np.ndarray, dtype: str) -> np.ndarray:
    """Preprocessing before anything else, in the dtype that is kept; the model sees float32."""
    ready = x.astype(np.float32) / np.float32(255)
    return ready.astype(np.float16).astype(np.float32) if dtype == "float16" else ready


@pytest.mark.parametrize("dtype", DTYPES)
@given(PIXELS)
def test_every_value_has_the_bits_of_preprocessing_up_front(dtype, x):
    kept = values.kept(x, dtype)
    assert kept.dtype == dtype
    ready = values.ready(kept, values.kept_scale(dtype))
    assert ready.dtype == np.float32
    assert ready.tobytes() == up_front(x, dtype).tobytes()


def test_all_256_pixel_values_are_the_same_bits_as_uint8_and_as_float32():
    x = np.arange(256, dtype=np.uint8)
    assert values.ready(x, 255.0).tobytes() == values.kept(x, "float32").tobytes()


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_data_set_gives_those_bits_by_every_way_of_reading(tmp_path, dtype):
    made = {
        d: prepare(str(tmp_path), rows=150, holdout=10, caching=Caching(dtype=d)) for d in ("float32", dtype)
    }
    store = open_store(str(tmp_path))
    manifest = made[dtype].manifest
    expected, _ = read_rows(store, made["float32"].manifest, "train")
    if dtype == "float16":
        expected = expected.astype(np.float16).astype(np.float32)
    at_once, _ = read_rows(store, manifest, "train")
    assert at_once.tobytes() == expected.tobytes()
    for ram in (10**9, 1):
        with Reader(store, manifest, "train", None, Budgets(ram)) as reader:
            x, _ = reader.epoch([np.arange(100), np.arange(100, 150)]).take(150)
        assert x.tobytes() == expected.tobytes()
    sizes = {name: each.manifest.bytes for name, each in made.items()}
    if dtype == "uint8":
        assert 3.5 < sizes["float32"] / sizes["uint8"] < 4


@settings(max_examples=25)
@given(
    x=arrays.arrays(np.uint8, st.tuples(st.integers(1, 9), st.integers(1, 3))),
    dtype=st.sampled_from(DTYPES),
    size=st.integers(1, 4),
)
def test_any_pixels_have_those_bits_after_the_store_too(tmp_path_factory, x, dtype, size):
    store, y = FolderStore(tmp_path_factory.mktemp("data")), np.zeros(len(x), np.int32)
    shape, scale = list(x.shape[1:]), values.kept_scale(dtype)
    manifest = DatasetManifest(
        layout.FORMAT, "beef", "made up", "ab", "x / 255", dtype, shape, ["a"], size, {}, scale
    )
    manifest = write_dataset(store, manifest, {"train": (values.kept(x, dtype), y)})
    expected = up_front(x, dtype).tobytes()
    assert read_rows(store, manifest, "train")[0].tobytes() == expected
    for ram in (10**9, 1):
        with Reader(store, manifest, "train", None, Budgets(ram)) as reader:
            places = np.arange(len(x))
            found, _ = reader.epoch(np.split(places, range(1, len(x)))).take(len(x))
        assert found.dtype == np.float32
        assert found.tobytes() == expected


def test_other_dtypes_and_what_uint8_cannot_keep_are_refused():
    with pytest.raises(
        InvalidInputError, match="unknown dtype 'int8' for cached batches: use float32, float16"
    ):
        values.kept(np.zeros(3, np.uint8), "int8")
    with pytest.raises(
        InvalidInputError, match="keep values as they came, and these came as float32: use float32"
    ):
        values.kept(np.zeros(3, np.float32), "uint8")
