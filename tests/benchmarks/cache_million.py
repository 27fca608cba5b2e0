"""How the batch cache grows with the number of cached batches: synthetic data sets of 10^4 to 10^6 of them.

No batch is written: what is timed is what lists them. ``python tests/benchmarks/cache_million.py``
"""

import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from fourfold.cache import dataset, housekeeping, layout, orders
from fourfold.cache.budgets import Budgets
from fourfold.cache.reader import Reader
from fourfold.contract import keys
from fourfold.contract.datasets import DatasetManifest, Part
from fourfold.contract.strict import to_json
from fourfold.store.folder import FolderStore
from fourfold.store.formats import array_to_bytes, sha256

ROWS, CLASSES = 100, 10


def made(store: FolderStore, batches: int) -> DatasetManifest:
    """Writes manifest and index of a data set whose batches are not there."""
    index = np.zeros(batches, layout.index_of(CLASSES))
    index["sha256"] = np.random.default_rng(0).integers(0, 256, (batches, 32), dtype=np.uint8)
    index["bytes"], index["classes"] = ROWS * 3140, ROWS // CLASSES
    data = array_to_bytes(index)
    part = Part(
        batches, batches * ROWS, batches * ROWS * 3140, [batches * ROWS // CLASSES] * CLASSES, sha256(data)
    )
    names = [str(number) for number in range(CLASSES)]
    manifest = DatasetManifest(
        layout.FORMAT,
        f"f{batches}",
        "made up",
        "",
        "x / 255",
        "float32",
        [28, 28, 1],
        names,
        ROWS,
        {"train": part},
    )
    store.write(keys.index(manifest.fingerprint, "train"), data)
    store.write(keys.dataset_manifest(manifest.fingerprint), to_json(manifest))
    return manifest


def seconds(what: Callable[[], Any], times: int = 3) -> float:
    """The fewest seconds that something takes."""
    found = []
    for _ in range(times):
        began = time.perf_counter()
        what()
        found.append(time.perf_counter() - began)
    return min(found)


def main() -> None:
    """Measures and prints."""
    folder = Path(tempfile.mkdtemp())
    store, before = FolderStore(folder), None
    try:
        for batches in (10**4, 10**5, 10**6):
            manifest = made(store, batches)
            shard = np.arange(batches * ROWS // 4, dtype=np.int64)
            reader = Reader(store, manifest, "train", shard, Budgets(10**9))
            found = {
                "write manifest and index": seconds(lambda n=batches: made(store, n), 1),
                "read and check them": seconds(lambda m=manifest: dataset.Batches(store, m, "train")),
                "list the data sets of the store": seconds(lambda: housekeeping.listed(store, 0.0)),
                "a reader of a quarter of the rows": seconds(
                    lambda m=manifest, s=shard: Reader(store, m, "train", s, Budgets(10**9)), 1
                ),
                "the order of its epoch": seconds(
                    lambda r=reader: orders.windows("rows", 0, 0, 0, r.owners, r.fit.window), 1
                ),
            }
            size = len(store.read(keys.index(manifest.fingerprint, "train"))) / 1e6
            window = reader.fit.window
            print(
                f"{batches:,} cached batches, {batches * ROWS:,} rows; index {size:.1f} MB, window {window}"
            )
            for name, took in found.items():
                grew = f", {took / before[name]:.1f} times the line above" if before else ""
                print(f"  {name:36s} {took:8.4f} s{grew}")
            before = found
            reader.close()
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
