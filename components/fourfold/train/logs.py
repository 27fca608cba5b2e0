"""Reads the log of a pod as it is written, each line once, also over connections that break."""

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime

from fourfold.contract.errors import ClusterError
from fourfold.train.api import Api, LogBrokenError

PAUSE = 0.5
"""Seconds between two connections."""
MARGIN = 10
"""Seconds before the last line from which a log is read again; clocks differ."""
TRIES = 5
"""Connections that may break when the pod has ended."""


@dataclass
class Memory:
    """What of the log of a pod's name was read already.

    Attributes:
        last: time of the last line, as of ``order_of``.
        count: lines of that time.
        stamp: the time as it was written.
        heard: monotonic seconds when it came.
        reading: held while the log is read; a pod that is made again under its name has a reader of its own.
    """

    last: str = ""
    count: int = 0
    stamp: str = ""
    heard: float = 0.0
    reading: threading.Lock = field(default_factory=threading.Lock)

    def since(self) -> int | None:
        """How many seconds ago the last line was, at least; None where there was none."""
        if not self.last:
            return None
        written = datetime.fromisoformat(self.stamp[:19]).replace(tzinfo=UTC)
        age = max((datetime.now(UTC) - written).total_seconds(), time.monotonic() - self.heard)
        return int(age) + MARGIN

    def takes(self, stamp: str) -> None:
        """A line of this time was told."""
        key = order_of(stamp)
        self.heard = time.monotonic()
        if key == self.last:
            self.count += 1
        elif key > self.last:
            self.last, self.stamp, self.count = key, stamp, 1


def read(
    api: Api, pod: str, goes_on: Callable[[], bool], stopped: threading.Event, memory: Memory | None = None
) -> Iterator[str]:
    """The lines of a pod's log.

    Args:
        api: of the cluster.
        pod: its name.
        goes_on: tells whether the pod may still write.
        stopped: set when nobody wants to know any more.
        memory: of what was read already of this name.
    """
    memory, broken = memory or Memory(), 0
    with memory.reading:
        while not stopped.is_set():
            was_going_on = goes_on()
            try:
                yield from _connection(api, pod, memory)
                if not was_going_on:
                    return
            except LogBrokenError:
                broken += not was_going_on
                if broken > TRIES:
                    return
            except ClusterError:
                # Not to be had yet, or any more; what the pod ended with stands in its status.
                if not was_going_on:
                    return
            stopped.wait(PAUSE)


def _connection(api: Api, pod: str, memory: Memory) -> Iterator[str]:
    """The lines of one connection that were not read before; once one is new, all are."""
    before, of_last, new = memory.last, memory.count, not memory.last
    for line in api.log(pod, memory.since()):
        stamp, _, text = line.partition(" ")
        if not new:
            key = order_of(stamp)
            of_last -= key == before
            new = key > before or of_last < 0
        if new:
            memory.takes(stamp)
            yield text


def order_of(stamp: str) -> str:
    """A log line's time (RFC 3339, UTC, nanoseconds without the zeros at the end) as text that sorts."""
    whole, _, fraction = stamp.rstrip("Z").partition(".")
    return f"{whole}.{fraction:0<9}"
