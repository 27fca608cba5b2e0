"""Progress as events: one line of JSON each, so that a person's terminal or a launcher can follow.

A step appends its events to the file that ``FOURFOLD_EVENTS`` names, if it names one, and prints each as a
line that people can read. A worker, which may be in a pod, prints them as marked JSON lines; its launcher
passes them on.
"""

import contextlib
import json
import os
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fourfold.contract import exits, images
from fourfold.contract.errors import FourfoldError

RUN = "FOURFOLD_RUN"
"""Names the run, where nothing in a cluster does."""
FILE = "FOURFOLD_EVENTS"
MARK = "fourfold-event "


def encode(kind: str, **fields: Any) -> str:
    """An event as the marked line that a worker prints."""
    return MARK + json.dumps({"event": kind, **fields}, allow_nan=False)


def tell(kind: str, **fields: Any) -> None:
    """Tells an event as a worker does, which may be in a pod: on the marked line that its launcher reads."""
    print(encode(kind, **fields), flush=True)


def decode(line: str) -> dict[str, Any] | None:
    """The event in a line that a worker printed, or None where the line is something else."""
    if not line.startswith(MARK):
        return None
    try:
        event = json.loads(line[len(MARK) :])
    except ValueError:
        return None
    return event if isinstance(event, dict) and "event" in event else None


def say(kind: str, **fields: Any) -> None:
    """Tells an event: appends it to the run's file, if there is one, and prints it for people."""
    event = {"event": kind, "time": round(time.time(), 3), **fields}
    path = os.environ.get(FILE)
    if path:
        # One write of one line to a file opened for appending does not mix with another process's.
        with Path(path).open("a", encoding="utf-8") as file:
            file.write(json.dumps(event, allow_nan=False) + "\n")
    print(describe(event), flush=True)


def describe(event: dict[str, Any]) -> str:
    """An event as a line for people."""
    kind = event["event"]
    if kind == "epoch":
        rate = event["rows"] / event["seconds"] if event["seconds"] else 0.0
        return (
            f"{event['scenario']}{_of_model(event)}: epoch {event['epoch']}/{event['epochs']}  "
            f"loss {event['loss']:.4f}  accuracy {event['accuracy']:.4f}  {rate:,.0f} rows/s"
        )
    if kind == "progress":
        return (
            f"{event['scenario']}{_of_model(event)}: epoch {event['epoch']}/{event['epochs']}  "
            f"step {event['step']}/{event['steps']}  loss {event['loss']:.4f}"
        )
    if kind == "started":
        return f"{event['scenario']}: worker {event['worker']} of {event['workers']} is ready"
    if kind in ("step-started", "step-done", "step-failed"):
        name = f"{event['step']} {event['scenario']}" if "scenario" in event else event["step"]
        if kind == "step-started":
            return f"{name}: started"
        return (
            f"{name}: done in {event['seconds']:.1f} s"
            if kind == "step-done"
            else f"{name} failed: {event['message']}"
        )
    return str(event.get("message", event))


EPOCH = re.compile(
    r"(?P<scenario>[\w-]+)(?: model (?P<model>\d{1,9}))?: epoch (?P<epoch>\d{1,9})/(?P<epochs>\d{1,9})  "
    r"(?:step (?P<step>\d{1,9})/(?P<steps>0*[1-9]\d{0,8})  )?loss (?P<loss>\d{1,300}\.\d{1,9})"
    r"(?:  accuracy (?P<accuracy>\d\.\d{1,9})  (?P<rate>\d{1,3}(?:,\d{3}){0,30}) rows/s)?"
)
"""What ``describe`` makes of an epoch and of a progress inside one."""


def read(line: str) -> dict[str, Any] | None:
    """The event in a line for people, the other way round than ``describe``; None where there is none.

    For whoever has only a step's log. Numbers are as exact as they were said; rows are those of a second.
    """
    found = EPOCH.fullmatch(line.strip())
    if found is None or (found["steps"] is None) == (found["rate"] is None):
        return None
    event: dict[str, Any] = {
        "scenario": found["scenario"],
        "model": int(found["model"] or 0),
        "models": 1 if found["model"] is None else 2,
        **{name: int(found[name]) for name in ("epoch", "epochs")},
        "loss": float(found["loss"]),
    }
    if found["steps"] is not None:
        return {"event": "progress", **event, "step": int(found["step"]), "steps": int(found["steps"])}
    rate = int(found["rate"].replace(",", ""))
    return {"event": "epoch", **event, "accuracy": float(found["accuracy"]), "rows": rate, "seconds": 1.0}


def _of_model(event: dict[str, Any]) -> str:
    return f" model {event['model']}" if event.get("models", 1) > 1 else ""


@contextlib.contextmanager
def step(name: str, code: str, **fields: Any) -> Iterator[None]:
    """Tells that a step starts and how it ends; an error meant for users ends it without a traceback.

    Args:
        name: of the step.
        code: digest of the code that the step was asked to run, see ``contract.images``.
        **fields: of the events.

    Raises:
        SystemExit: the step failed by an error that a user is meant to read; its code is as of ``exits.of``.
    """
    started = time.monotonic()
    say("step-started", step=name, **fields)
    try:
        images.expect(code)
        yield
    except Exception as error:
        told = isinstance(error, FourfoldError | MemoryError)
        message = str(error) if told else f"{type(error).__name__}: {error}"
        if isinstance(error, MemoryError):
            message = f"out of memory ({error}): give this step more memory, or fewer rows"
        ends_with = exits.of(error) if isinstance(error, FourfoldError) else exits.FAILED
        say("step-failed", step=name, message=message, code=ends_with, **fields)
        if told:
            sys.exit(ends_with)
        raise
    say("step-done", step=name, seconds=round(time.monotonic() - started, 2), **fields)
