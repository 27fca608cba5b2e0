"""Looks after the data sets of a store: lists them, verifies every byte, prunes what nobody needs."""

import concurrent.futures
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from fourfold.cache import dataset, leases
from fourfold.contract import keys
from fourfold.contract.datasets import DatasetManifest, Lease
from fourfold.contract.errors import DamagedObjectError, MissingObjectError, OtherFormatError
from fourfold.contract.strict import to_json
from fourfold.store.objects import Store

AT_ONCE = 8
"""Objects that are deleted at the same time."""
SLICE = 500
"""Objects after which one who deletes says that it is still at it."""
LEFT_SECONDS = 24 * 3600.0
"""Batches without a manifest, that nobody has a lease on, are being written for no longer than this."""


@dataclass(frozen=True)
class Entry:
    """A data set in a store.

    Attributes:
        fingerprint: its name.
        manifest: what it is; None where it cannot be read.
        wrong: why it cannot; empty where it can.
        is_left: it was never finished, is damaged, or was written by an earlier version: nobody can read it.
        used: when it was last read or prepared, seconds since 1970; 0 where nobody knows.
        readers: who reads it now, or is about to.
    """

    fingerprint: str
    manifest: DatasetManifest | None
    wrong: str
    used: float
    readers: list[Lease] = field(default_factory=list)
    is_left: bool = False

    @property
    def bytes(self) -> int:
        """Of all its cached batches; 0 where that is not known."""
        return self.manifest.bytes if self.manifest else 0

    @property
    def created(self) -> float:
        """When it was written, seconds since 1970; 0 where nobody knows."""
        return self.manifest.created if self.manifest else 0.0


def listed(store: Store, now: float) -> list[Entry]:
    """The data sets of a store, that which was used last first. Their batches are not looked at, nor listed.

    Args:
        store: to be looked at.
        now: seconds since 1970.
    """
    names = store.folders(keys.DATASETS)
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        entries = list(pool.map(lambda name: entry(store, name, now), names))
    return sorted(entries, key=lambda each: (-each.used, each.fingerprint))


def entry(store: Store, fingerprint: str, now: float) -> Entry:
    """One data set of a store; see ``listed``."""
    manifest, wrong, is_left = None, "", True
    try:
        manifest = dataset.read_manifest(store, fingerprint)
    except MissingObjectError:
        wrong = "it has no manifest: it is being written, or whoever wrote it was killed"
    except OtherFormatError as error:
        wrong, is_left = str(error), not error.is_newer
    except DamagedObjectError as error:
        wrong = str(error)
    used = max(leases.last_used(store, fingerprint), manifest.created if manifest else 0.0)
    readers = leases.living(store, fingerprint, now)
    return Entry(fingerprint, manifest, wrong, used, readers, is_left and manifest is None)


@dataclass(frozen=True)
class Rule:
    """What is pruned; a data set that any of these names.

    Attributes:
        older_than: seconds since it was written; None for no such rule.
        unused_for: seconds since it was last read or prepared; None for no such rule.
        max_bytes: of all data sets together; those that were used least recently go until the rest fits.
    """

    older_than: float | None = None
    unused_for: float | None = None
    max_bytes: int | None = None


def chosen(entries: Iterable[Entry], rule: Rule, now: float) -> tuple[list[Entry], list[tuple[Entry, str]]]:
    """What a rule prunes. Pure.

    Args:
        entries: of the store.
        rule: says what.
        now: seconds since 1970.

    Returns:
        Those that are to go, and those that stay though the rule names them, with the reason.
    """
    go: list[Entry] = []
    stay: list[tuple[Entry, str]] = []
    left = []
    for each in sorted(entries, key=lambda one: one.used):
        if _is_named(each, rule, now):
            _put(each, go, stay)
        else:
            left.append(each)
    if rule.max_bytes is not None:
        total = sum(each.bytes for each in left) + sum(each.bytes for each, _ in stay)
        for each in left:
            if total <= rule.max_bytes:
                break
            if _put(each, go, stay):
                total -= each.bytes
    return go, stay


def _is_named(each: Entry, rule: Rule, now: float) -> bool:
    if each.manifest is None:
        return each.is_left and now - each.used > LEFT_SECONDS
    old = rule.older_than is not None and now - each.created > rule.older_than
    return old or (rule.unused_for is not None and now - each.used > rule.unused_for)


def _put(each: Entry, go: list[Entry], stay: list[tuple[Entry, str]]) -> bool:
    if each.readers:
        stay.append((each, f"read by {', '.join(lease.who for lease in each.readers)}"))
        return False
    go.append(each)
    return True


def delete(
    store: Store,
    fingerprint: str,
    clock: Callable[[], float],
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> list[Lease]:
    """Deletes a data set, unless somebody reads it. One that was begun to be deleted is deleted to the end.

    The manifest goes first: what has none is no data set, so nobody ever reads half of one. Whoever began to
    read it meanwhile gets it back.

    Args:
        store: that holds it.
        fingerprint: of the data set.
        clock: seconds since 1970.
        progress: called with objects deleted and objects in all.

    Returns:
        The leases of those who read it, where it was left as it was; else none.

    Raises:
        StoreError: the store did not let an object go; what is left is no data set.
    """
    store.write(keys.pruning(fingerprint), to_json(leases.Mark(clock())))
    manifest, put_back = keys.dataset_manifest(fingerprint), None
    if not (readers := leases.living(store, fingerprint, clock())):
        try:
            put_back = store.read(manifest)
            store.delete(manifest)
        except MissingObjectError:
            pass
        readers = leases.living(store, fingerprint, clock())
    if readers:
        if put_back is not None:
            store.write(manifest, put_back)
        store.delete(keys.pruning(fingerprint))
        return readers
    last = keys.pruning(fingerprint)
    found = [key for key in store.list(keys.dataset(fingerprint)) if key != last]
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        for first in range(0, len(found), SLICE):
            list(pool.map(store.delete, found[first : first + SLICE]))
            store.write(last, to_json(leases.Mark(clock())))
            progress(min(first + SLICE, len(found)), len(found))
    store.delete(last)
    return []


def verify(
    store: Store, manifest: DatasetManifest, progress: Callable[[], None] = lambda: None
) -> Iterator[str]:
    """Reads all of a data set; yields a sentence for each object that is missing or damaged.

    Args:
        store: that holds it.
        manifest: of the data set.
        progress: called after each cached batch.
    """
    with leases.reading(store, manifest.fingerprint, is_use=False):
        yield from dataset.damaged(store, manifest, progress)
