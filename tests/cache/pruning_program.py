"""A process of its own that reads a data set again and again, or prunes it: WHAT STORE SECONDS.

``read`` takes a lease each time and, where the data set is there, reads all of it before it gives the lease
back; prints how often it could. ``hold`` takes a lease of so many seconds and waits to be killed.
"""

import sys
import time

from fourfold.cache import dataset, housekeeping, leases
from fourfold.contract.errors import MissingObjectError
from fourfold.store.objects import open_store


def main(what: str, root: str, seconds: str) -> None:
    """Does it."""
    store, until, done = open_store(root), time.monotonic() + float(seconds), 0
    if what == "hold":
        with leases.reading(store, "beef", float(seconds)):
            print("held", flush=True)
            time.sleep(60)
    while time.monotonic() < until:
        if what == "prune":
            done += not housekeeping.delete(store, "beef", time.time)
            time.sleep(0.002)
            continue
        time.sleep(0.01)
        with leases.reading(store, "beef"):
            try:
                manifest = dataset.read_manifest(store, "beef")
            except MissingObjectError:
                continue
            dataset.read_rows(store, manifest, "train")
            done += 1
    print(done, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
