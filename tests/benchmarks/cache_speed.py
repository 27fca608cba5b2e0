"""How fast the batch cache gives rows, beside what else there is: the same rows and batches, one run.

Each contender runs in a process of its own, so that its peak memory is its own, and says the seconds of some
epochs; rounds of all contenders take turns. Printed are medians, and ratios to ours. With
``--store s3://bucket/prefix`` and the usual AWS variables the S3 tier is measured, too; ``--help`` says more.
"""

import argparse
import concurrent.futures
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

Batches = Iterator[tuple[Any, Any]]
SEED = 0


class Data:
    """What every contender reads.

    Args:
        folder: with the rows as ``x.npy`` and ``y.npy``, as a data set, and as one ``.npz`` a batch.
        store: URI of a store over the network that holds the data set; empty for none.
        batch: rows of a batch.
        ram: bytes that our reader may take; 0 for all that it needs.
    """

    def __init__(self, folder: str, store: str, batch: int, ram: int, fingerprint: str):
        self.folder, self.store, self.batch = Path(folder), store, batch
        self.ram, self.fingerprint = ram or 10**12, fingerprint

    def arrays(self) -> tuple[np.ndarray, np.ndarray]:
        """All rows, in memory."""
        return np.load(self.folder / "x.npy"), np.load(self.folder / "y.npy")

    def order(self, epoch: int, rows: int) -> np.ndarray:
        """The order that our cache takes in memory: other contenders that can take the same."""
        return np.random.default_rng([SEED, epoch, 0]).permutation(rows)


Epochs = Callable[[int], Batches]
"""Makes the batches of an epoch."""


def numpy_loop(data: Data) -> Epochs:
    """The limit: a plain loop over arrays in memory."""
    x, y = data.arrays()

    def epoch(number: int) -> Batches:
        order = data.order(number, len(y))
        for first in range(0, len(y), data.batch):
            rows = order[first : first + data.batch]
            yield x[rows], y[rows]

    return epoch


def _reader(data: Data, uri: str, ram: int, disk: str = "") -> Any:
    from fourfold.cache import dataset
    from fourfold.cache.budgets import Budgets
    from fourfold.cache.reader import Reader
    from fourfold.store.objects import open_store

    store = open_store(uri)
    manifest = dataset.read_manifest(store, data.fingerprint)
    return Reader(store, manifest, "train", None, Budgets(ram, 10**12 if disk else 0, disk))


def _ours(data: Data, reader: Any, order: str = "rows") -> Epochs:
    def epoch(number: int) -> Batches:
        stream = reader.epoch(reader.windows(order, SEED, number))
        while stream.left:
            yield stream.take(min(data.batch, stream.left))

    return epoch


def ours_memory(data: Data) -> Epochs:
    """Our memory tier, warm."""
    return _ours(data, _reader(data, str(data.folder / "store"), 10**12))


def ours_disk(data: Data) -> Epochs:
    """Our disk tier, warm: rows dealt within windows, as many in memory as the budget says."""
    return _ours(data, _reader(data, str(data.folder / "store"), data.ram))


def ours_disk_batches(data: Data) -> Epochs:
    """Our disk tier, warm: cached batches in a new order, as contenders that keep ready batches do."""
    return _ours(data, _reader(data, str(data.folder / "store"), data.ram), "batches")


def ours_s3_cold(data: Data) -> Epochs:
    """Our S3 tier: every epoch is the first of a new reader, nothing is kept anywhere."""

    def epoch(number: int) -> Batches:
        with _reader(data, data.store, 10**12) as reader:
            yield from _ours(data, reader)(number)

    return epoch


def ours_s3_disk(data: Data) -> Epochs:
    """Our disk tier in front of S3, warm."""
    return _ours(data, _reader(data, data.store, data.ram, str(data.folder / "tier")))


def _tensorflow() -> Any:
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    import tensorflow as tf

    return tf


def tf_cache(data: Data) -> Epochs:
    """tf.data: cache in memory, shuffle anew over all rows, batch, prefetch; its best order of these."""
    tf = _tensorflow()
    x, y = data.arrays()
    rows = tf.data.Dataset.from_tensor_slices((x, y)).cache().shuffle(len(y), SEED)
    return _epochs(rows.batch(data.batch, num_parallel_calls=tf.data.AUTOTUNE, deterministic=False), tf)


def tf_cache_batches(data: Data) -> Epochs:
    """tf.data as in the source: shuffle, batch, cache, prefetch. Its order is frozen by the cache."""
    tf = _tensorflow()
    x, y = data.arrays()
    rows = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(len(y), SEED)
    return _epochs(rows.batch(data.batch).cache(), tf)


