"""What a check yields: one line that says how it is, and what to do where it is not well."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

Level = Literal["ok", "warn", "wrong", "skipped"]


@dataclass(frozen=True)
class Finding:
    """One line.

    Attributes:
        level: ``ok``; ``warn``: it may work; ``wrong``: it will not; ``skipped``: it could not be asked.
        said: what was found.
        do: what to do about it; empty where there is nothing to do.
    """

    level: Level
    said: str
    do: str = ""


def ok(said: str) -> Finding:
    """All is well."""
    return Finding("ok", said)


def warn(said: str, do: str) -> Finding:
    """It may work."""
    return Finding("warn", said, do)


def wrong(said: str, do: str) -> Finding:
    """It will not work."""
    return Finding("wrong", said, do)


def skipped(said: str, do: str = "") -> Finding:
    """It could not be asked."""
    return Finding("skipped", said, do)


def worst(found: Iterable[Finding]) -> Level:
    """The worst of several: wrong before warn before all else."""
    levels = {finding.level for finding in found}
    return "wrong" if "wrong" in levels else "warn" if "warn" in levels else "ok"
