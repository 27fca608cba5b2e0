"""Records as strict JSON: no NaN, no Infinity; what is read back has the types of its fields."""

import dataclasses
import json
import math
import types
import typing
from typing import Any, TypeVar

from fourfold.contract.errors import DamagedObjectError

R = TypeVar("R")


def to_json(record: Any) -> bytes:
    """A record as strict JSON: no NaN, no Infinity, keys in the order of the fields.

    Raises:
        ValueError: a number is not finite.
    """
    if dataclasses.is_dataclass(record) and not isinstance(record, type):
        record = dataclasses.asdict(record)
    return (json.dumps(record, allow_nan=False, indent=1) + "\n").encode()


def from_json(kind: type[R], text: bytes | str, name: str = "record") -> R:
    """Reads a record back. Fields that this version does not know are left out.

    Args:
        kind: the record's class.
        text: strict JSON.
        name: of the object that the text came from, for the error.

    Raises:
        DamagedObjectError: the text is not JSON, or a field is missing or of another type.
    """
    try:
        return _build(kind, json.loads(text, parse_constant=_refuse))
    except (ValueError, TypeError, OverflowError) as error:
        raise DamagedObjectError(
            f"{name} is not a {kind.__name__}: {error}; delete it and run again"
        ) from error


def finite(value: float) -> float | None:
    """The number, or None where JSON has no word for it."""
    return float(value) if math.isfinite(value) else None


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


def _build(kind: Any, value: Any) -> Any:
    if kind is Any:
        return value
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if dataclasses.is_dataclass(kind):
        hints, known = typing.get_type_hints(kind), {f.name for f in dataclasses.fields(kind)}
        found = _expect(dict, value).items()
        return kind(**{name: _field(name, hints[name], item) for name, item in found if name in known})  # pyright: ignore
    if origin is list:
        return [_field(str(place), inner[0], item) for place, item in enumerate(_expect(list, value))]
    if origin is dict:
        return {key: _field(key, inner[1], item) for key, item in _expect(dict, value).items()}
    if origin in (typing.Union, types.UnionType):
        if value is None and type(None) in inner:
            return None
        return _build(next(a for a in inner if a is not type(None)), value)
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    if kind is int and isinstance(value, float) and value.is_integer():
        value = int(value)
    if kind is float and isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"expected a finite number, got {value}")
    return _expect(kind, value)


def _expect(kind: type[R], value: Any) -> R:
    if not isinstance(value, kind) or (kind is not bool and isinstance(value, bool)):
        raise TypeError(f"expected {kind.__name__}, got {value!r:.60}")
    return value


def _field(name: str, kind: Any, value: Any) -> Any:
    """Builds one field; its error begins with the field's name."""
    try:
        return _build(kind, value)
    except (ValueError, TypeError, OverflowError) as error:
        raise ValueError(f"{name}: {error}") from error
