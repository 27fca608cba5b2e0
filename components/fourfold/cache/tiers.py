"""Where a cached batch comes from: memory, else the disk tier, else the store; verified wherever it lay."""

import contextlib
import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from fourfold.cache.budgets import Budgets
from fourfold.cache.dataset import Batches
from fourfold.cache.disk import DiskTier
from fourfold.contract.errors import DamagedObjectError
from fourfold.store.folder import FolderStore, read_file_into

TRIES = 3
"""How often an object is read that comes damaged."""


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

    def memory(self, rows: int) -> int:
        """How many of so many rows that were taken meanwhile lay in memory."""
        return max(0, rows - self.disk - self.store)


class _Own(threading.local):
    """What each thread has of its own: a buffer that is used again and again."""

    def __init__(self):
        self.buffer = bytearray()


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
        self._served, self._own = Served(), _Own()
        # From disk, mostly from the system's own cache, more at once would only take turns at the cores,
        # which the step wants, too; a network's delays are another matter.
        self._turns = threading.Semaphore(max(1, (os.cpu_count() or 1) // 2))
        if budgets.disk and budgets.folder:
            try:
                self._disk = DiskTier(budgets.folder, budgets.disk)
                self._held.enter_context(self._disk.held(batches.manifest.fingerprint))
            except OSError as error:
                self._say(f"the disk tier {budgets.folder} cannot be used: {error.strerror or error}")

    @contextlib.contextmanager
    def reading(self, index: int, rows: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """The rows of a cached batch, as they are kept; they are good while one is inside.

        Args:
            index: of the batch.
            rows: how many of them will be served.

        Yields:
            ``x`` [n, ...] and ``y`` [n] int32, not to be written to.

        Raises:
            MissingObjectError: no tier has it; the error names its key.
            DamagedObjectError: it is not what the manifest says in the store, either.
            StoreError: the store did not answer.
        """
        with contextlib.ExitStack() as turn:
            yield self._read(index, rows, turn)

    def _read(self, index: int, rows: int, turn: contextlib.ExitStack) -> tuple[np.ndarray, np.ndarray]:
        if self._disk is None:
            return self._from_store(index, rows, turn)
        found = self._from_disk(index, rows, turn)
        if found is not None:
            return found
        if self._disk.full:
            return self._from_store(index, rows, turn)
        with self._disk.once(self._batches.key(index)):
            # Another process of this node may have fetched it while we waited.
            return self._from_disk(index, rows, turn) or self._from_store(index, rows, turn)

    def take_served(self) -> Served:
        """What was served since the last time."""
        with self._guard:
            served, self._served = self._served, Served()
        return served

    def close(self) -> None:
        """Lets go of what is held; may be called twice."""
        self._held.close()

    def _from_disk(
        self, index: int, rows: int, turn: contextlib.ExitStack
    ) -> tuple[np.ndarray, np.ndarray] | None:
        assert self._disk is not None
        key = self._batches.key(index)
        turn.enter_context(self._turns)
        try:
            data = self._disk.get(key, self._own.buffer)
            if data is None:
                turn.close()
                return None
            found = self._batches.decode(index, data)
        except DamagedObjectError:
            turn.close()
            self._disk.drop(key)
            self._say(f"{key} was damaged on disk and is fetched again")
            return None
        with self._guard:
            self._served.disk += rows
        return found

    def _from_store(self, index: int, rows: int, turn: contextlib.ExitStack) -> tuple[np.ndarray, np.ndarray]:
        key, left = self._batches.key(index), TRIES
        if self._local:
            turn.enter_context(self._turns)
        while True:
            data, left = self._fetch(key), left - 1
            try:
                found = self._batches.decode(index, data)
                break
            except DamagedObjectError:
                # The error keeps what was read as long as it is kept itself: nothing else is read into that.
                self._own.buffer = bytearray()
                # On its way, perhaps; what lies there damaged is told by name.
                if not left:
                    raise
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

    def _fetch(self, key: str) -> bytes | memoryview:
        store = self._batches.store
        if isinstance(store, FolderStore) and self._local:
            with contextlib.suppress(OSError):
                return read_file_into(store.path(key), self._own.buffer)
        return store.read(key)

    def _say(self, sentence: str) -> None:
        with self._guard:
            if sentence not in self.said:
                self.said.append(sentence)
