"""Reads the log of a pod as it is written, each line once, also over connections that break."""

import threading
import time
from collections.abc import Callable, Iterator

from fourfold.contract.errors import ClusterError
from fourfold.train.api import Api

PAUSE = 0.5
"""Seconds between two connections."""


def read(api: Api, pod: str, goes_on: Callable[[], bool], stopped: threading.Event) -> Iterator[str]:
    """The lines of a pod's log.

    Args:
        api: of the cluster.
        pod: its name.
        goes_on: tells whether the pod may still write.
        stopped: set when nobody wants to know any more.
    """
    last, heard = "", 0.0
    while not stopped.is_set():
        was_going_on = goes_on()
        since = int(time.monotonic() - heard) + 2 if last else None
        try:
            for line in api.log(pod, since):
                stamp, _, text = line.partition(" ")
                key = order_of(stamp)
                if key > last:
                    last, heard = key, time.monotonic()
                    yield text
        except ClusterError:
            # Not to be had yet, or any more; what the pod ended with stands in its status.
            pass
        if not was_going_on:
            return
        stopped.wait(PAUSE)


def order_of(stamp: str) -> str:
    """A log line's time (RFC 3339, UTC, nanoseconds without the zeros at the end) as text that sorts."""
    whole, _, fraction = stamp.rstrip("Z").partition(".")
    return f"{whole}.{fraction:0<9}"
