"""The story of the step: read and check the source, find or write its batches, deal the rows to shards."""

from dataclasses import dataclass

import numpy as np

from fourfold.contract import events, keys
from fourfold.contract.errors import DamagedObjectError, InvalidInputError, MissingObjectError
from fourfold.contract.records import DatasetManifest, Split
from fourfold.prepare import source as sources
from fourfold.prepare.split import split as deal
from fourfold.store import cache
from fourfold.store.objects import Store, open_store

NORMALISATION = "x / 255"


@dataclass(frozen=True)
class Prepared:
    """What the step yields.

    Attributes:
        manifest: of the data set in the store.
        split: of its training rows.
        reused: True where the batches were in the store already.
    """

    manifest: DatasetManifest
    split: Split
    reused: bool


def prepare(
    store: str,
    data: str = "sample",
    rows: int = 2000,
    holdout: int = 1000,
    rows_per_batch: int = 100,
    split: str = "contiguous",
    workers: int = 2,
    seed: int = 0,
) -> Prepared:
    """Prepares a data set and its split; the same settings find what is there, other settings never do.

    Args:
        store: URI of the store.
        data: the source, see ``prepare.source.read``.
        rows: training rows, the first of the source.
        holdout: rows after those, for choices and gates.
        rows_per_batch: rows of one cached batch.
        split: how rows are dealt to workers, see ``prepare.split.split``.
        workers: number of shards.
        seed: for splits that draw.

    Raises:
        InvalidInputError: an argument or the source is wrong; nothing was written.
        StoreError: the store could not be written.
    """
    for name, value, least in (
        ("rows", rows, 1),
        ("holdout", holdout, 1),
        ("rows-per-batch", rows_per_batch, 1),
    ):
        if value < least:
            raise InvalidInputError(f"{name} must be at least {least}, got {value}")
    source = sources.read(data)
    if rows + holdout > len(source.train_y):
        raise InvalidInputError(
            f"rows {rows:,} + hold-out {holdout:,} = {rows + holdout:,}, but {source.name} has "
            f"{len(source.train_y):,} training rows: take fewer rows, or a larger source such as --data mnist"
        )
    labels = source.train_y[:rows]
    described, shards = deal(split, labels, len(source.class_names), workers, seed)
    for sentence in described.said:
        events.say("said", message=sentence)

    target = open_store(store)
    manifest, reused = _find_or_write(target, source, rows, holdout, rows_per_batch)
    cache.write_split(target, manifest.fingerprint, described, shards)
    events.say("prepared", message=_summary(manifest, described, reused), fingerprint=manifest.fingerprint)
    return Prepared(manifest, described, reused)


def _find_or_write(
    store: Store, source: sources.Source, rows: int, holdout: int, rows_per_batch: int
) -> tuple[DatasetManifest, bool]:
    content = {
        "source": source.sha256,
        "rows": rows,
        "holdout": holdout,
        "normalisation": NORMALISATION,
        "dtype": "float32",
        "rows_per_batch": rows_per_batch,
    }
    name = cache.fingerprint(content)
    found = _find(store, name)
    if found is not None:
        return found, True
    parts = {
        "train": (source.train_x[:rows], source.train_y[:rows]),
        "holdout": (source.train_x[rows : rows + holdout], source.train_y[rows : rows + holdout]),
        "test": (source.test_x, source.test_y),
    }
    manifest = DatasetManifest(
        format=cache.FORMAT,
        fingerprint=name,
        source=source.name,
        source_sha256=source.sha256,
        normalisation=NORMALISATION,
        dtype="float32",
        shape=list(source.train_x.shape[1:]),
        class_names=list(source.class_names),
        rows_per_batch=rows_per_batch,
        parts={},
    )
    ready = {part: (_normalise(x, f"{source.name} {part}"), y) for part, (x, y) in parts.items()}
    return cache.write_dataset(store, manifest, ready), False


def _normalise(x: np.ndarray, name: str) -> np.ndarray:
    ready = x.astype(np.float32) / np.float32(255)
    sources.check_values(ready, name)
    return ready


def _find(store: Store, name: str) -> DatasetManifest | None:
    """The data set, if it is in the store whole; what is damaged is told and then written anew."""
    try:
        manifest = cache.read_manifest(store, name)
        faults = list(cache.damaged(store, manifest))
    except MissingObjectError:
        return None
    except DamagedObjectError as error:
        manifest, faults = None, [str(error)]
    if not faults:
        return manifest
    for fault in faults[:3]:
        events.say("said", message=f"rebuilding the cached batches: {fault}")
    store.delete(keys.dataset_manifest(name))
    return None


def _summary(manifest: DatasetManifest, split: Split, reused: bool) -> str:
    batches = sum(map(len, manifest.parts.values()))
    size = sum(batch.bytes for listed in manifest.parts.values() for batch in listed)
    return (
        f"{manifest.source}: {manifest.rows('train'):,} training, {manifest.rows('holdout'):,} hold-out and "
        f"{manifest.rows('test'):,} test rows in {batches} cached batches, {size / 1e6:.1f} MB "
        f"({'found in the store' if reused else 'written'}); split {split.rule}: {split.sizes} rows a worker"
    )
