"""Reading a shard: every row once an epoch and right, whatever order, budgets and what was read before."""

import threading
import time
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from fourfold.cache import dataset, orders
from fourfold.cache.budgets import Budgets
from fourfold.cache.reader import Reader
from fourfold.contract import keys
from fourfold.contract.caching import ORDERS
from fourfold.contract.errors import DamagedObjectError, InvalidInputError, MissingObjectError, StoreError
from fourfold.store.folder import FolderStore
from tests.cache.stores import FarStore, HeldStore, wait_until
from tests.conftest import described

ROWS, BATCH = 230, 7
LARGE = 10**9


@pytest.fixture(scope="module")
def rows():
    """Rows that tell themselves apart: row i holds i in all places, and is of class i modulo 3."""
    x = np.broadcast_to(np.arange(ROWS, dtype=np.float32)[:, None, None], (ROWS, 4, 3)).copy()
    return x, (np.arange(ROWS) % 3).astype(np.int32)


@pytest.fixture(scope="module")
def root(tmp_path_factory, rows):
    """A folder with the rows as a data set, which no test changes."""
    root = tmp_path_factory.mktemp("data")
    dataset.write_dataset(FolderStore(root), described("beef", (4, 3), BATCH), {"train": rows})
    return root


@pytest.fixture(scope="module")
def manifest(root):
    return dataset.read_manifest(FolderStore(root), "beef")


def all_of(stream, at_once):
    xs, ys = [np.empty((0, 4, 3), np.float32)], [np.empty(0, np.int32)]
    while stream.left:
        x, y = stream.take(min(at_once, stream.left))
        xs.append(x)
        ys.append(y)
    return np.concatenate(xs), np.concatenate(ys)


@st.composite
def cases(draw):
    workers = draw(st.integers(1, 5))
    return {
        "owner": np.array(draw(st.lists(st.integers(0, workers - 1), min_size=ROWS, max_size=ROWS))),
        "workers": workers,
        "order": draw(st.sampled_from([*ORDERS, "list:x"])),
        "ram": draw(st.sampled_from([1, 1500, 3000, 6000, 9000, LARGE])),
        "is_near": draw(st.booleans()),
        "disk": draw(st.sampled_from([0, 900, LARGE])),
        "ahead": draw(st.integers(0, 5)),
        "at_once": draw(st.integers(1, 4)),
        "window": draw(st.sampled_from([0, 0, 1, 3])),
        "take": draw(st.integers(1, 90)),
        "start": draw(st.floats(0, 1)),
        "seed": draw(st.integers(0, 3)),
    }


@settings(max_examples=120, deadline=None)
@given(case=cases())
def test_every_row_once_an_epoch_right_and_in_order_and_the_same_rest_when_resumed(
    case, root, manifest, rows, tmp_path_factory
):
    store, seen = FolderStore(root) if case["is_near"] else FarStore(root), []
    folder = tmp_path_factory.mktemp("disk") if case["disk"] else ""
    budgets = Budgets(case["ram"], case["disk"], str(folder), case["ahead"], case["at_once"])
    for worker in range(case["workers"]):
        numbers = np.flatnonzero(case["owner"] == worker)
        given_order = np.random.default_rng(worker).permutation(len(numbers))
        with Reader(store, manifest, "train", numbers, budgets, case["window"]) as reader:
            for epoch in range(2):
                windows = orders.windows(
                    case["order"], case["seed"], epoch, worker, reader.owners, reader.fit.window, given_order,
                    case["ahead"],
                )  # fmt: skip
                wanted = numbers[np.concatenate([*windows, np.empty(0, np.int64)])]
                start = int(case["start"] * len(wanted)) if epoch else 0
                x, y = all_of(reader.epoch(windows, start), case["take"])
                np.testing.assert_array_equal(x, rows[0][wanted[start:]])
                np.testing.assert_array_equal(y, rows[1][wanted[start:]])
            if not case["start"]:
                assert len(wanted) == len(numbers)
        seen.append(wanted)
    # Complete and disjoint: the union over the workers is every row once.
    assert sorted(np.concatenate(seen)) == list(range(ROWS))


def test_other_workers_find_what_is_there_and_write_nothing(root, manifest):
    """Elastic: as many workers as there are this time read one and the same copy."""
    before = {path: path.stat().st_mtime_ns for path in root.rglob("*") if path.is_file()}
    for workers in (1, 2, 5):
        found = []
        for numbers in np.array_split(np.random.default_rng(workers).permutation(ROWS), workers):
            with Reader(FolderStore(root), manifest, "train", np.sort(numbers), Budgets(LARGE)) as reader:
                x, _ = reader.epoch([np.arange(len(numbers))]).take(len(numbers))
            found += x[:, 0, 0].astype(int).tolist()
        assert sorted(found) == list(range(ROWS))
    assert {path: path.stat().st_mtime_ns for path in root.rglob("*") if path.is_file()} == before


