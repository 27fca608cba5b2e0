"""What single scenarios read of a training and is seldom changed: JSON in one input of a step."""

import dataclasses
from dataclasses import dataclass, field
from typing import Any

from fourfold.contract import said
from fourfold.contract.records import STARTS


@dataclass(frozen=True)
class Ways:
    """What is not an input of its own; each field is that of ``records.Training``."""

    starts: list[str] = field(default_factory=lambda: list(STARTS))
    member_workers: int = 0
    cut: list[str] = field(default_factory=list)
    balance: str = "parameters"
    placement: str = "devices"
    server_momentum: float = 0.0
    proximal: float = 0.0
    debug: bool = False
    initial: str = "shared"


NUMBERS = ("members", "stages", "micro_batches", "local_steps")
"""Whole numbers of ``records.Training`` that single scenarios read, each an input of its own."""
FIELDS = tuple(each.name for each in dataclasses.fields(Ways))


def read(text: str) -> dict[str, Any]:
    """Reads the record from a JSON object; what it does not say has its default.

    Returns:
        The fields by name.

    Raises:
        InvalidInputError: the text is no JSON object, or a field is unknown or of another type.
    """
    return dataclasses.asdict(said.read(Ways, "ways", '{"proximal": 0.1}', text))


def write(**told: Any) -> str:
    """The record as a JSON object of what differs from the defaults; what it does not have is left out."""
    return said.write(Ways(**{name: told[name] for name in FIELDS if name in told}))
