"""Stores that do to a test what real ones do now and then."""

import contextlib
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from fourfold.contract import keys
from fourfold.contract.errors import StoreError
from fourfold.store.folder import FolderStore


class FarStore(FolderStore):
    """A folder that looks like a store over the network, and keeps in mind what was read.

    Args:
        root: the folder.
        log: file to which the key of every object read is appended, also by other processes.
        damage: changes what is read; called with the key and the bytes.
    """

    def __init__(
        self,
        root: Path,
        log: Path | None = None,
        damage: Callable[[str, bytes], bytes] = lambda key, data: data,
    ):
        super().__init__(root)
        self.uri = "s3://far"
        self._log, self._damage = log, damage
        self.read_keys: list[str] = []

    def read(self, key: str) -> bytes:
        """See ``Store``."""
        data = self._damage(key, super().read(key))
        self.read_keys.append(key)
        if self._log:
            with self._log.open("a") as file:
                file.write(key + "\n")
        return data

    @property
    def batches_read(self) -> list[str]:
        """Keys of the cached batches that were read."""
        return [key for key in self.read_keys if key.rpartition("/")[2][0].isdigit()]


class HeldStore(FarStore):
    """A store that answers for cached batches when it is told to."""

    def __init__(self, root: Path):
        super().__init__(root)
        self.asked: list[str] = []
        self.released = threading.Event()
        self.gone = False

    def read(self, key: str) -> bytes:
        """See ``Store``."""
        if key.rpartition("/")[2][0].isdigit():
            self.asked.append(key)
            assert self.released.wait(20), "nobody released the store"
            if self.gone:
                raise StoreError(f"cannot read {key}: the store is gone")
        return super().read(key)


def files_below(folder: Path) -> list[Path]:
    """The cached batches in a folder, as files."""
    return [path for path in folder.rglob("*") if path.is_file() and path.suffix == ".npy"]


def bytes_below(folder: Path) -> int:
    """Of all files, also of those that are being written."""
    total = 0
    for path in folder.rglob("*"):
        if path.suffix == ".npy" or path.name.startswith(keys.PART):
            with contextlib.suppress(OSError):
                total += path.stat().st_size
    return total


def wait_until(is_so: Callable[[], bool], seconds: float = 10.0) -> None:
    """Waits until something is so."""
    until = time.monotonic() + seconds
    while not is_so() and time.monotonic() < until:
        time.sleep(0.005)
    assert is_so()


def random_rows(rows: int, shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """So many rows of random values, of three classes in turn."""
    x = np.random.default_rng(0).random((rows, *shape), dtype=np.float32)
    return x, np.arange(rows, dtype=np.int32) % 3
