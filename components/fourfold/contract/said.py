"""Records that users write as JSON objects: what they say is checked, what they leave out has its default."""

import dataclasses
import difflib
import json
from typing import Any, TypeVar

from fourfold.contract.errors import DamagedObjectError, InvalidInputError
from fourfold.contract.strict import from_json

R = TypeVar("R")


def read(kind: type[R], name: str, example: str, *texts: str) -> R:
    """Reads a record from JSON objects.

    Args:
        kind: the record's class; every field has a default.
        name: that users know it by.
        example: of such an object.
        *texts: JSON objects; what a later one says goes before what an earlier one says.

    Raises:
        InvalidInputError: a text is no JSON object, or a field is unknown or of another type.
    """
    given = {key: value for text in texts for key, value in _object(text, name, example).items()}
    fields = [each.name for each in dataclasses.fields(kind)]  # pyright: ignore[reportArgumentType]
    for key in given:
        if key not in fields:
            near = difflib.get_close_matches(key, fields, n=1)
            hint = f" (did you mean {near[0]!r}?)" if near else ""
            raise InvalidInputError(f"{name} has no field {key!r}{hint}; it has {', '.join(fields)}")
    try:
        return from_json(kind, json.dumps({**dataclasses.asdict(kind()), **given}), name)  # pyright: ignore
    except DamagedObjectError as error:
        raise InvalidInputError(f"{name} cannot be used: {error.__cause__}") from error


def write(record: Any) -> str:
    """A record as a JSON object of what differs from its defaults."""
    usual, said = dataclasses.asdict(type(record)()), dataclasses.asdict(record)
    return json.dumps({key: value for key, value in said.items() if value != usual[key]}, sort_keys=True)


def _object(text: str, name: str, example: str) -> dict[str, Any]:
    try:
        found = json.loads(text or "{}")
        if not isinstance(found, dict):
            raise ValueError(f"it is a {type(found).__name__}")
    except ValueError as error:
        raise InvalidInputError(
            f"{name} is not a JSON object such as {example}: {error}; got {text!r:.80}"
        ) from error
    return found
