"""A process of its own that reads a data set through the disk tier: STORE LOG FOLDER BUDGET PARTIAL.

Prints the sum of all rows. With PARTIAL it stops, and says so, when it has fetched so many objects and holds
the lock of the next one; it waits there to be killed.
"""

import sys
import time
from pathlib import Path

import numpy as np

from fourfold.cache import dataset
from fourfold.cache.budgets import Budgets
from fourfold.cache.reader import Reader
from fourfold.store.folder import FolderStore
from tests.cache.stores import FarStore


class Stopping(FarStore):
    """Stops in the middle of a fetch, while the lock of the object is held."""

    left = -1

    def read(self, key: str) -> bytes:
        """See ``Store``."""
        if key.rpartition("/")[2][0].isdigit():
            if self.left == 0:
                print("stopped", flush=True)
                time.sleep(60)
            self.left -= 1
            # Long enough for the others to want the same one.
            time.sleep(0.01)
        return super().read(key)


def main(root: str, log: str, folder: str, budget: str, partial: str) -> None:
    """Reads everything once, in order."""
    store = Stopping(Path(root), Path(log))
    store.left = int(partial)
    manifest = dataset.read_manifest(FolderStore(Path(root)), "beef")
    with Reader(store, manifest, "train", None, Budgets(1, int(budget), folder, at_once=1)) as reader:
        stream, total = reader.epoch([np.arange(len(reader))]), 0.0
        while stream.left:
            x, _ = stream.take(min(3, stream.left))
            total += float(x.astype(np.float64).sum())
    print(total, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
