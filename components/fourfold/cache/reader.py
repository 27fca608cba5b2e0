"""Rows of a shard in any order, ready, read ahead while the step computes.

Where the shard fits into its budget, its rows lie in memory in one array, each cached batch fetched once, the
first that are needed first: an epoch is then nothing but gathers. Where it does not, half of the budget keeps
as many cached batches as it holds for good (a scan in turns would only throw out of any other cache what is
needed next), and through the other half rows move in windows, one in use and the next ones being read.
"""

import concurrent.futures
import contextlib
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from fourfold.cache import dataset, orders, values
from fourfold.cache.budgets import Budgets
from fourfold.cache.tiers import Served, Tiers
from fourfold.contract.datasets import DatasetManifest
from fourfold.contract.errors import InvalidInputError
from fourfold.store.objects import Store

Batch = tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True)
class Fit:
    """How a shard goes into a budget of memory.

    Attributes:
        whole: all of its rows fit.
        window: cached batches of one window; 0 where it is whole.
        kept: cached batches that stay in memory; 0 where it is whole.
    """

    whole: bool
    window: int
    kept: int


def fit(ram: int, row_bytes: int, sizes: np.ndarray, object_bytes: int, at_once: int, window: int = 0) -> Fit:
    """How a shard goes into a budget of memory.

    Args:
        ram: bytes.
        row_bytes: of one row as it is kept.
        sizes: rows of the shard in each of its cached batches [batches].
        object_bytes: of the largest cached batch.
        at_once: objects that are read at the same time.
        window: cached batches of a window, as asked for; 0 for as many as fit.
    """
    total, moving = int(sizes.sum()) * row_bytes, at_once * object_bytes
    if total + moving <= ram or not len(sizes):
        return Fit(True, 0, 0)
    largest = max(1, int(sizes.max()) * row_bytes)
    room = max(0, ram - moving)
    # One window is used while the next is read; never less than one batch of each.
    found = window or max(1, room // 4 // largest)
    left = max(0, room - 2 * found * largest)
    return Fit(
        False, min(found, len(sizes)), int(np.searchsorted(np.cumsum(sizes) * row_bytes, left, "right"))
    )


class Reader:
    """Reads the rows of a shard through the tiers.

    Args:
        store: that holds the data set.
        manifest: of the data set.
        part: ``train``, ``holdout`` or ``test``.
        numbers: row numbers of the shard [n] int64, ascending; all if None.
        budgets: of memory and disk.
        window: cached batches of a window where the shard does not fit; 0 for as many as fit.
        clock: seconds.

    Raises:
        MissingObjectError: the part's index is missing.
        DamagedObjectError: the part's index is damaged.
        InvalidInputError: a number is out of range, or they do not ascend.
    """

    def __init__(
        self,
        store: Store,
        manifest: DatasetManifest,
        part: str,
        numbers: np.ndarray | None,
        budgets: Budgets,
        window: int = 0,
        clock: Callable[[], float] = time.perf_counter,
    ):
        self._manifest, self._clock = manifest, clock
        self.numbers = dataset.check_numbers(manifest, part, numbers)
        if (falls := np.flatnonzero(np.diff(self.numbers) <= 0)).size:
            now, then = self.numbers[falls[0] : falls[0] + 2]
            raise InvalidInputError(
                f"the row numbers of a shard ascend, each row once, but {now} comes before {then}: sort them"
            )
        self._batches = dataset.Batches(store, manifest, part)
        self.owners = self.numbers // manifest.rows_per_batch
        """The cached batch of each place of the shard [n] int64."""
        needed, sizes = np.unique(self.owners, return_counts=True)
        self._sizes = dict(zip(needed.tolist(), sizes.tolist(), strict=True))
        self.ram = budgets.ram
        self.row_bytes = int(np.prod(manifest.shape, dtype=np.int64)) * np.dtype(manifest.dtype).itemsize + 4
        largest = max((self._batches.size(index) for index in needed.tolist()), default=0)
        self.fit = fit(budgets.ram, self.row_bytes, sizes, largest, budgets.at_once, window)
        self.ahead, self.shape = budgets.ahead, tuple(manifest.shape)
        self._tiers = Tiers(self._batches, budgets)
        self._kept: dict[int, Batch | None] = dict.fromkeys(needed[: self.fit.kept].tolist())
        self._whole: _Window | None = None
        self._spare: list[Batch] = []
        self._pool = concurrent.futures.ThreadPoolExecutor(budgets.at_once, thread_name_prefix="cache")

    @property
    def said(self) -> list[str]:
        """What a user should know of the tiers, in sentences."""
        return list(self._tiers.said)

    def __len__(self) -> int:
        return len(self.numbers)

    def windows(
        self, order: str, seed: int = 0, epoch: int = 0, shard: int = 0, given: np.ndarray | None = None
    ) -> list[np.ndarray]:
        """The windows of one epoch in an order, as large as memory allows; see ``orders.windows``."""
        window = self.fit.window
        return orders.windows(order, seed, epoch, shard, self.owners, window, given, self.ahead)

    def epoch(self, windows: list[np.ndarray], start: int = 0) -> "Stream":
        """The rows of one epoch, one after the other.

        Args:
            windows: places in the shard, as of ``windows``.
            start: rows that have been taken already; none of their batches are read.
        """
        left, begin = [], start
        for window in windows:
            left += [window[begin:]] if begin < len(window) else []
            begin = max(0, begin - len(window))
        if self.fit.whole and left:
            left = [np.concatenate(left)]
        return Stream(self, left)

    def take_served(self) -> Served:
        """Which rows did not come from memory since the last time."""
        return self._tiers.take_served()

    def close(self) -> None:
        """Begins no more reading, and does not wait for what a store that is away was asked for."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._tiers.close()
        # A window knows its reader: without this their memory would be free only when somebody looks for
        # circles.
        self._whole = None
        self._spare.clear()
        self._kept.clear()

    def __enter__(self) -> "Reader":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _open(self, places: np.ndarray) -> "_Opened":
        """A window of these places, in the order in which they will be taken; it is being read."""
        if not self.fit.whole:
            by_place = np.argsort(places)
            where = np.empty(len(places), np.int64)
            where[by_place] = np.arange(len(places))
            window = _Window(self, places[by_place])
            window.read(places, ahead=len(self._batches))
            return _Opened(window, places, where)
        if self._whole is None:
            self._whole = _Window(self, np.arange(len(self)))
        self._whole.read(places, self.ahead)
        return _Opened(self._whole, places, places)

    def _arrays(self, rows: int) -> Batch:
        """Arrays for the rows of a window: those of one that is done with, where there are some."""
        if self._spare and len(self._spare[-1][1]) >= rows:
            x, y = self._spare.pop()
        else:
            self._spare.clear()
            x, y = np.empty((rows, *self.shape), self._manifest.dtype), np.empty(rows, np.int32)
        return x, y

    @contextlib.contextmanager
    def _reading(self, index: int) -> Iterator[Batch]:
        """The shard's rows of a cached batch, as they are kept; good while one is inside."""
        kept = self._kept.get(index)
        if kept is not None:
            yield kept
            return
        with self._tiers.reading(index, self._sizes[index]) as (x, y):
            begin, end = np.searchsorted(self.owners, (index, index + 1))
            if end - begin < len(y):
                inside = self.numbers[begin:end] - index * self._manifest.rows_per_batch
                x, y = x[inside], y[inside]
            if index in self._kept:
                self._kept[index] = x, y = x.copy(), y.copy()
            yield x, y


class _Window:
    """Rows that lie in memory together, filled batch by batch.

    Args:
        reader: reads batches.
        held: places whose rows lie here, ascending [m].
    """

    def __init__(self, reader: Reader, held: np.ndarray):
        manifest = reader._manifest
        self._reader, self._held = reader, held
        self._x, self._y = reader._arrays(len(held))
        self._scale = manifest.scale
        self._owners = reader.owners[held]
        self._absent = set(self._owners[np.flatnonzero(np.diff(self._owners, prepend=-1))].tolist())
        self.batches = len(self._absent)
        self._reading: dict[int, concurrent.futures.Future[None]] = {}
        self._queue: dict[int, None] = {}
        self._ahead = 0

    def read(self, places: np.ndarray, ahead: int) -> None:
        """Begins to read what these places need, first what is needed first.

        Args:
            places: in the order in which they will be taken [n].
            ahead: batches that are on their way at any time.
        """
        if not self._absent:
            return
        owners, first = np.unique(self._reader.owners[places], return_index=True)
        wanted = (index for index in owners[np.argsort(first)].tolist() if index in self._absent)
        self._queue, self._ahead = (
            dict.fromkeys(index for index in wanted if index not in self._reading),
            ahead,
        )
        self._top_up()

    def take(self, places: np.ndarray, where: np.ndarray) -> Batch:
        """The rows of these places, which lie at ``where``, ready; waits until they are here.

        Raises:
            FourfoldError: a batch could not be read.
        """
        if self._absent:
            self._wait(places)
        return values.ready(np.take(self._x, where, axis=0), self._scale), np.take(self._y, where)

    def release(self) -> None:
        """Hands its arrays on to the next window, where nothing is being read into them any more."""
        if not self._absent and self is not self._reader._whole:
            self._reader._spare.append((self._x, self._y))

    def _wait(self, places: np.ndarray) -> None:
        needed = [i for i in np.unique(self._reader.owners[places]).tolist() if i in self._absent]
        for index in needed:
            if index not in self._reading:
                self._queue.pop(index, None)
                self._begin(index)
        for index in needed:
            if index in self._reading:
                self._reading[index].result()
            self._top_up()

    def _top_up(self) -> None:
        """Lets go of what is here; keeps so many batches on their way as are read ahead."""
        for index, future in list(self._reading.items()):
            if future.done() and not future.exception():
                del self._reading[index]
                self._absent.remove(index)
        while self._queue and len(self._reading) < self._ahead:
            index = next(iter(self._queue))
            del self._queue[index]
            self._begin(index)

    def _begin(self, index: int) -> None:
        self._reading[index] = self._reader._pool.submit(self._fill, index)

    def _fill(self, index: int) -> None:
        with self._reader._reading(index) as (x, y):
            begin, end = np.searchsorted(self._owners, (index, index + 1))
            if end - begin < len(y):
                chosen = self._held[begin:end] - np.searchsorted(self._reader.owners, index)
                x, y = x[chosen], y[chosen]
            self._x[begin:end], self._y[begin:end] = x, y


@dataclass(frozen=True)
class _Opened:
    """A window, the places of its rows in the order in which they are taken, and where each lies in it."""

    window: _Window
    places: np.ndarray
    where: np.ndarray


class Stream:
    """The rows of one epoch, in its order.

    Args:
        reader: of the rows.
        windows: places, window after window.
    """

    def __init__(self, reader: Reader, windows: list[np.ndarray]):
        self._reader, self._coming = reader, deque(windows)
        self._opened: deque[_Opened] = deque()
        self._at, self.left = 0, sum(map(len, windows))
        self.waited = 0.0
        """Seconds that whoever takes rows has spent here."""
        self._look_ahead()

    def take(self, rows: int) -> Batch:
        """The next rows.

        Args:
            rows: how many, at most as many as are left.

        Returns:
            ``x`` [rows, ...] float32 and ``y`` [rows] int32, of the caller.

        Raises:
            MissingObjectError: a cached batch is missing; the error names it.
            DamagedObjectError: a cached batch is damaged; the error names it.
            StoreError: the store did not answer.
            InvalidInputError: so many rows are not left.
        """
        began = self._reader._clock()
        if rows > self.left:
            raise InvalidInputError(f"{rows} rows were asked for, the epoch has {self.left} left")
        pieces = []
        while rows:
            now = self._current()
            some = slice(self._at, min(self._at + rows, len(now.places)))
            pieces.append(now.window.take(now.places[some], now.where[some]))
            count = some.stop - some.start
            self._at, self.left, rows = some.stop, self.left - count, rows - count
        if len(pieces) == 1:
            taken = pieces[0]
        else:
            nothing = np.empty((0, *self._reader.shape), np.float32), np.empty(0, np.int32)
            xs, ys = zip(nothing, *pieces, strict=True)
            taken = np.concatenate(xs), np.concatenate(ys)
        self.waited += self._reader._clock() - began
        return taken

    def _current(self) -> _Opened:
        """The window that the next row is in."""
        if self._at == len(self._opened[0].places):
            self._opened.popleft().window.release()
            self._at = 0
            self._look_ahead()
        return self._opened[0]

    def _look_ahead(self) -> None:
        """Opens the window that is needed, and those after it as far as is read ahead and memory allows."""
        reader = self._reader
        while self._coming and self._may_open(min(reader.ahead, reader.fit.window)):
            self._opened.append(reader._open(self._coming.popleft()))

    def _may_open(self, limit: int) -> bool:
        if len(self._opened) < 2:
            # The one that is needed; and the one after it, of which no part could be dealt without the rest.
            return not self._opened or self._reader.ahead > 0
        return sum(each.window.batches for each in list(self._opened)[1:]) < limit