# From where.


def served(reader, window=None, order="rows"):
    windows = orders.windows(order, 0, window or 0, 0, reader.owners, reader.fit.window)
    all_of(reader.epoch(windows), 50)
    return reader.take_served()


def test_what_fits_is_fetched_once_and_then_comes_from_memory(root, manifest):
    store = FarStore(root)
    with Reader(store, manifest, "train", None, Budgets(LARGE)) as reader:
        first, second = served(reader), served(reader, 1)
    assert (first.store, first.disk, first.objects) == (ROWS, 0, -(-ROWS // BATCH))
    assert first.fetched == manifest.parts["train"].bytes
    assert (second.store, second.disk, second.fetched) == (0, 0, 0)
    assert len(store.batches_read) == len(set(store.batches_read)) == -(-ROWS // BATCH)


def test_what_does_not_fit_into_memory_comes_from_disk_and_some_of_it_stays_in_memory(
    root, manifest, tmp_path
):
    store = FarStore(root)
    row = 4 * 3 * 4 + 4
    budgets = Budgets(ROWS * row // 2, LARGE, str(tmp_path), at_once=1)
    with Reader(store, manifest, "train", None, budgets) as reader:
        assert not reader.fit.whole
        kept = reader.fit.kept * BATCH
        assert 0 < kept * row < budgets.ram / 2
        first, second = served(reader), served(reader, 1)
    assert (first.store, first.disk) == (ROWS, 0)
    assert (second.store, second.disk) == (0, ROWS - kept)
    assert len(store.batches_read) == -(-ROWS // BATCH)


@pytest.mark.parametrize("is_near", [True, False])
def test_what_stays_in_memory_is_right_also_where_it_came_from_disk(root, manifest, rows, tmp_path, is_near):
    """From disk it comes through a buffer that the next batch is read into."""
    budgets = Budgets(9000, LARGE, str(tmp_path), at_once=1)
    for _ in range(2):
        store = FolderStore(root) if is_near else FarStore(root)
        with Reader(store, manifest, "train", None, budgets) as reader:
            assert reader.fit.kept > 3
            for epoch in range(3):
                windows = orders.windows("rows", 0, epoch, 0, reader.owners, reader.fit.window)
                x, y = all_of(reader.epoch(windows), 20)
                wanted = np.concatenate(windows)
                np.testing.assert_array_equal(x, rows[0][wanted])
                np.testing.assert_array_equal(y, rows[1][wanted])


def test_what_fits_nowhere_comes_from_the_store_each_time(root, manifest, tmp_path):
    store = FarStore(root)
    with Reader(store, manifest, "train", None, Budgets(1, 1, str(tmp_path), at_once=1)) as reader:
        assert (served(reader).store, served(reader, 1).store) == (ROWS, ROWS)
        assert reader.said == ["no more is kept on disk: its budget of 1 bytes is used up"]


def test_memory_stays_within_its_budget(tmp_path):
    rows, shape = 3000, (20, 250)
    store = FolderStore(tmp_path)
    x = np.random.default_rng(0).random((rows, *shape), dtype=np.float32)
    manifest = dataset.write_dataset(
        store, described("beef", shape, 50), {"train": (x, np.zeros(rows, np.int32))}
    )
    assert manifest.bytes > 60e6
    del x
    tracemalloc.start()
    try:
        with Reader(store, manifest, "train", None, Budgets(12_000_000, at_once=2)) as reader:
            for epoch in range(2):
                stream = reader.epoch(orders.windows("rows", 0, epoch, 0, reader.owners, reader.fit.window))
                while stream.left:
                    stream.take(min(50, stream.left))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    # Beside the budget: the rows that were taken last, twice while they are put together, and indexes.
    assert peak < 12_000_000 + 3 * 50 * 20_000 + 500_000


# Reading ahead.


@pytest.mark.parametrize("ahead", [0, 1, 3, 6])
@pytest.mark.parametrize("ram", [LARGE, 20 * (7 * 52 + 256)], ids=["whole", "windows"])
def test_so_many_batches_are_asked_for_before_they_are_needed(root, manifest, ahead, ram):
    store = HeldStore(root)
    with Reader(store, manifest, "train", None, Budgets(ram, ahead=ahead, at_once=8)) as reader:
        windows = orders.windows("frozen", 0, 0, 0, reader.owners, reader.fit.window, ahead=ahead)
        size = min(max(1, ahead), reader.fit.window)
        # In windows: those of the window that is needed, and of the one after it, of which none is 0 batches.
        expected = ahead if reader.fit.whole else min(8, size + (size if ahead else 0))
        stream = reader.epoch(windows)
        wait_until(lambda: len(store.asked) >= expected)
        time.sleep(0.05)
        assert len(store.asked) == expected
        store.released.set()
        assert stream.take(5)[0][:, 0, 0].tolist() == [0, 1, 2, 3, 4]


def test_what_is_needed_first_is_asked_for_first(root, manifest):
    store = HeldStore(root)
    store.released.set()
    with Reader(store, manifest, "train", None, Budgets(LARGE, ahead=2, at_once=1)) as reader:
        places = np.arange(ROWS)[::-1].copy()
        all_of(reader.epoch([places]), 10)
    assert [int(key[-13:-4]) for key in store.asked] == list(range(-(-ROWS // BATCH)))[::-1]


# Faults.


@pytest.mark.parametrize("ram", [LARGE, 1], ids=["whole", "windows"])
@pytest.mark.parametrize("damage", ["missing", "flipped", "cut"])
def test_a_batch_that_is_missing_or_damaged_is_named_each_time_it_is_needed(tmp_path, rows, ram, damage):
    store = FolderStore(tmp_path)
    manifest = dataset.write_dataset(store, described("beef", (4, 3), BATCH), {"train": rows})
    key = keys.batch("beef", "train", 4)
    data = store.read(key)
    if damage == "missing":
        store.delete(key)
    else:
        store.write(key, data[:-1] + (bytes([data[-1] ^ 1]) if damage == "flipped" else b""))
    with Reader(store, manifest, "train", None, Budgets(ram, ahead=1)) as reader:
        windows = orders.windows("frozen", 0, 0, 0, reader.owners, reader.fit.window)
        stream = reader.epoch(windows)
        x, _ = stream.take(4 * BATCH)
        assert x[:, 0, 0].tolist() == list(range(4 * BATCH))
        for _ in range(2):
            with pytest.raises(MissingObjectError if damage == "missing" else DamagedObjectError, match=key):
                stream.take(1)


def test_a_store_that_goes_in_mid_epoch_is_told(root, manifest):
    store = HeldStore(root)
    store.released.set()
    with Reader(store, manifest, "train", None, Budgets(LARGE, ahead=1)) as reader:
        stream = reader.epoch([np.arange(ROWS)])
        stream.take(20)
        store.gone = True
        for _ in range(2):
            with pytest.raises(StoreError, match="the store is gone"):
                stream.take(100)


def test_a_reader_is_closed_though_its_store_does_not_answer(root, manifest):
    store, before = HeldStore(root), set(threading.enumerate())
    reader = Reader(store, manifest, "train", None, Budgets(LARGE, ahead=6, at_once=2))
    reader.epoch([np.arange(ROWS)])
    wait_until(lambda: len(store.asked) == 2)
    reading = set(threading.enumerate()) - before
    assert len(reading) == 2
    closing = threading.Thread(target=reader.close, daemon=True)
    closing.start()
    closing.join(10)
    assert not closing.is_alive()
    store.released.set()
    reader.close()
    for thread in reading:
        thread.join(10)
        assert not thread.is_alive()
    # What had not been asked for is not asked for any more.
    assert len(store.asked) == 2


@pytest.mark.parametrize("whole", [0, 2])
def test_what_is_found_cut_in_a_folder_spoils_nothing_that_is_read_after_it(tmp_path, rows, whole):
    """The error keeps what was read: the bytes of what comes next are put elsewhere."""
    store = FolderStore(tmp_path)
    manifest = dataset.write_dataset(store, described("beef", (4, 3), BATCH), {"train": rows})
    key = keys.batch("beef", "train", 4)
    store.write(key, store.read(key)[:50])
    with Reader(store, manifest, "train", None, Budgets(LARGE, ahead=16, at_once=1)) as reader:
        # Some whole ones, that which is cut, and then the others, by one and the same thread.
        places = np.arange(ROWS)
        is_cut, is_first = reader.owners == 4, reader.owners < whole
        order = np.concatenate([places[is_first], places[is_cut], places[~is_cut & ~is_first]])
        with pytest.raises(DamagedObjectError, match=key):
            reader.epoch([order]).take(ROWS)
        found, _ = reader.epoch([places[~is_cut]]).take(ROWS - BATCH)
        np.testing.assert_array_equal(found, rows[0][~is_cut])


def test_what_is_mended_between_two_tries_is_read(tmp_path, rows, monkeypatch):
    store = FolderStore(tmp_path)
    manifest = dataset.write_dataset(store, described("beef", (4, 3), BATCH), {"train": rows})
    key, decode = keys.batch("beef", "train", 0), dataset.Batches.decode
    whole = store.read(key)
    store.write(key, whole[:50])

    def mended_then(self, index, data):
        try:
            return decode(self, index, data)
        except DamagedObjectError:
            store.write(key, whole)
            raise

    monkeypatch.setattr(dataset.Batches, "decode", mended_then)
    with Reader(store, manifest, "train", None, Budgets(LARGE, at_once=1)) as reader:
        x, _ = reader.epoch([np.arange(ROWS)]).take(ROWS)
    np.testing.assert_array_equal(x, rows[0])


def test_what_came_damaged_once_is_read_again(root, manifest, rows):
    damaged = set()

    def once(key, data):
        if "/train/0" not in key or key in damaged:
            return data
        damaged.add(key)
        return data[:-2] + bytes([data[-2] ^ 4]) + data[-1:]

    with Reader(FarStore(root, damage=once), manifest, "train", None, Budgets(LARGE)) as reader:
        x, y = reader.epoch([np.arange(ROWS)]).take(ROWS)
    np.testing.assert_array_equal(x, rows[0])
    np.testing.assert_array_equal(y, rows[1])
    assert len(damaged) == -(-ROWS // BATCH)


def test_more_rows_than_are_left_and_rows_out_of_range_are_refused(root, manifest):
    with Reader(FolderStore(root), manifest, "train", np.arange(10), Budgets(LARGE)) as reader:
        stream = reader.epoch([np.arange(10)])
        assert len(stream.take(0)[1]) == 0
        stream.take(7)
        with pytest.raises(InvalidInputError, match="4 rows were asked for, the epoch has 3 left"):
            stream.take(4)
        assert stream.take(3)[0][:, 0, 0].tolist() == [7, 8, 9]
    with pytest.raises(InvalidInputError, match="train has rows 0 to 229"):
        Reader(FolderStore(root), manifest, "train", np.array([ROWS]), Budgets(LARGE))


@pytest.mark.parametrize("numbers", [[20, 3, 8], [3, 3, 8], [0, 0, 2, 3, 4, 5, 6]])
def test_rows_that_do_not_ascend_are_refused(root, manifest, numbers):
    with pytest.raises(
        InvalidInputError, match="of a shard ascend, each row once, but .* comes before .*: sort them"
    ):
        Reader(FolderStore(root), manifest, "train", np.array(numbers), Budgets(LARGE))


def test_a_reader_without_rows_gives_none(root, manifest):
    with Reader(FolderStore(root), manifest, "train", np.array([], np.int64), Budgets(1)) as reader:
        stream = reader.epoch(orders.windows("rows", 0, 0, 0, reader.owners, reader.fit.window))
        assert stream.left == 0
        assert stream.take(0)[0].shape == (0, 4, 3)


@pytest.mark.parametrize("where", ["store", "disk"])
def test_what_is_damaged_after_it_was_read_is_found_the_next_time(tmp_path, rows, where):
    """Verified by its sha256 once, and by a sum that was remembered from then on."""
    store = FarStore(tmp_path / "data")
    manifest = dataset.write_dataset(store, described("beef", (4, 3), BATCH), {"train": rows})
    budgets = Budgets(1, LARGE if where == "disk" else 0, str(tmp_path / "disk"), ahead=0, at_once=1)
    key = keys.batch("beef", "train", 5)
    with Reader(store, manifest, "train", None, budgets) as reader:
        windows = orders.windows("frozen", 0, 0, 0, reader.owners, reader.fit.window)
        all_of(reader.epoch(windows), 20)
        path = tmp_path / ("disk" if where == "disk" else "data") / key
        data = path.read_bytes()
        for at in (len(data) - 3, 150, 5):
            path.write_bytes(data[:at] + bytes([data[at] ^ 16]) + data[at + 1 :])
            if where == "disk":
                x, _ = all_of(reader.epoch(windows), 20)
                np.testing.assert_array_equal(x, rows[0])
                assert reader.said == [f"{key} was damaged on disk and is fetched again"]
                assert path.read_bytes() == data
            else:
                with pytest.raises(DamagedObjectError, match=key):
                    all_of(reader.epoch(windows), 20)
