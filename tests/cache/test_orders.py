"""Orders of an epoch: every row once, whatever the policy; the same for the same seed and epoch."""

import numpy as np
import pytest
from hypothesis import given, strategies as st

from fourfold.cache import orders
from fourfold.contract import caching
from fourfold.contract.caching import ORDERS, Caching
from fourfold.contract.errors import DamagedObjectError, InvalidInputError
from fourfold.store.formats import array_to_bytes

SIZES = st.lists(st.integers(1, 9), max_size=8)
"""Rows of a shard in each of its cached batches."""


def owners_of(sizes):
    """The cached batch of each place; batches have gaps between them, as those of a shard do."""
    return np.repeat(np.arange(len(sizes), dtype=np.int64) * 3, sizes)


def taken(order, owners, window=0, seed=1, epoch=0, shard=0, ahead=3):
    given = np.random.default_rng(5).permutation(len(owners))
    return orders.windows(order, seed, epoch, shard, owners, window, given, ahead)


@given(SIZES, st.sampled_from([*ORDERS, "list:x"]), st.integers(0, 5), st.integers(0, 3), st.integers(0, 3))
def test_an_epoch_takes_every_row_once_and_no_window_holds_more_batches_than_it_may(
    sizes, order, window, seed, epoch
):
    owners = owners_of(sizes)
    windows = taken(order, owners, window, seed, epoch)
    places = np.concatenate([*windows, np.empty(0, np.int64)])
    assert sorted(places) == list(range(len(owners)))
    assert places.dtype == np.int64
    if window:
        assert all(len(np.unique(owners[each])) <= window for each in windows)


@given(SIZES, st.sampled_from([*ORDERS, "list:x"]), st.integers(0, 4), st.integers(0, 9), st.integers(0, 9))
def test_the_same_seed_and_epoch_give_the_same_order(sizes, order, window, seed, epoch):
    owners = owners_of(sizes)
    first, again = (taken(order, owners, window, seed, epoch) for _ in range(2))
    assert [each.tolist() for each in first] == [each.tolist() for each in again]


@pytest.mark.parametrize("order", ["rows", "batches"])
@pytest.mark.parametrize("window", [0, 4])
def test_another_epoch_seed_or_shard_deals_another_order(order, window):
    owners = owners_of([10] * 20)

    def dealt(**which):
        return np.concatenate(taken(order, owners, window, **which)).tolist()

    others = [dealt(), dealt(epoch=1), dealt(seed=2), dealt(shard=1)]
    assert len({tuple(each) for each in others}) == 4


def test_rows_in_memory_are_an_exact_permutation_drawn_as_ever():
    """Digests of weights depend on it."""
    (found,) = taken("rows", owners_of([100] * 10), seed=3, epoch=2, shard=1)
    assert found.tolist() == np.random.default_rng([3, 2, 1]).permutation(1000).tolist()


def test_a_window_deals_rows_among_its_batches_and_batches_among_windows():
    owners = owners_of([10] * 12)
    windows = taken("rows", owners, window=4)
    assert [len(each) for each in windows] == [40, 40, 40]
    first = windows[0]
    assert len(np.unique(owners[first])) == 4
    assert (np.diff(owners[first]) != 0).mean() > 0.5  # rows of different batches alternate
    later = taken("rows", owners, window=4, epoch=1)[0]
    assert set(owners[first]) != set(owners[later])


def test_frozen_reverse_and_batches_are_what_they_say():
    owners = owners_of([3, 2, 4])
    assert np.concatenate(taken("frozen", owners)).tolist() == list(range(9))
    assert np.concatenate(taken("reverse", owners)).tolist() == list(range(9))[::-1]
    for window in (0, 1):
        found = np.concatenate(taken("batches", owners, window)).tolist()
        blocks = [[0, 1, 2], [3, 4], [5, 6, 7, 8]]
        assert sorted(found) == list(range(9))
        for block in blocks:
            at = found.index(block[0])
            assert found[at : at + len(block)] == block


@pytest.mark.parametrize(("window", "ahead", "expected"), [(6, 0, 1), (6, 4, 4), (3, 8, 3), (0, 4, 12)])
@pytest.mark.parametrize("order", ["frozen", "reverse", "batches"])
def test_where_batches_come_one_after_another_a_window_holds_as_many_as_are_read_ahead(
    order, window, ahead, expected
):
    owners = owners_of([10] * 12)
    windows = taken(order, owners, window, ahead=ahead)
    assert [len(np.unique(owners[each])) for each in windows] == [expected] * (12 // expected)


def test_an_order_that_was_given_is_taken():
    owners = owners_of([3, 2, 4])
    given = np.array([8, 0, 3, 1, 7, 2, 4, 6, 5])
    for window in (0, 1, 2):
        windows = orders.windows("list:x", 0, 7, 0, owners, window, given)
        assert np.concatenate(windows).tolist() == given.tolist()


@pytest.mark.parametrize("order", ["", "shuffle", "list", "list:", "Rows"])
def test_an_unknown_order_is_refused_with_those_there_are(order):
    with pytest.raises(InvalidInputError, match="use one of rows, batches, frozen, reverse, or list:FILE"):
        caching.check(Caching(order=order))


# Orders from a file.


@given(st.permutations(range(12)))
def test_a_list_reads_the_same_from_npy_and_from_text(numbers):
    array = np.array(numbers)
    text = "# my order\n" + "\n".join(map(str, numbers[:5])) + "\n" + ", ".join(map(str, numbers[5:]))
    for data in (array_to_bytes(array), array_to_bytes(array.astype(np.uint8)), text.encode()):
        assert orders.read_list(data, "order", 12).tolist() == numbers


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (
            b"0\n1\n1\n2",
            "order names 1 rows more than once, the first of them 1: an order names each of the 4",
        ),
        (b"0\n1\n2", "order names 1 rows not at all, the first of them 3"),
        (b"", "order names 4 rows not at all, the first of them 0"),
        (b"0\n1\n2\n4", "order names row 4 .its entry 3."),
        (b"0\n-1\n2\n3", "order names row -1 .its entry 1."),
        (b"0\n1\ntwo\n3", "order, line 3: 'two' is no row number"),
        (b"0\n1.0\n", "order, line 2: '1.0' is no row number"),
        (b"0 \xff 1", "order, line 1: .* is no row number"),
        (b"9" * 40, "order, line 1: '9999.* is no row number"),
        (array_to_bytes(np.zeros(4)), "order holds float64 .4,.: an order is whole numbers"),
        (array_to_bytes(np.zeros((2, 2), int)), r"order holds int64 .2, 2.: an order is whole numbers"),
    ],
)
def test_a_list_that_is_no_order_is_refused_with_what_is_wrong(data, said):
    with pytest.raises(InvalidInputError, match=said):
        orders.read_list(data, "order", 4)


def test_a_list_of_python_objects_is_never_unpickled():
    import io

    buffer = io.BytesIO()
    np.save(buffer, np.array([0, 1, {}], dtype=object), allow_pickle=True)
    with pytest.raises(DamagedObjectError, match="order is not a .npy array"):
        orders.read_list(buffer.getvalue(), "order", 3)
