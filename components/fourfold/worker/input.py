"""The rows of a worker: its shard, read from the cache, and the order in which an epoch takes them."""

from dataclasses import dataclass

import numpy as np

from fourfold.contract.errors import InvalidInputError
from fourfold.contract.plan import Plan, steps
from fourfold.contract.records import DatasetManifest, Training
from fourfold.store import cache
from fourfold.store.objects import open_store


@dataclass(frozen=True)
class Shard:
    """A worker's rows, ready, and its share of every step.

    Attributes:
        worker: whose they are.
        manifest: of the data set.
        index: of the shard among all shards.
        numbers: row numbers in the training part [n] int64.
        x: rows [n, ...] float32.
        y: class numbers [n] int32.
        bounds: where each of an epoch's S steps begins and ends [S + 1] int32.
        totals: rows of each step over all workers of the group [S] float32.
    """

    worker: int
    manifest: DatasetManifest
    index: int
    numbers: np.ndarray
    x: np.ndarray
    y: np.ndarray
    bounds: np.ndarray
    totals: np.ndarray

    @property
    def steps(self) -> int:
        """Steps in an epoch."""
        return len(self.totals)


def shard_rows(training: Training, plan: Plan, manifest: DatasetManifest) -> list[np.ndarray]:
    """The row numbers of every shard of a training, [n_k] int64 each."""
    if not plan.scenario.splits_data:
        return [np.arange(manifest.rows("train"), dtype=np.int64)]
    _, shards = cache.read_split(open_store(training.store), training.fingerprint, training.split)
    if len(shards) != plan.shards:
        raise InvalidInputError(
            f"split {training.split} deals the rows to {len(shards)} workers, "
            f"this training has {plan.shards}: "
            "prepare a split for as many"
        )
    return shards


def read_shard(training: Training, plan: Plan, worker: int) -> Shard:
    """Reads a worker's rows from the cache, verified.

    Args:
        training: names the data set and the split.
        plan: of the training.
        worker: the worker's index.

    Raises:
        MissingObjectError: a cached batch is missing.
        DamagedObjectError: a cached batch is damaged.
    """
    store = open_store(training.store)
    manifest = cache.read_manifest(store, training.fingerprint)
    shards = shard_rows(training, plan, manifest)
    group = [plan.shard_of(member) for member in plan.group_of(worker)]
    bounds = steps(tuple(len(shards[index]) for index in group), training.batch)
    mine = plan.shard_of(worker)
    x, y = cache.read_rows(store, manifest, "train", shards[mine])
    return Shard(
        worker=worker,
        manifest=manifest,
        index=mine,
        numbers=shards[mine],
        x=x,
        y=y,
        bounds=np.array(bounds[group.index(mine)], dtype=np.int32),
        totals=np.diff(np.sum(bounds, axis=0)).astype(np.float32),
    )


def order(seed: int, epoch: int, shard: int, rows: int) -> np.ndarray:
    """The order in which an epoch takes a shard's rows: every row once, dealt anew each epoch.

    Args:
        seed: of the run.
        epoch: counted from 0.
        shard: index of the shard.
        rows: rows of the shard, n.

    Returns:
        A permutation of 0 to n - 1, int64 [n]; a function of the arguments alone.
    """
    return np.random.default_rng([seed, epoch, shard]).permutation(rows)