def tf_file_cache(data: Data) -> Epochs:
    """tf.data: rows cached in a file, shuffled anew over as many rows as our windows hold."""
    tf = _tensorflow()
    x, y = data.arrays()
    window = min(len(y), max(1, data.ram // 4 // x[0].nbytes))
    place = tempfile.mkdtemp(dir=data.folder)
    rows = tf.data.Dataset.from_tensor_slices((x, y)).cache(f"{place}/cache")
    for _ in rows:
        pass
    return _epochs(rows.shuffle(window, SEED).batch(data.batch, num_parallel_calls=tf.data.AUTOTUNE), tf)


def tf_file_cache_batches(data: Data) -> Epochs:
    """tf.data: shuffle, batch, cache in a file, prefetch: ready batches, whose order is frozen."""
    tf = _tensorflow()
    x, y = data.arrays()
    place = tempfile.mkdtemp(dir=data.folder)
    rows = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(len(y), SEED)
    return _epochs(rows.batch(data.batch).cache(f"{place}/cache"), tf)


def tf_saved(data: Data) -> Epochs:
    """tf.data: ready batches saved (a snapshot) and loaded, batches in a new order each epoch."""
    tf = _tensorflow()
    x, y = data.arrays()
    place = tempfile.mkdtemp(dir=data.folder)
    rows = tf.data.Dataset.from_tensor_slices((x, y)).batch(data.batch)
    rows.save(place, shard_func=lambda x, y: tf.cast(tf.reduce_sum(y) % 4, tf.int64))
    loaded = tf.data.Dataset.load(place).shuffle(-(-len(y) // data.batch), SEED)
    del x, y
    return _epochs(loaded, tf)


def _epochs(rows: Any, tf: Any) -> Epochs:
    options = tf.data.Options()
    options.deterministic = False
    options.threading.private_threadpool_size = 0
    ready = rows.with_options(options).prefetch(tf.data.AUTOTUNE)
    # Plain iteration, which hands out tensors, is faster than ``as_numpy_iterator``.
    return lambda number: iter(ready)


def npz_a_batch(data: Data) -> Epochs:
    """One ``.npz`` a batch, loaded by NumPy, in a new order each epoch."""
    files = sorted((data.folder / "npz").iterdir())

    def epoch(number: int) -> Batches:
        for index in data.order(number, len(files)):
            with np.load(files[index]) as found:
                yield found["x"], found["y"]

    return epoch


def bare_client(data: Data) -> Epochs:
    """The same objects by the bare MinIO client, as many at once; nothing is verified or decoded."""
    import minio
    import urllib3

    from fourfold.cache import dataset
    from fourfold.contract import keys
    from fourfold.store import s3
    from fourfold.store.objects import open_store

    how = s3.settings()
    client = minio.Minio(
        how.host,
        access_key=how.access_key,
        secret_key=how.secret_key,
        secure=how.secure,
        region="us-east-1",
        http_client=urllib3.PoolManager(maxsize=16),
    )
    bucket, _, prefix = data.store.removeprefix("s3://").partition("/")
    count = dataset.read_manifest(open_store(data.store), data.fingerprint).parts["train"].batches
    names = [f"{prefix}/{keys.batch(data.fingerprint, 'train', index)}".lstrip("/") for index in range(count)]

    def fetch(name: str) -> bytes:
        answer = client.get_object(bucket, name)
        try:
            return answer.read()
        finally:
            answer.close()
            answer.release_conn()

    def epoch(number: int) -> Batches:
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            for found in pool.map(fetch, names):
                yield found, found

    return epoch


MEMORY = (ours_memory, numpy_loop, tf_cache, tf_cache_batches)
DISK = (ours_disk, ours_disk_batches, tf_file_cache, tf_file_cache_batches, tf_saved, npz_a_batch)
NETWORK = (ours_s3_cold, bare_client, ours_s3_disk)
ALL = {each.__name__: each for each in (*MEMORY, *DISK, *NETWORK)}


def peak_memory() -> int:
    """The largest resident memory of this program, bytes; ``getrusage`` counts what forked it, too."""
    status = Path("/proc/self/status").read_text()
    return 1024 * int(status.partition("VmHWM:")[2].split()[0])


def contend(name: str, data: Data, epochs: int) -> None:
    """Is one contender: says seconds of an epoch and its peak memory, for each line that it reads."""
    made = ALL[name](data)
    # The first epoch fills what is to be filled; of what is always cold it is like any other.
    rows = sum(len(y) for _, y in made(0)) if name != "bare_client" else sum(1 for _ in made(0))
    print(json.dumps({"rows": rows}), flush=True)
    for number, _ in enumerate(sys.stdin, start=1):
        began = time.perf_counter()
        for epoch in range(epochs):
            for _ in made(number * epochs + epoch):
                pass
        seconds = (time.perf_counter() - began) / epochs
        peak = peak_memory()
        print(json.dumps({"seconds": seconds, "peak": peak}), flush=True)


def compare(names: list[str], arguments: list[str], rounds: int) -> dict[str, tuple[float, float, int]]:
    """Median and best seconds of an epoch, and peak memory, of each contender; rounds take turns."""
    running = {}
    for name in names:
        process = subprocess.Popen(
            [sys.executable, __file__, "--contend", name, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            bufsize=1,
        )
        assert process.stdout is not None
        first = process.stdout.readline()
        if not first:
            print(f"  {name} could not start")
            continue
        running[name] = process
    times: dict[str, list[float]] = {name: [] for name in running}
    peak = {}
    for _ in range(rounds):
        for name, process in running.items():
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write("\n")
            said = json.loads(process.stdout.readline())
            times[name].append(said["seconds"])
            peak[name] = said["peak"]
    for process in running.values():
        assert process.stdin is not None
        process.stdin.close()
        process.wait()
    return {name: (statistics.median(found), min(found), peak[name]) for name, found in times.items()}


def show(title: str, found: dict[str, tuple[float, float, int]], nbytes: float) -> None:
    """Prints a table; ratios are to the first: how many times as long each takes."""
    print(f"\n{title}")
    ours = next(iter(found.values()))[0] if found else 0.0
    for name, (median, best, peak) in found.items():
        about = (ALL[name].__doc__ or "").splitlines()[0]
        print(
            f"  {name:22s} {median:7.3f} s (best {best:7.3f})  {nbytes / median / 1e6:7.0f} MB/s  "
            f"{median / ours:6.2f} x  peak {peak / 1e6:6.0f} MB  {about}"
        )


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default="sample", help="sample, mnist or a folder, as for `fourfold run`")
    parser.add_argument("--rows", type=int, default=8000)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--cached-batch", type=int, default=100)
    parser.add_argument("--epochs", type=int, default=3, help="of each round")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--store", default="", help="s3://bucket/prefix, to measure the S3 tier, too")
    parser.add_argument("--contend", default="", help=argparse.SUPPRESS)
    parser.add_argument("--folder", default="", help=argparse.SUPPRESS)
    parser.add_argument("--ram", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--fingerprint", default="", help=argparse.SUPPRESS)
    told = parser.parse_args()
    if told.contend:
        contend(
            told.contend, Data(told.folder, told.store, told.batch, told.ram, told.fingerprint), told.epochs
        )
        return
    folder = Path(tempfile.mkdtemp())
    try:
        measure(told, folder)
    finally:
        shutil.rmtree(folder)


def measure(told: argparse.Namespace, folder: Path) -> None:
    """Prepares the rows in every form, lets the contenders run, prints."""
    from fourfold.cache import dataset
    from fourfold.contract.caching import Caching
    from fourfold.prepare.step import prepare
    from fourfold.store.objects import open_store

    caching = Caching(batch_rows=told.cached_batch)
    made = prepare(str(folder / "store"), told.data, told.rows, 1000, caching=caching)
    if told.store:
        prepare(told.store, told.data, told.rows, 1000, caching=caching)
    x, y = dataset.read_rows(open_store(str(folder / "store")), made.manifest, "train")
    np.save(folder / "x.npy", x)
    np.save(folder / "y.npy", y)
    (folder / "npz").mkdir()
    for index, first in enumerate(range(0, len(y), told.batch)):
        rows = slice(first, first + told.batch)
        np.savez(folder / "npz" / f"{index:06d}.npz", x=x[rows], y=y[rows])
    how_often = f"{told.rounds} rounds of {told.epochs} epochs"
    print(f"{len(y):,} rows, {x.nbytes / 1e6:.0f} MB, batches of {told.batch}, {how_often}")
    nbytes = float(x.nbytes)
    del x, y

    def among(contenders: tuple[Any, ...], ram: int = 0) -> dict[str, tuple[float, float, int]]:
        arguments = ["--folder", str(folder), "--store", told.store, "--batch", str(told.batch)]
        arguments += ["--epochs", str(told.epochs), "--fingerprint", made.manifest.fingerprint]
        names = [each.__name__ for each in contenders]
        return compare(names, [*arguments, "--ram", str(ram)], told.rounds)

    in_memory = among(MEMORY)
    show(
        "In memory (goals: at least 0.9 of the limit, and no slower than tf.data's cache)", in_memory, nbytes
    )
    limit, mine = in_memory["numpy_loop"][0], in_memory["ours_memory"][0]
    print(
        f"  of the limit: {limit / mine:.2f}; against tf.data's cache: {in_memory['tf_cache'][0] / mine:.2f}"
    )
    half, quarter = int(nbytes // 2), int(nbytes // 4)
    on_disk = among(DISK, quarter)
    fits = f"{quarter / 1e6:.0f} MB of memory"
    show(f"From disk, {fits} (goal: no slower than tf.data's file cache)", on_disk, nbytes)
    for name in ("tf_file_cache", "tf_file_cache_batches"):
        print(f"  against {name}: {on_disk[name][0] / on_disk['ours_disk'][0]:.2f}")
    on_disk = among((ours_disk, tf_file_cache), half)
    show(f"Half of the set fits into memory: {half / 1e6:.0f} MB, the others from disk", on_disk, nbytes)
    if told.store:
        far = among(NETWORK, quarter)
        show("Over the network (goal: cold at most 1.2 times the bare client)", far, nbytes)
        print(f"  cold against the bare client: {far['ours_s3_cold'][0] / far['bare_client'][0]:.2f}")
    else:
        print("\nOver the network: not measured; name --store s3://bucket/prefix")


if __name__ == "__main__":
    main()
