"""Data sets of ready batches under a fingerprint: written once, the manifest last, verified whenever read."""

import concurrent.futures
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from fourfold.cache import layout, values
from fourfold.contract import keys
from fourfold.contract.datasets import DatasetManifest, Part
from fourfold.contract.errors import (
    DamagedObjectError,
    InvalidInputError,
    MissingObjectError,
    OtherFormatError,
)
from fourfold.contract.strict import from_json, to_json
from fourfold.store.formats import array_to_bytes, sha256
from fourfold.store.objects import Store

AT_ONCE = 8
"""Objects that are read or written at the same time."""
SLICE = 16 * AT_ONCE
"""Objects that are begun before it is known of the first whether it failed."""
T = TypeVar("T")


def write_dataset(
    store: Store,
    manifest: DatasetManifest,
    parts: Mapping[str, tuple[np.ndarray, np.ndarray]],
    progress: Callable[[int, int], None] = lambda done, total: None,
    wrote: Callable[[str, bytes], object] = lambda key, data: None,
) -> DatasetManifest:
    """Writes a data set, its manifest last.

    Args:
        store: to write to.
        manifest: what the data set is; its ``parts`` and when it was created are filled in here.
        parts: for each part the rows, ``x`` [n, ...] in the manifest's dtype and ``y`` [n] int32.
        progress: called with batches written and batches in all.
        wrote: called with the key and the bytes of each cached batch, on any thread.

    Returns:
        The manifest as written.
    """
    size, name = manifest.rows_per_batch, manifest.fingerprint
    total, done, listed = sum(-(-len(y) // size) for _, y in parts.values()), 0, {}
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        for part, (x, y) in parts.items():
            index = np.zeros(-(-len(y) // size), layout.index_of(len(manifest.class_names)))

            def write(number: int, part=part, x=x, y=y, index=index) -> None:
                rows = slice(number * size, (number + 1) * size)
                data, key = layout.batch_to_bytes(x[rows], y[rows]), keys.batch(name, part, number)
                store.write(key, data)
                wrote(key, data)
                classes = np.bincount(y[rows], minlength=len(manifest.class_names))
                index[number] = np.frombuffer(bytes.fromhex(sha256(data)), np.uint8), len(data), classes

            for _ in _in_slices(pool, write, range(len(index))):
                done += 1
                progress(done, total)
            data = array_to_bytes(index)
            store.write(keys.index(name, part), data)
            listed[part] = Part(
                batches=len(index),
                rows=len(y),
                bytes=int(index["bytes"].sum()),
                classes=index["classes"].sum(axis=0, dtype=np.int64).tolist(),
                sha256=sha256(data),
            )
    whole = replace(manifest, parts=listed, created=time.time())
    store.write(keys.dataset_manifest(name), to_json(whole))
    return whole


def read_manifest(store: Store, name: str) -> DatasetManifest:
    """The manifest of the data set with this fingerprint.

    Raises:
        MissingObjectError: there is no such data set.
        DamagedObjectError: the manifest cannot be read, or is of another data set.
        OtherFormatError: it was written by another version.
        StoreError: the store does not answer.
    """
    key = keys.dataset_manifest(name)
    data = store.read(key)
    # What an unknown format has instead of our fields is no damage: its number is looked at first.
    written = from_json(_Format, data, key).format
    if written != layout.FORMAT:
        is_newer = written > layout.FORMAT
        what = "upgrade fourfold, or prepare" if is_newer else "prepare"
        raise OtherFormatError(
            f"{key} in {store.uri} has format {written}, this version reads format {layout.FORMAT}: {what} "
            "the data again into another store",
            is_newer,
        )
    manifest = from_json(DatasetManifest, data, key)
    if manifest.fingerprint != name:
        raise DamagedObjectError(
            f"{key} is the manifest of {manifest.fingerprint}; delete it and prepare again"
        )
    if wrong := layout.contradiction(manifest):
        raise DamagedObjectError(f"{key} is damaged: {wrong}; delete it and prepare again")
    return manifest


class Batches:
    """The cached batches of a part, by their index.

    Args:
        store: that holds the data set.
        manifest: of the data set.
        part: ``train``, ``holdout`` or ``test``.

    Raises:
        MissingObjectError: the part's index is missing.
        DamagedObjectError: it is not what the manifest says, or the manifest has no such part.
    """

    def __init__(self, store: Store, manifest: DatasetManifest, part: str):
        self.store, self.manifest, self.part = store, manifest, part
        check_part(manifest, part)
        key = keys.index(manifest.fingerprint, part)
        self._index = layout.index_from_bytes(store.read(key), key, manifest, part)
        self._digests = self._index["sha256"]
        self._sums = np.zeros(len(self._index), np.uint64)
        self._is_known = np.zeros(len(self._index), bool)

    def __len__(self) -> int:
        return len(self._index)

    def key(self, index: int) -> str:
        """The key of a cached batch."""
        return keys.batch(self.manifest.fingerprint, self.part, index)

    def rows(self, index: int) -> int:
        """How many rows a cached batch has."""
        size = self.manifest.rows_per_batch
        return min(size, self.manifest.rows(self.part) - index * size)

    def size(self, index: int) -> int:
        """The size of a cached batch's object."""
        return int(self._index["bytes"][index])

    def is_whole(self, index: int, data: bytes | memoryview) -> bool:
        """Whether these are the bytes of a cached batch.

        The first time by their sha256. Later times by their sum as 64-bit words, remembered from then, which
        no change of a single word leaves as it was; it takes a fifth of the time.
        """
        if len(data) != self._index["bytes"][index]:
            return False
        words = np.frombuffer(data, np.uint64, len(data) // 8).sum(dtype=np.uint64)
        found = words ^ np.uint64(int.from_bytes(data[len(data) // 8 * 8 :], "little"))
        if self._is_known[index] and found == self._sums[index]:
            return True
        if bytes.fromhex(sha256(data)) != self._digests[index].tobytes():
            return False
        self._sums[index], self._is_known[index] = found, True
        return True

    def decode(self, index: int, data: bytes | memoryview) -> tuple[np.ndarray, np.ndarray]:
        """The rows in the bytes of a cached batch, as they are kept.

        Returns:
            ``x`` [rows, ...] in the manifest's dtype and ``y`` [rows] int32: views of the bytes.

        Raises:
            DamagedObjectError: the bytes are not what the manifest says.
        """
        key = self.key(index)
        if not self.is_whole(index, data):
            raise DamagedObjectError(
                f"{key} in {self.store.uri} is damaged: its sha256 is not that of the manifest; "
                "prepare the data again to rebuild it"
            )
        shape = tuple(self.manifest.shape)
        return layout.batch_from_bytes(data, key, self.rows(index), shape, self.manifest.dtype)


def _in_slices(
    pool: concurrent.futures.Executor, function: Callable[[int], T], numbers: Sequence[int]
) -> Iterator[T]:
    """What a function gives for each number, in order; where it fails for one, it was not begun for all."""
    for first in range(0, len(numbers), SLICE):
        yield from pool.map(function, numbers[first : first + SLICE])


def damaged(
    store: Store, manifest: DatasetManifest, progress: Callable[[], None] = lambda: None
) -> Iterator[str]:
    """Yields a sentence for each object of a data set that is missing or not what the manifest says.

    Args:
        store: that holds the data set.
        manifest: of the data set.
        progress: called after each cached batch.
    """
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        for part in manifest.parts:
            try:
                batches = Batches(store, manifest, part)
            except (MissingObjectError, DamagedObjectError) as error:
                yield str(error)
                continue

            def fault(index: int, batches: Batches = batches) -> str:
                try:
                    batches.decode(index, store.read(batches.key(index)))
                except (MissingObjectError, DamagedObjectError) as error:
                    return str(error)
                return ""

            for sentence in _in_slices(pool, fault, range(len(batches))):
                progress()
                if sentence:
                    yield sentence


def read_rows(
    store: Store, manifest: DatasetManifest, part: str, numbers: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Reads rows of a part at once, verified and ready, in the order asked for.

    Only the cached batches that hold such rows are read, each once.

    Args:
        store: that holds the data set.
        manifest: of the data set.
        part: ``train``, ``holdout`` or ``test``.
        numbers: row numbers [n] int64; all rows if None.

    Returns:
        ``x`` [n, ...] float32, ``y`` [n] int32.

    Raises:
        MissingObjectError: a cached batch is not in the store; the error names its key.
        DamagedObjectError: a cached batch is not what the manifest says; the error names its key.
        InvalidInputError: a number is out of range.
    """
    numbers = check_numbers(manifest, part, numbers)
    x = np.empty((len(numbers), *manifest.shape), np.float32)
    y = np.empty(len(numbers), np.int32)
    batches, owner = Batches(store, manifest, part), numbers // manifest.rows_per_batch
    needed = np.unique(owner).tolist()

    def read(index: int) -> None:
        found_x, found_y = batches.decode(index, store.read(batches.key(index)))
        places = np.flatnonzero(owner == index)
        inside = numbers[places] - index * manifest.rows_per_batch
        x[places], y[places] = values.ready(found_x[inside], manifest.scale), found_y[inside]

    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        for _ in _in_slices(pool, read, needed):
            pass
    return x, y


def check_part(manifest: DatasetManifest, part: str) -> None:
    """Checks that a data set has a part.

    Raises:
        DamagedObjectError: it has none of that name.
    """
    if part not in manifest.parts:
        raise DamagedObjectError(
            f"{keys.dataset_manifest(manifest.fingerprint)} has no part {part!r} "
            f"({', '.join(manifest.parts) or 'none'}); delete it and prepare again"
        )


def check_numbers(manifest: DatasetManifest, part: str, numbers: np.ndarray | None) -> np.ndarray:
    """Row numbers [n] int64 of a part; all if None.

    Raises:
        DamagedObjectError: there is no such part.
        InvalidInputError: a number is out of range.
    """
    check_part(manifest, part)
    total = manifest.rows(part)
    found = np.arange(total, dtype=np.int64) if numbers is None else np.asarray(numbers, dtype=np.int64)
    if len(found) and not 0 <= found.min() <= found.max() < total:
        raise InvalidInputError(f"{part} has rows 0 to {total - 1}, got {found.min()} to {found.max()}")
    return found


@dataclass(frozen=True)
class _Format:
    """What every manifest says."""

    format: int
