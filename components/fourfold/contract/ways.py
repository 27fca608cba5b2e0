"""What single scenarios read of a training and is seldom changed: JSON in one input of a step."""

import dataclasses
import difflib
import json
from dataclasses import dataclass, field
from typing import Any

from fourfold.contract.errors import DamagedObjectError, InvalidInputError
from fourfold.contract.records import STARTS
from fourfold.contract.strict import from_json


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


FIELDS = tuple(each.name for each in dataclasses.fields(Ways))


def read(text: str) -> dict[str, Any]:
    """Reads the record from a JSON object; what it does not say has its default.

    Returns:
        The fields by name.

    Raises:
        InvalidInputError: the text is no JSON object, or a field is unknown or of another type.
    """
    try:
        given = json.loads(text or "{}")
    except ValueError as error:
        raise InvalidInputError(f"ways is no JSON: {text!r:.80} ({error})") from error
    if not isinstance(given, dict):
        raise InvalidInputError(f'ways must be a JSON object such as {{"proximal": 0.1}}, got {text!r:.80}')
    for name in given:
        if name not in FIELDS:
            near = difflib.get_close_matches(name, FIELDS, n=1)
            hint = f" (did you mean {near[0]!r}?)" if near else ""
            raise InvalidInputError(f"ways has no field {name!r}{hint}; it has {', '.join(FIELDS)}")
    try:
        found = from_json(Ways, json.dumps({**dataclasses.asdict(Ways()), **given}), "ways")
    except DamagedObjectError as error:
        raise InvalidInputError(f"ways cannot be used: {error.__cause__}") from error
    return dataclasses.asdict(found)


def write(**said: Any) -> str:
    """The record as a JSON object of what differs from the defaults; what it does not have is left out."""
    usual = dataclasses.asdict(Ways())
    return json.dumps({name: said[name] for name in FIELDS if name in said and said[name] != usual[name]})
