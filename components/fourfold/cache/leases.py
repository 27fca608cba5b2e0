"""Who reads a data set, so that nobody prunes what a run reads.

A reader leaves a lease in the store and then looks whether somebody is pruning; who prunes leaves a mark and
then looks for leases. Stores show a write to everybody at once, so at least one of the two sees the other,
and gives way: the reader waits for a moment, the pruner leaves the data set as it is. Of several that prune,
one does, by a lease of its own. Leases run out by themselves: a reader that was killed holds nothing up for
longer than its lease.
"""

import contextlib
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from fourfold.contract import keys
from fourfold.contract.datasets import Lease
from fourfold.contract.errors import DamagedObjectError, MissingObjectError, StoreDeniedError, StoreError
from fourfold.contract.strict import from_json, to_json
from fourfold.store.objects import Store

SECONDS = 3600.0
"""Of a reader's lease; it is renewed at a third of that, and tried again at a sixtieth where that failed."""
MARK_SECONDS = 120.0
"""After so long the mark of one who prunes, which is renewed, is that of one who was killed."""
PRUNER = "one who prunes it"
"""What the holder of a pruner's lease begins with."""
PREPARED = "prepared"
"""The lease of runs that have prepared a data set and not read it yet; one for all of them."""


@dataclass(frozen=True)
class Mark:
    """That somebody did something: prunes a data set, or has read it.

    Attributes:
        at: seconds since 1970.
    """

    at: float


@contextlib.contextmanager
def reading(
    store: Store,
    fingerprint: str,
    seconds: float = SECONDS,
    clock: Callable[[], float] = time.time,
    patience: float = 10.0,
    is_use: bool = True,
) -> Iterator[None]:
    """While somebody is inside, a data set is not pruned.

    A store that may only be read is read without a lease; one that did not take it is asked again, and does
    not stop who reads. What turns out not to be there does not count as used.

    Args:
        store: that holds the data set.
        fingerprint: of the data set.
        seconds: until the lease runs out, unless it is renewed.
        clock: seconds since 1970.
        patience: seconds for which one who prunes it is waited for.
        is_use: whether it counts as used then.
    """
    who = holder()
    key, since, over = keys.lease(fingerprint, who), clock(), threading.Event()

    def renew() -> bool:
        try:
            store.write(key, to_json(Lease(who, since, clock() + seconds)))
        except StoreDeniedError:
            over.set()
            return False
        except StoreError:
            return False
        return True

    def keep(is_held: bool) -> None:
        while not over.wait(seconds / 3 if is_held else seconds / 60):
            is_held = renew()

    # At the end, last first: the lease goes when the use is noted, so nobody finds it unread and unused.
    with contextlib.ExitStack() as end:
        end.callback(let_go, store, key)
        is_held = _hold(store, fingerprint, renew, clock, patience) == "held"
        if is_use:
            end.callback(_note_use, store, fingerprint, clock)
        keeper = threading.Thread(target=keep, args=(is_held,), name="lease", daemon=True)
        keeper.start()
        end.callback(keeper.join, timeout=1.0)
        end.callback(over.set)
        yield


def leave(
    store: Store,
    fingerprint: str,
    seconds: float,
    clock: Callable[[], float] = time.time,
    patience: float = 1.1 * MARK_SECONDS,
) -> None:
    """Leaves a lease for a run that is about to write a data set, or to read what it has prepared.

    A store that may only be read gets none.

    Args:
        store: that holds the data set, or will.
        fingerprint: of the data set.
        seconds: until it runs out.
        clock: seconds since 1970.
        patience: seconds for which one who prunes it is waited for.

    Raises:
        StoreError: somebody still prunes it.
    """

    def write() -> bool:
        now = clock()
        lease = Lease("a run that has prepared it", now, now + seconds)
        try:
            store.write(keys.lease(fingerprint, PREPARED), to_json(lease))
        except StoreError:
            return False
        return True

    if _hold(store, fingerprint, write, clock, patience) == "in vain":
        raise StoreError(
            f"{keys.dataset(fingerprint)} in {store.uri} is being pruned, and what is written now would go "
            "with it: try again when that has ended"
        )


def holder() -> str:
    """A name for this process that nobody else has: host, process, and chance."""
    return f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"


def let_go(store: Store, key: str) -> None:
    """Takes a lease back; where the store does not let it go, it runs out."""
    with contextlib.suppress(StoreError):
        store.delete(key)


def _note_use(store: Store, fingerprint: str, clock: Callable[[], float]) -> None:
    with contextlib.suppress(StoreError):
        # Where there is no such data set, a note of its use would be one that was never finished.
        store.read(keys.dataset_manifest(fingerprint))
        store.write(keys.used(fingerprint), to_json(Mark(clock())))


def _hold(
    store: Store,
    fingerprint: str,
    write: Callable[[], bool],
    clock: Callable[[], float],
    patience: float,
) -> str:
    """Writes a lease that nobody overlooks.

    One who is pruning already may delete it with all the rest: it is written anew when that has ended.

    Returns:
        ``held``; ``refused``, where the store takes none; ``in vain``, where it is still being pruned.
    """
    until = time.monotonic() + patience
    while write():
        if not is_being_pruned(store, fingerprint, clock()):
            return "held"
        while is_being_pruned(store, fingerprint, clock()):
            if time.monotonic() > until:
                return "in vain"
            time.sleep(0.1)
    return "refused"


def left(store: Store, fingerprint: str, now: float) -> list[Lease]:
    """All leases of a data set, also those that have run out.

    One that cannot be read has not: it is being written, or somebody has to look at it.

    Args:
        store: that holds the data set.
        fingerprint: of the data set.
        now: seconds since 1970.
    """
    found = []
    for key in store.list(keys.leases(fingerprint)):
        try:
            lease = from_json(Lease, store.read(key), key)
        except MissingObjectError:
            continue
        except DamagedObjectError:
            lease = Lease(f"{key}, which cannot be read", 0.0, now + SECONDS)
        found.append(lease)
    return found


def living(store: Store, fingerprint: str, now: float) -> list[Lease]:
    """The leases of a data set that have not run out; see ``left``."""
    return [lease for lease in left(store, fingerprint, now) if lease.until > now]


def last_used(store: Store, fingerprint: str, found: list[Lease] | None = None) -> float:
    """When a data set was last read, or prepared to be read, seconds since 1970; 0 for never.

    Args:
        store: that holds the data set.
        fingerprint: of the data set.
        found: its leases, as of ``left``; looked for if None.
    """
    found = left(store, fingerprint, 0.0) if found is None else found
    times = [0.0, *(lease.since for lease in found)]
    with contextlib.suppress(MissingObjectError, DamagedObjectError):
        times.append(from_json(Mark, store.read(keys.used(fingerprint))).at)
    return max(times)


def is_being_pruned(store: Store, fingerprint: str, now: float) -> bool:
    """Whether somebody is deleting a data set; the mark of one who was killed stops nobody.

    Nor does one that may not be looked at: to who may not list a bucket, S3 denies what is not there.
    """
    try:
        return from_json(Mark, store.read(keys.pruning(fingerprint))).at > now - MARK_SECONDS
    except (MissingObjectError, DamagedObjectError, StoreDeniedError):
        return False
