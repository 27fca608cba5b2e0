"""What a run looks like while it works: a lane a model in a terminal, plain lines elsewhere."""

import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from fourfold.contract import events, exits

QUIET = {"progress", "started", "step-started", "evaluated", "merged"}
"""Events that plain output leaves out."""


def follow(path: Path, process: subprocess.Popen) -> int:
    """Shows a run's events until its process has ended.

    Args:
        path: the events, a JSON object a line.
        process: that runs the pipeline.

    Returns:
        The exit code of a step that said why it failed, or 0.
    """
    return show(_events(path, process))


def show(told: Iterator[dict[str, Any]]) -> int:
    """Shows events as they come: lanes in a terminal, plain lines elsewhere.

    Returns:
        The exit code of a step that said why it failed, or 0.
    """
    failed = 0
    console = Console(stderr=True)
    if not console.is_terminal:
        for event in told:
            failed = failed or _failure(event)
            if event["event"] not in QUIET:
                click.echo(events.describe(event), err=event["event"] == "step-failed")
        return failed
    columns = (
        TextColumn("{task.description:<16}"),
        BarColumn(8),
        TextColumn("{task.fields[said]}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, transient=False) as progress:
        lanes = _Lanes(progress)
        for event in told:
            failed = failed or _failure(event)
            lanes.show(event)
    return failed


def _failure(event: dict[str, Any]) -> int:
    return event.get("code", exits.FAILED) if event["event"] == "step-failed" else 0


def _events(path: Path, process: subprocess.Popen) -> Iterator[dict[str, Any]]:
    with path.open(encoding="utf-8") as file:
        rest, ended = "", False
        while True:
            data = file.read()
            *lines, rest = (rest + data).split("\n")
            for line in lines:
                yield json.loads(line)
            if not data:
                if ended:
                    return
                ended = process.poll() is not None
                if not ended:
                    time.sleep(0.1)


class _Lanes:
    """One bar a model that trains, and one line a step."""

    def __init__(self, progress: Progress):
        self._progress = progress
        self._lanes: dict[str, Any] = {}

    def show(self, event: dict[str, Any]) -> None:
        """Takes an event in."""
        kind = event["event"]
        if kind in ("epoch", "progress"):
            several = event["models"] > 1
            name = f"{event['scenario']} {event['model']}" if several else event["scenario"]
            part = 0.0 if kind == "epoch" else event["step"] / event["steps"] - 1
            said = f"epoch {event['epoch']}/{event['epochs']} loss {event['loss']:.3f}"
            if kind == "epoch":
                rate = event["rows"] / event["seconds"] if event["seconds"] else 0.0
                said += f" acc {event['accuracy']:.3f} {rate:,.0f} rows/s"
            lane = self._lane(name, event["epochs"])
            self._progress.update(lane, completed=event["epoch"] + part, said=said)
        elif kind == "step-started" and event["step"] == "train" and "scenario" in event:
            self._lane(event["scenario"], 1, said="starting workers")
        elif kind == "step-failed":
            self._progress.console.print(f"[red]{event['step']} failed:[/red] ", end="")
            self._progress.console.print(event["message"], markup=False, highlight=False)
        elif kind in ("prepared", "said", "merged"):
            self._progress.console.print(event["message"], markup=False, highlight=False)

    def _lane(self, name: str, total: int, said: str = "") -> Any:
        base = name.rsplit(" ", 1)[0]
        if name not in self._lanes and base in self._lanes and base != name:
            self._lanes[name] = self._lanes.pop(base)
            self._progress.update(self._lanes[name], description=name)
        if name not in self._lanes:
            self._lanes[name] = self._progress.add_task(name, total=total, said=said)
        self._progress.update(self._lanes[name], total=total)
        return self._lanes[name]
