"""What a cache saves, by the clock: the same rows read for some epochs with all tiers, and without any."""

import dataclasses
import time
from collections.abc import Callable
from dataclasses import dataclass

from fourfold.cache.budgets import Budgets
from fourfold.cache.reader import Reader
from fourfold.cache.worth import Worth, worth
from fourfold.contract.datasets import DatasetManifest
from fourfold.store.objects import Store


@dataclass(frozen=True)
class Measured:
    """Epochs of reading the training rows of a data set in batches; nothing is trained.

    Attributes:
        store: URI of the store that the rows came from.
        rows: of an epoch.
        batch: rows of a batch.
        with_cache: seconds of each epoch through the tiers, cold at first.
        without: seconds of each epoch where each reads every cached batch from the store anew.
        memory: rows of each epoch with the cache that lay in memory.
        disk: likewise, that came from disk.
        far: likewise, that came from the store, over the network.
    """

    store: str
    rows: int
    batch: int
    with_cache: list[float]
    without: list[float]
    memory: list[int]
    disk: list[int]
    far: list[int]

    @property
    def ratio(self) -> float:
        """How many times longer all epochs take without the cache."""
        return sum(self.without) / sum(self.with_cache)

    @property
    def miss(self) -> float:
        """Seconds of a batch without the cache, a mean over all epochs."""
        return sum(self.without) / len(self.without) / self.batches

    @property
    def hit(self) -> float:
        """Seconds of a batch with the cache, a mean over all epochs but the first."""
        later = self.with_cache[1:]
        return sum(later) / len(later) / self.batches if later else 0.0

    @property
    def batches(self) -> int:
        """Batches of an epoch."""
        return -(-self.rows // self.batch)

    @property
    def predicted(self) -> Worth:
        """What the arithmetic makes of the measured miss and hit."""
        return worth(self.rows, self.batch, len(self.with_cache), self.miss, self.hit)


def measure(
    store: Store,
    manifest: DatasetManifest,
    budgets: Budgets,
    batch: int = 128,
    epochs: int = 10,
    order: str = "rows",
    seed: int = 0,
    progress: Callable[[int], None] = lambda epochs: None,
    clock: Callable[[], float] = time.perf_counter,
) -> Measured:
    """Reads all training rows for some epochs, in turn with the cache and without.

    Without means: a reader that is new in each epoch, so that nothing lies in memory, and has no disk tier.
    It verifies, makes ready and reads several objects at once, as the one with the cache does on a miss.

    Args:
        store: that holds the data set.
        manifest: of the data set.
        budgets: of the reader with the cache.
        batch: rows that are taken at once.
        epochs: passes over the rows.
        order: in which an epoch takes them.
        seed: of that order.
        progress: called with the number of epochs done, of both ways together.
        clock: seconds.
    """
    without_cache = dataclasses.replace(budgets, disk=0)
    times: dict[str, list[float]] = {"with": [], "without": []}
    memory, disk, far = [], [], []
    with Reader(store, manifest, "train", None, budgets) as reader:
        for epoch in range(epochs):
            times["with"].append(_epoch(reader, order, seed, epoch, batch, clock))
            served = reader.take_served()
            disk.append(served.disk)
            far.append(served.store)
            memory.append(served.memory(len(reader)))
            progress(2 * epoch + 1)
            with Reader(store, manifest, "train", None, without_cache) as cold:
                times["without"].append(_epoch(cold, order, seed, epoch, batch, clock))
            progress(2 * epoch + 2)
        rows = len(reader)
    return Measured(store.uri, rows, batch, times["with"], times["without"], memory, disk, far)


def _epoch(
    reader: Reader, order: str, seed: int, epoch: int, batch: int, clock: Callable[[], float]
) -> float:
    """Seconds that an epoch of reading takes."""
    began = clock()
    stream = reader.epoch(reader.windows(order, seed, epoch))
    while stream.left:
        stream.take(min(batch, stream.left))
    return clock() - began
