"""When each stage of a model worked during a step, as TensorFlow's profiler saw it."""

import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fourfold.contract.records import Busy

STAGE = re.compile(r"(?:^|/)stage_(\d+)(?:_\d+)?/")
"""What the operations of a stage are called; TensorFlow counts a name that is used again."""
GAP = 20e-6
"""Seconds; what is nearer is told as one span."""


def during(work: Callable[[], Any]) -> tuple[Any, list[Busy]]:
    """Does some work under the profiler.

    Args:
        work: takes a step.

    Returns:
        What the work gave; and the spans in which stages computed, by stage and time, in seconds since the
        first began. Empty where the profiler saw none (in a process that is profiled already, for one).
    """
    import tensorflow as tf

    with tempfile.TemporaryDirectory(prefix="fourfold-") as folder:
        try:
            tf.profiler.experimental.start(folder)
        except tf.errors.OpError:
            return work(), []
        try:
            done = work()
        finally:
            tf.profiler.experimental.stop()
        found = [span for path in Path(folder).rglob("*.xplane.pb") for span in _spans(path.read_bytes())]
    return done, joined(found)


def joined(spans: list[tuple[int, float, float]]) -> list[Busy]:
    """Spans (stage, begin, end) as the times in which each stage was busy, the first at 0.

    Args:
        spans: in seconds, of operations, which may overlap.
    """
    if not spans:
        return []
    first = min(begin for _, begin, _ in spans)
    found: list[Busy] = []
    for stage, begin, end in sorted(spans):
        begin, end = begin - first, end - first
        if found and found[-1].stage == stage and begin - found[-1].end <= GAP:
            found[-1] = Busy(stage, found[-1].begin, max(end, found[-1].end))
        else:
            found.append(Busy(stage, begin, end))
    return found


def _spans(data: bytes) -> list[tuple[int, float, float]]:
    """The operations of stages in a profile: stage, begin and end in seconds."""
    from tensorflow.tsl.profiler.protobuf import xplane_pb2

    space = xplane_pb2.XSpace()
    space.ParseFromString(data)
    found = []
    for plane in space.planes:
        stages = {
            key: int(named[1])
            for key, metadata in plane.event_metadata.items()
            if (named := STAGE.search(metadata.name))
        }
        for line in plane.lines:
            for event in line.events:
                if event.metadata_id in stages:
                    begin = line.timestamp_ns * 1e-9 + event.offset_ps * 1e-12
                    found.append((stages[event.metadata_id], begin, begin + event.duration_ps * 1e-12))
    return found
