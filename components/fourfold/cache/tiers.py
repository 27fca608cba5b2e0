"""Where a cached batch comes from: memory, else the disk tier, else the store; verified wherever it lay."""

import contextlib
import threading
from dataclasses import dataclass

import numpy as np

from fourfold.cache.budgets import Budgets
from fourfold.cache.dataset import Batches
from fourfold.cache.disk import DiskTier
from fourfold.contract.errors import DamagedObjectError


@dataclass
class Served:
    """How many rows came from where since it was last asked, and what was fetched for them.

    Attributes:
        disk: rows that came from the disk tier, or from a store that is a folder.
        store: rows that came from the store, over the network.
        fetched: bytes read from the store.
        objects: likewise, how many objects.
    """

    disk: int = 0
    store: int = 0
    fetched: int = 0
    objects: int = 0


class Tiers:
    """Reads cached batches of one part, each from the nearest tier that has it.

    Args:
        batches: of the part.
        budgets: of this reader.
    """

    def __init__(self, batches: Batches, budgets: Budgets):
        self._batches, self._guard = batches, threading.Lock()
        self._local = batches.store.uri.startswith("file:")
        self._disk: DiskTier | None = None
        self._held = contextlib.ExitStack()
        self.said: list[str] = []
        self._served = Served()
        if budgets.disk and budgets.folder:
            try:
                self._disk = DiskTier(budgets.folder, budgets.disk)
                self._held.enter_context(self._disk.held(batches.manifest.fingerprint))
            except OSError as error:
                self._say(f"the disk tier {budgets.folder} cannot be used: {error.strerror or error}")

    def read(self, index: int, rows: int | None = None) -> tuple[np.ndarray, np.ndarray]:
        """The rows of a cached batch, as they are kept.

        Args:
            index: of the batch.
            rows: how many of them will be served; all if None.

        Returns:
            ``x`` [n, ...] and ``y`` [n] int32; neither can be written to.

        Raises:
            MissingObjectError: neither tier has it; the error names its key.
            DamagedObjectError: it is not what the manifest says in the store, either.
            StoreError: the store did not answer.
        """
        rows = self._batches.rows(index) if rows is None else rows
        if self._disk is None:
            return self._from_store(index, rows)
        found = self._from_disk(index, rows)
        if found is not None:
            return found
        key = self._batches.key(index)
        if self._disk.full:
            return self._from_store(index, rows)
        with self._disk.once(key):
            # Another process of this node may have fetched it while we waited.
            return self._from_disk(index, rows) or self._from_store(index, rows)

    def take_served(self) -> Served:
        """What was served since the last time."""
        with self._guard:
            served, self._served = self._served, Served()
        return served

    def close(self) -> None:
        """Lets go of what is held; may be called twice."""
        self._held.close()

    def _from_disk(self, index: int, rows: int) -> tuple[np.ndarray, np.ndarray] | None:
        assert self._disk is not None
        key = self._batches.key(index)
        data = self._disk.get(key)
        if data is None:
            return None
        try:
            found = self._batches.decode(index, data)
        except DamagedObjectError:
            self._disk.drop(key)
            self._say(f"{key} was damaged on disk and is fetched again")
            return None
        with self._guard:
            self._served.disk += rows
        return found

    def _from_store(self, index: int, rows: int) -> tuple[np.ndarray, np.ndarray]:
        key = self._batches.key(index)
        data = self._batches.store.read(key)
        if not self._batches.is_whole(index, data):
            # Damaged on its way, perhaps: once more; what lies there damaged is told by name.
            data = self._batches.store.read(key)
        found = self._batches.decode(index, data)
        with self._guard:
            self._served.fetched += len(data)
            self._served.objects += 1
            if self._local:
                self._served.disk += rows
            else:
                self._served.store += rows
        if self._disk is not None and not self._disk.put(key, data) and self._disk.full:
            self._say(f"no more is kept on disk: {self._disk.full}")
        return found

    def _say(self, sentence: str) -> None:
        with self._guard:
            if sentence not in self.said:
                self.said.append(sentence)
