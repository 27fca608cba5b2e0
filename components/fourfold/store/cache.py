"""The batch cache: data sets of ready batches under a fingerprint, written once, verified whenever read.

Layout, readable with NumPy alone: ``datasets/<fingerprint>/<part>/<index>.x.npy`` and ``.y.npy`` (see
``contract.keys``) beside a JSON manifest that lists each cached batch with its sha256. The manifest is
written last.
"""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping

import numpy as np

from fourfold.contract import keys
from fourfold.contract.errors import DamagedObjectError, InvalidInputError, MissingObjectError, StoreError
from fourfold.contract.records import CachedBatch, DatasetManifest, Split
from fourfold.contract.strict import from_json, to_json
from fourfold.store.formats import array_from_bytes, array_to_bytes, sha256
from fourfold.store.objects import Store

FORMAT = 1


def fingerprint(content: Mapping[str, object]) -> str:
    """The name of a data set: a hash over everything that its content depends on.

    Args:
        content: JSON values by name; their order does not matter.

    Returns:
        32 hexadecimal digits.
    """
    text = json.dumps({"format": FORMAT, **content}, sort_keys=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def write_dataset(
    store: Store,
    manifest: DatasetManifest,
    parts: Mapping[str, tuple[np.ndarray, np.ndarray]],
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> DatasetManifest:
    """Writes a data set, its manifest last.

    Args:
        store: to write to.
        manifest: what the data set is; its ``parts`` are filled in here.
        parts: for each part the ready rows, ``x`` [n, ...] in the manifest's dtype and ``y`` [n] int32.
        progress: called with batches written and batches in all.

    Returns:
        The manifest as written.
    """
    size = manifest.rows_per_batch
    total = sum(-(-len(y) // size) for _, y in parts.values())
    done, listed = 0, {}
    for part, (x, y) in parts.items():
        listed[part] = []
        for index, start in enumerate(range(0, len(y), size)):
            rows = slice(start, min(start + size, len(y)))
            objects = {"x": array_to_bytes(x[rows]), "y": array_to_bytes(y[rows])}
            for array, data in objects.items():
                store.write(keys.batch(manifest.fingerprint, part, index, array), data)
            listed[part].append(
                CachedBatch(
                    index=index,
                    rows=rows.stop - rows.start,
                    bytes=sum(map(len, objects.values())),
                    sha256={array: sha256(data) for array, data in objects.items()},
                    classes=np.bincount(y[rows], minlength=len(manifest.class_names)).tolist(),
                )
            )
            done += 1
            progress(done, total)
    whole = DatasetManifest(**{**manifest.__dict__, "parts": listed})
    store.write(keys.dataset_manifest(manifest.fingerprint), to_json(whole))
    return whole


def read_manifest(store: Store, name: str) -> DatasetManifest:
    """The manifest of the data set with this fingerprint.

    Raises:
        MissingObjectError: there is no such data set.
        DamagedObjectError: the manifest cannot be read, or is of another data set.
        StoreError: it was written in a newer format.
    """
    key = keys.dataset_manifest(name)
    manifest = from_json(DatasetManifest, store.read(key), key)
    if manifest.format > FORMAT:
        raise StoreError(
            f"{key} has format {manifest.format}, this version reads up to {FORMAT}: upgrade fourfold, "
            "or prepare the data again into another store"
        )
    if manifest.fingerprint != name:
        raise DamagedObjectError(
            f"{key} is the manifest of {manifest.fingerprint}; delete it and prepare again"
        )
    return manifest


def damaged(store: Store, manifest: DatasetManifest) -> Iterator[str]:
    """Yields a sentence for each object of a data set that is missing or not what the manifest says."""
    for part, batches in manifest.parts.items():
        for batch in batches:
            try:
                _read_batch(store, manifest, part, batch)
            except (MissingObjectError, DamagedObjectError) as error:
                yield str(error)


def read_rows(
    store: Store, manifest: DatasetManifest, part: str, numbers: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Reads rows of a part, verified, in the order asked for.

    Only the cached batches that hold such rows are read, each once.

    Args:
        store: that holds the data set.
        manifest: of the data set.
        part: ``train``, ``holdout`` or ``test``.
        numbers: row numbers [n] int64, ascending within the part; all rows if None.

    Returns:
        ``x`` [n, ...] in the manifest's dtype, ``y`` [n] int32.

    Raises:
        MissingObjectError: a cached batch is not in the store; the error names its key.
        DamagedObjectError: a cached batch is not what the manifest says; the error names its key.
        InvalidInputError: a number is out of range.
    """
    total = manifest.rows(part)
    numbers = np.arange(total, dtype=np.int64) if numbers is None else np.asarray(numbers, dtype=np.int64)
    if len(numbers) and not 0 <= numbers.min() <= numbers.max() < total:
        raise InvalidInputError(f"{part} has rows 0 to {total - 1}, got {numbers.min()} to {numbers.max()}")
    x = np.empty((len(numbers), *manifest.shape), dtype=manifest.dtype)
    y = np.empty(len(numbers), dtype=np.int32)
    owner = numbers // manifest.rows_per_batch
    for index in np.unique(owner):
        batch_x, batch_y = _read_batch(store, manifest, part, manifest.parts[part][index])
        places = np.flatnonzero(owner == index)
        inside = numbers[places] - index * manifest.rows_per_batch
        x[places], y[places] = batch_x[inside], batch_y[inside]
    return x, y


def _read_batch(
    store: Store, manifest: DatasetManifest, part: str, batch: CachedBatch
) -> tuple[np.ndarray, np.ndarray]:
    arrays = {}
    for array in ("x", "y"):
        key = keys.batch(manifest.fingerprint, part, batch.index, array)
        data = store.read(key)
        if sha256(data) != batch.sha256.get(array):
            raise DamagedObjectError(
                f"{key} in {store.uri} is damaged: its sha256 is not that of the manifest; "
                "prepare the data again to rebuild it"
            )
        arrays[array] = array_from_bytes(data, key)
    expected = (batch.rows, *manifest.shape)
    if arrays["x"].shape != expected or arrays["y"].shape != (batch.rows,):
        raise DamagedObjectError(
            f"cached batch {part}/{batch.index} holds {arrays['x'].shape}, not {expected}"
        )
    return arrays["x"], arrays["y"]


def write_split(store: Store, name: str, split: Split, shards: list[np.ndarray]) -> None:
    """Writes a split beside its data set, the description last; one that is there already stays.

    Args:
        store: that holds the data set.
        name: the data set's fingerprint.
        split: its description.
        shards: row numbers [n_k] int64 of each shard.
    """
    try:
        if read_split(store, name, split.id)[0] == split:
            return
    except (MissingObjectError, DamagedObjectError):
        pass  # None there, or one to be replaced.
    store.write(keys.split_rows(name, split.id), array_to_bytes(np.concatenate(shards).astype(np.int64)))
    store.write(keys.split(name, split.id), to_json(split))


def read_split(store: Store, name: str, split_id: str) -> tuple[Split, list[np.ndarray]]:
    """Reads a split, verified.

    Returns:
        Its description and the row numbers [n_k] int64 of each shard.

    Raises:
        MissingObjectError: there is no such split.
        DamagedObjectError: its row numbers are not those of the description.
    """
    key, rows_key = keys.split(name, split_id), keys.split_rows(name, split_id)
    split = from_json(Split, store.read(key), key)
    data = store.read(rows_key)
    if sha256(data) != split.rows_sha256:
        raise DamagedObjectError(f"{rows_key} is damaged; prepare the data again")
    rows = array_from_bytes(data, rows_key)
    if sum(split.sizes) != len(rows):
        raise DamagedObjectError(
            f"{key} is damaged: its sizes {split.sizes} do not make {len(rows)} rows; prepare the data again"
        )
    return split, np.split(rows, np.cumsum(split.sizes)[:-1])
