"""The rows of a worker: its shard, read through the cache, and its share of every step."""

from dataclasses import dataclass

import numpy as np

from fourfold.cache import budgets, dataset, splits
from fourfold.cache.reader import Reader, Stream
from fourfold.contract.caching import LIST
from fourfold.contract.datasets import DatasetManifest
from fourfold.contract.errors import InvalidInputError
from fourfold.contract.plan import Plan, steps
from fourfold.contract.records import Input, Training
from fourfold.store.objects import Store, open_store

MEASURED_AT_ONCE = 2000
"""Rows that are read at once to be measured."""


@dataclass(frozen=True)
class Shard:
    """A worker's rows, and its share of every step.

    Attributes:
        worker: whose they are.
        manifest: of the data set.
        index: of the shard among all shards.
        numbers: row numbers in the training part [n] int64.
        reader: reads them.
        bounds: where each of an epoch's S steps begins and ends [S + 1] int32.
        totals: rows of each step over all workers of the group [S] float32.
        training: says in which order an epoch takes them.
        given: places in the order that a user gave [n] int64; None for none.
    """

    worker: int
    manifest: DatasetManifest
    index: int
    numbers: np.ndarray
    reader: Reader
    bounds: np.ndarray
    totals: np.ndarray
    training: Training
    given: np.ndarray | None = None

    @property
    def steps(self) -> int:
        """Steps in an epoch."""
        return len(self.totals)

    def windows(self, epoch: int) -> list[np.ndarray]:
        """Places in the order in which an epoch takes them; see ``cache.orders``."""
        told = self.training
        return self.reader.windows(told.caching.order, told.seed, epoch, self.index, self.given)

    def rows(self) -> Stream:
        """All rows once, in the order in which they are read fastest."""
        return self.reader.epoch(self.reader.windows("frozen"))

    def drawn(self, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Some of the shard's rows, drawn without repetition, in the order of the draw.

        Args:
            count: how many; all, where there are not as many.

        Returns:
            x [n, ...] float32 and class numbers y [n] int32.
        """
        places = np.random.default_rng([self.training.seed, self.index]).permutation(len(self.numbers))
        rows, kept, begin = self.rows(), [], 0
        wanted = np.zeros(len(places), bool)
        wanted[places[:count]] = True
        while rows.left:
            x, y = rows.take(min(rows.left, MEASURED_AT_ONCE))
            mine = np.flatnonzero(wanted[begin : begin + len(y)])
            kept.append((x[mine], y[mine], begin + mine))
            begin += len(y)
        x, y, found = (np.concatenate(each) for each in zip(*kept, strict=True))
        rank = np.empty(len(places), np.int64)
        rank[places] = np.arange(len(places))
        order = np.argsort(rank[found])
        return x[order], y[order]

    def said(self) -> list[str]:
        """What a user should know of how the rows are read, in sentences."""
        fit, row = self.reader.fit, self.reader.row_bytes
        if fit.whole:
            return self.reader.said
        order = self.training.caching.order
        how = (
            f"they are dealt among {fit.window} cached batches at a time"
            if order == "rows"
            else f"they are taken in the order {order}"
        )
        return [
            f"worker {self.worker}: its {len(self.numbers):,} rows "
            f"({budgets.in_words(row * len(self.numbers))}) do not fit into its "
            f"{budgets.in_words(self.reader.ram)} of memory: {how}, {fit.kept} batches stay in memory, the "
            "others are read again each epoch",
            *self.reader.said,
        ]


def shard_rows(training: Training, plan: Plan, manifest: DatasetManifest) -> list[np.ndarray]:
    """The row numbers of every shard of a training, [n_k] int64 each."""
    if not plan.scenario.splits_data:
        return [np.arange(manifest.rows("train"), dtype=np.int64)]
    _, shards = splits.read_split(open_store(training.store), training.fingerprint, training.split)
    if len(shards) != plan.shards:
        raise InvalidInputError(
            f"split {training.split} deals the rows to {len(shards)} workers, "
            f"this training has {plan.shards}: "
            "prepare a split for as many"
        )
    return shards


def read_shard(training: Training, plan: Plan, worker: int, readers: int = 1) -> Shard:
    """Finds a worker's rows in the cache; reading them begins with the first epoch.

    Args:
        training: names the data set and the split.
        plan: of the training.
        worker: the worker's index.
        readers: processes that share this machine's memory.

    Raises:
        MissingObjectError: there is no such data set or split.
        DamagedObjectError: what lists the cached batches is damaged.
    """
    store = open_store(training.store)
    manifest = dataset.read_manifest(store, training.fingerprint)
    shards = shard_rows(training, plan, manifest)
    group = [plan.shard_of(member) for member in plan.group_of(worker)]
    bounds = steps(tuple(len(shards[index]) for index in group), training.batch)
    mine = plan.shard_of(worker)
    may = budgets.budgets(training.caching, store.uri, readers)
    return Shard(
        worker=worker,
        manifest=manifest,
        index=mine,
        numbers=shards[mine],
        reader=Reader(store, manifest, "train", shards[mine], may, training.caching.window),
        bounds=np.array(bounds[group.index(mine)], dtype=np.int32),
        totals=np.diff(np.sum(bounds, axis=0)).astype(np.float32),
        training=training,
        given=_given(store, training, manifest, shards[mine]),
    )


def _given(
    store: Store, training: Training, manifest: DatasetManifest, numbers: np.ndarray
) -> np.ndarray | None:
    """The places of a shard in the order that a user gave."""
    if not training.caching.order.startswith(LIST):
        return None
    split, _ = splits.read_split(store, training.fingerprint, training.split)
    order = splits.read_order(store, training.fingerprint, split)
    if order is None:
        raise InvalidInputError(
            f"split {training.split} has no order, the training asks for "
            f"{training.caching.order!r}: prepare with it"
        )
    place_of = np.full(manifest.rows("train"), -1, np.int64)
    place_of[numbers] = np.arange(len(numbers))
    places = place_of[order]
    return places[places >= 0]


def read_by(shard: Shard, waited: float, rows: int) -> Input:
    """What an epoch read, since the last time that this was asked.

    Args:
        shard: of the rows.
        waited: seconds that its steps waited.
        rows: that they took.
    """
    served = shard.reader.take_served()
    return Input(waited, served.memory(rows), served.disk, served.store, served.fetched)
