"""The story of the step: read and check the source, find or write its batches, deal the rows to shards."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fourfold.cache import budgets, dataset, layout, leases, orders, splits, values
from fourfold.cache.budgets import in_words
from fourfold.cache.disk import DiskTier
from fourfold.contract import events, keys
from fourfold.contract.caching import LIST, Caching, check
from fourfold.contract.datasets import DatasetManifest, Split
from fourfold.contract.errors import DamagedObjectError, InvalidInputError, MissingObjectError
from fourfold.prepare import source as sources
from fourfold.prepare.split import split as deal
from fourfold.store.objects import Store, open_store

NORMALISATION = "x / 255"
SCALE = 255.0
USUAL = Caching()
UNTIL_READ_SECONDS = 24 * 3600.0
"""For how long a data set is not pruned after a run has prepared it and before it is read."""


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
    split: str = "contiguous",
    workers: int = 2,
    seed: int = 0,
    caching: Caching = USUAL,
) -> Prepared:
    """Prepares a data set and its split; the same settings find what is there, other settings never do.

    Args:
        store: URI of the store.
        data: the source, see ``prepare.source.read``.
        rows: training rows, the first of the source.
        holdout: rows after those, for choices and gates.
        split: how rows are dealt to workers, see ``prepare.split.split``.
        workers: number of shards.
        seed: for splits that draw.
        caching: how rows are kept: their dtype, rows of a cached batch, and an order from a file.

    Raises:
        InvalidInputError: an argument or the source is wrong; nothing was written.
        StoreError: the store could not be written.
    """
    check(caching)
    for name, value in (("rows", rows), ("holdout", holdout)):
        if value < 1:
            raise InvalidInputError(f"{name} must be at least 1, got {value}")
    source = sources.read(data)
    if rows + holdout > len(source.train_y):
        raise InvalidInputError(
            f"rows {rows:,} + hold-out {holdout:,} = {rows + holdout:,}, but {source.name} has "
            f"{len(source.train_y):,} training rows: take fewer rows, or a larger source such as --data mnist"
        )
    labels = source.train_y[:rows]
    order = _order(caching.order, rows)
    described, shards = deal(split, labels, len(source.class_names), workers, seed, order)
    for sentence in described.said:
        events.say("said", message=sentence)

    target = open_store(store)
    manifest, reused = _find_or_write(target, source, rows, holdout, caching)
    splits.write_split(target, manifest.fingerprint, described, shards, order)
    events.say("prepared", message=_summary(manifest, described, reused), fingerprint=manifest.fingerprint)
    return Prepared(manifest, described, reused)


def _find_or_write(
    store: Store, source: sources.Source, rows: int, holdout: int, caching: Caching
) -> tuple[DatasetManifest, bool]:
    content = {
        "source": source.sha256,
        "rows": rows,
        "holdout": holdout,
        "normalisation": NORMALISATION,
        "dtype": caching.dtype,
        "rows_per_batch": caching.batch_rows,
    }
    name = layout.fingerprint(content)
    # Before anything is looked at: nobody prunes what a run is about to read, or is writing.
    leases.leave(store, name, UNTIL_READ_SECONDS)
    found = _find(store, name)
    if found is not None:
        return found, True
    parts = {
        "train": (source.train_x[:rows], source.train_y[:rows]),
        "holdout": (source.train_x[rows : rows + holdout], source.train_y[rows : rows + holdout]),
        "test": (source.test_x, source.test_y),
    }
    manifest = DatasetManifest(
        format=layout.FORMAT,
        fingerprint=name,
        source=source.name,
        source_sha256=source.sha256,
        normalisation=NORMALISATION,
        dtype=caching.dtype,
        shape=list(source.train_x.shape[1:]),
        class_names=list(source.class_names),
        rows_per_batch=caching.batch_rows,
        parts={},
        scale=values.kept_scale(caching.dtype, SCALE),
    )
    kept = {part: (_kept(x, f"{source.name} {part}", caching.dtype), y) for part, (x, y) in parts.items()}
    keep = _keep_on_disk(store, caching)
    return dataset.write_dataset(store, manifest, kept, _progress(), keep), False


def _keep_on_disk(store: Store, caching: Caching) -> Callable[[str, bytes], object]:
    """Puts a batch into the disk tier, where this machine has one: workers beside find it there."""
    may = budgets.budgets(caching, store.uri)
    if may.disk:
        try:
            return DiskTier(may.folder, may.disk).put
        except OSError as error:
            events.say(
                "said", message=f"the disk tier {may.folder} cannot be used: {error.strerror or error}"
            )
    return lambda key, data: None


def _kept(x: np.ndarray, name: str, dtype: str) -> np.ndarray:
    kept = values.kept(x, dtype, SCALE)
    sources.check_values(kept, name)
    return kept


def _order(order: str, rows: int) -> np.ndarray | None:
    """The order that a user gave in a file, checked; None where there is none."""
    if not order.startswith(LIST):
        return None
    place = order.removeprefix(LIST)
    folder, _, name = place.rpartition("/")
    if "://" not in place:
        folder, name = str(Path(place).expanduser().absolute().parent), Path(place).name
    try:
        data = open_store(folder).read(name)
    except MissingObjectError as error:
        raise InvalidInputError(f"there is no order {place}: {error}") from error
    return orders.read_list(data, place, rows)


def _progress() -> Callable[[int, int], None]:
    """Tells how far writing is, about every second."""
    told = time.monotonic()

    def progress(done: int, total: int) -> None:
        nonlocal told
        if time.monotonic() - told > 1.0 and done < total:
            told = time.monotonic()
            events.say("said", message=f"prepare: {done:,} of {total:,} cached batches are written")

    return progress


def _find(store: Store, name: str) -> DatasetManifest | None:
    """The data set, if it is in the store whole; what is damaged is told and then written anew."""
    try:
        manifest = dataset.read_manifest(store, name)
        faults = list(dataset.damaged(store, manifest))
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
    rows = {part: f"{manifest.rows(part):,}" for part in manifest.parts}
    return (
        f"{manifest.source}: {rows['train']} training, {rows['holdout']} hold-out and {rows['test']} test "
        f"rows in {manifest.batches:,} cached batches, {in_words(manifest.bytes)} "
        f"({'found in the store' if reused else 'written'}); split {split.rule}: {split.sizes} rows a worker"
    )
