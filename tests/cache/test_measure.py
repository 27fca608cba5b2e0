"""The measured twin: what is timed is all rows, each epoch, both ways; where they came from is counted."""

import itertools

import pytest

from fourfold.cache.budgets import Budgets
from fourfold.cache.measure import measure
from fourfold.page import training_pictures
from tests.cache.stores import FarStore


@pytest.fixture
def far(objects, root, made):
    return FarStore(root)


def clock():
    """A second passes whenever somebody looks."""
    ticks = itertools.count()
    return lambda: float(next(ticks))


def test_with_the_cache_rows_come_from_memory_after_the_first_epoch_and_without_never(far, made):
    told = []
    found = measure(far, made, Budgets(10**9), batch=10, epochs=3, progress=told.append, clock=clock())
    assert found.rows == 47
    assert (found.far, found.memory) == ([47, 0, 0], [0, 47, 47])
    # The epoch that fills the cache, and three without it.
    assert len(far.batches_read) == 5 * (1 + 3)
    assert found.with_cache == found.without == [1.0, 1.0, 1.0]
    assert told == [1, 2, 3, 4, 5, 6]


def test_what_does_not_fit_into_memory_comes_from_disk(far, made, tmp_path):
    found = measure(far, made, Budgets(1, 10**9, str(tmp_path / "disk")), batch=10, epochs=2)
    assert (found.far, found.disk) == ([47, 0], [0, 47])
    assert len(far.batches_read) == 5 * (1 + 2)


def test_the_arithmetic_stands_beside_what_was_measured(far, made):
    found = measure(far, made, Budgets(10**9), batch=10, epochs=3, clock=clock())
    assert found.ratio == 1.0
    assert found.miss == found.hit == pytest.approx(1 / 5)
    assert found.predicted.without == pytest.approx(sum(found.without))
    assert found.predicted.within == pytest.approx(sum(found.with_cache))


def test_one_epoch_has_no_hit(far, made):
    found = measure(far, made, Budgets(10**9), batch=10, epochs=1)
    assert found.hit == 0.0
    assert found.predicted.gain == 1.0


def test_the_picture_has_two_lines_a_store_and_says_which():
    drawn = training_pictures.reading({"a folder": ([3, 1], [3, 3]), "s3://b": ([9, 1], [9, 9])})
    for text in ("a folder, without", "a folder, with the cache", "s3://b, without", "reading (s)", "epoch"):
        assert text in drawn
