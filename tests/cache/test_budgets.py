"""Budgets: numbers of bytes as people write them, the container's limit, where the disk tier is."""

import numpy as np
import pytest
from hypothesis import given, strategies as st

from fourfold.cache import budgets
from fourfold.cache.budgets import bytes_of, in_words, memory_limit
from fourfold.cache.reader import fit
from fourfold.contract.caching import Caching
from fourfold.contract.errors import InvalidInputError


@pytest.mark.parametrize(
    ("text", "size"),
    [("0", 0), ("512", 512), ("1k", 1000), ("300M", 300 * 10**6), ("2Gi", 2 * 2**30), ("1.5Gi", 3 * 2**29),
     ("4G", 4 * 10**9), (" 10 MB ", 10**7), ("1TiB", 2**40), ("1Ki", 1024)],
)  # fmt: skip
def test_bytes_are_read_as_kubernetes_writes_them(text, size):
    assert bytes_of(text) == size


@pytest.mark.parametrize("text", ["", "much", "-1", "1X", "1e400", "nan", "5 5", "Gi", "1GiGi"])
def test_what_is_no_number_of_bytes_is_refused_with_examples(text):
    with pytest.raises(InvalidInputError, match="is no number of bytes: give one such as 500M, 2Gi"):
        bytes_of(text)


@given(st.integers(0, 10**15))
def test_bytes_in_words_are_near_what_they_say(size):
    said = in_words(size)
    number, unit = said.split()
    assert float(number) * {"B": 1, "kB": 1e3, "MB": 1e6, "GB": 1e9}[unit] == pytest.approx(
        size, rel=0.06, abs=0.5
    )


def test_the_memory_limit_is_the_containers_where_it_is_lower(tmp_path):
    machine = memory_limit(())
    two, one, none = tmp_path / "memory.max", tmp_path / "limit_in_bytes", tmp_path / "absent"
    two.write_text("314572800\n")
    assert memory_limit((str(two), str(none))) == 314572800
    two.write_text("max\n")
    one.write_text("9223372036854771712\n")
    assert memory_limit((str(two), str(one))) == memory_limit((str(none),)) == machine
    one.write_text("104857600")
    assert memory_limit((str(two), str(one))) == 104857600


def test_memory_is_half_of_the_limit_shared_by_those_who_read(monkeypatch):
    monkeypatch.setattr(budgets, "memory_limit", lambda: 4_000)
    assert budgets.budgets(Caching(), "file:///s", readers=2, environment={}).ram == 1_000
    assert budgets.budgets(Caching(ram=7), "file:///s", readers=2, environment={}).ram == 7


def test_the_disk_tier_is_for_stores_over_the_network_or_where_it_is_named(tmp_path):
    home = {"HOME": str(tmp_path)}
    here, far = "file:///s", "s3://b"
    assert budgets.budgets(Caching(), here, environment=home).disk == 0
    assert budgets.budgets(Caching(), far, environment=home).folder == f"{tmp_path}/.cache/fourfold/batches"
    xdg = {**home, "XDG_CACHE_HOME": f"{tmp_path}/x"}
    assert budgets.budgets(Caching(), far, environment=xdg).folder == f"{tmp_path}/x/fourfold/batches"
    named = {**home, "FOURFOLD_CACHE": str(tmp_path / "c")}
    for store in (here, far):
        assert budgets.budgets(Caching(), store, environment=named).folder == str(tmp_path / "c")
    assert budgets.budgets(Caching(disk=-1), far, environment=named).disk == 0
    pod = {**home, "KUBERNETES_SERVICE_HOST": "10.0.0.1"}
    assert budgets.budgets(Caching(), far, environment=pod).disk == 0


def test_no_more_disk_is_taken_than_its_volume_has(tmp_path):
    named = {"FOURFOLD_CACHE": str(tmp_path), "FOURFOLD_CACHE_BYTES": "1000"}
    assert budgets.budgets(Caching(), "s3://b", environment=named).disk == 1000
    assert budgets.budgets(Caching(disk=400), "s3://b", environment=named).disk == 400
    assert budgets.budgets(Caching(disk=4000), "s3://b", environment=named).disk == 1000
    del named["FOURFOLD_CACHE_BYTES"]
    assert budgets.budgets(Caching(disk=2**60), "s3://b", environment=named).disk < 2**60


@given(
    st.integers(0, 10**6), st.integers(1, 500), st.lists(st.integers(1, 50), max_size=30), st.integers(1, 8),
    st.integers(0, 9),
)  # fmt: skip
def test_a_fit_never_takes_more_than_its_budget_unless_one_batch_of_each_does(
    ram, row, sizes, at_once, window
):
    sizes = np.array(sizes, dtype=np.int64)
    largest = int(sizes.max(initial=0)) * row
    found = fit(ram, row, sizes, largest, at_once, window)
    if found.whole:
        assert not len(sizes) or sizes.sum() * row + at_once * largest <= ram
        return
    assert 1 <= found.window <= len(sizes)
    assert 0 <= found.kept < len(sizes)
    kept = int(sizes[: found.kept].sum()) * row
    if not window and found.window > 1:
        assert kept + 2 * found.window * largest + at_once * largest <= ram
