"""Looks after the data sets of a store: lists them, verifies every byte, prunes what nobody needs."""

import concurrent.futures
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from fourfold.cache import dataset, leases
from fourfold.contract import keys
from fourfold.contract.datasets import DatasetManifest, Lease
from fourfold.contract.errors import DamagedObjectError, MissingObjectError, OtherFormatError, StoreError
from fourfold.contract.strict import to_json
from fourfold.store.objects import Store

AT_ONCE = 8
"""Objects that are deleted at the same time."""
SLICE = 100
"""Objects after which one who deletes says that it is still at it."""
HELD_UP_SECONDS = 0.75 * leases.MARK_SECONDS
"""Who has not said so for this long, on a machine that slept, say, stops: soon nobody waits for it."""
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
    # In this order: who ends to read notes the use and then gives the lease back, so one of them is seen.
    found = leases.left(store, fingerprint, now)
    used = max(leases.last_used(store, fingerprint, found), manifest.created if manifest else 0.0)
    readers = [lease for lease in found if lease.until > now]
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
            # What cannot be read has no known size, and is being written, or a later version's.
            if each.manifest is not None and _put(each, go, stay):
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
    read it meanwhile gets it back. Of several that delete it at once one does, or none: else what a run
    writes when one of them has ended would be deleted by the other.

    Args:
        store: that holds it.
        fingerprint: of the data set.
        clock: seconds since 1970.
        progress: called with objects deleted and objects in all.

    Returns:
        The leases of those who read it, or delete it, where it was left as it was; else none.

    Raises:
        StoreError: the store did not let an object go, or this process was held up for so long that others
            do not wait for it any more; what is left is no data set.
    """
    turn = _Turn(store, fingerprint, clock)
    try:
        turn.hold()
        if others := turn.others():
            return others
        turn.mark()
        return _delete(store, fingerprint, turn, progress)
    finally:
        leases.let_go(store, turn.key)


def _delete(
    store: Store, fingerprint: str, turn: "_Turn", progress: Callable[[int, int], None]
) -> list[Lease]:
    manifest, last, put_back = keys.dataset_manifest(fingerprint), keys.pruning(fingerprint), None
    if not (readers := turn.readers()):
        try:
            put_back = store.read(manifest)
            store.delete(manifest)
        except MissingObjectError:
            pass
        readers = turn.readers()
    if readers:
        turn.check()
        if put_back is not None:
            store.write(manifest, put_back)
        store.delete(last)
        return readers

    def gone(key: str) -> None:
        turn.check()
        store.delete(key)

    found = [key for key in store.list(keys.dataset(fingerprint)) if key not in (last, turn.key)]
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        for first in range(0, len(found), SLICE):
            list(pool.map(gone, found[first : first + SLICE]))
            turn.check()
            turn.hold()
            turn.mark()
            progress(min(first + SLICE, len(found)), len(found))
    gone(last)
    return []


class _Turn:
    """The turn of the one who deletes a data set: a lease that others who would see, a mark for readers.

    Args:
        store: that holds the data set.
        fingerprint: of the data set.
        clock: seconds since 1970.
    """

    def __init__(self, store: Store, fingerprint: str, clock: Callable[[], float]):
        name = leases.holder()
        self.key = keys.lease(fingerprint, f"pruner-{name}")
        self._who = f"{leases.PRUNER} ({name})"
        self._store, self._fingerprint, self._clock, self._said = store, fingerprint, clock, clock()

    def hold(self) -> None:
        """Takes, or renews, the lease; it says nothing of when the data set was used."""
        self._said = self._clock()
        lease = Lease(self._who, 0.0, self._said + leases.MARK_SECONDS)
        self._store.write(self.key, to_json(lease))

    def mark(self) -> None:
        """Tells readers to wait."""
        self._store.write(keys.pruning(self._fingerprint), to_json(leases.Mark(self._said)))

    def others(self) -> list[Lease]:
        """The leases of everybody else."""
        found = leases.living(self._store, self._fingerprint, self._clock())
        return [lease for lease in found if lease.who != self._who]

    def readers(self) -> list[Lease]:
        """The leases of those who read; who would delete it, too, finds this one's lease and gives way."""
        return [lease for lease in self.others() if not lease.who.startswith(leases.PRUNER)]

    def check(self) -> None:
        """Stops who was held up.

        Raises:
            StoreError: others do not wait any more, or soon will not.
        """
        silent = self._clock() - self._said
        if silent > HELD_UP_SECONDS:
            raise StoreError(
                f"deleting {keys.dataset(self._fingerprint)} in {self._store.uri} was held up for "
                f"{silent:.0f} s, after {HELD_UP_SECONDS:.0f} s others may be writing it again: prune again"
            )


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
