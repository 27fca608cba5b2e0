"""How ready batches are kept and read: JSON in one input of the steps."""

from dataclasses import dataclass
from typing import Any

from fourfold.contract import said
from fourfold.contract.errors import InvalidInputError

DTYPES = ("float32", "float16", "uint8")
"""Of values in cached batches: ready, ready at half the size, or as they came, made ready when read."""
ORDERS = ("rows", "batches", "frozen", "reverse")
"""In which an epoch takes rows, besides one from a file; see ``cache.orders``."""
LIST = "list:"
"""What an order from a file begins with; its path or URI follows."""


@dataclass(frozen=True)
class Caching:
    """How ready batches are kept and read; one input of the steps, a JSON object.

    Attributes:
        dtype: of the values that are kept; what the model sees is float32.
        batch_rows: rows of one cached batch.
        order: in which an epoch takes rows: ``rows``, ``batches``, ``frozen``, ``reverse``, or ``list:`` and
            a file of row numbers.
        window: cached batches among which ``rows`` deals rows, where a shard does not fit in memory; 0 for as
            many as fit.
        ahead: cached batches that are asked for ahead of the one that is needed; 0 for none.
        ram: bytes of memory for the rows of one worker; 0 for half of what its container may use.
        disk: bytes of disk for cached batches, of all workers of a node; 0 for what is usual, -1 for none.
    """

    dtype: str = "float32"
    batch_rows: int = 100
    order: str = "rows"
    window: int = 0
    ahead: int = 16
    ram: int = 0
    disk: int = 0


def read(text: str) -> Caching:
    """Reads the record from a JSON object; what it does not say has its default.

    Raises:
        InvalidInputError: the text is no JSON object, or a field is unknown, of another type or out of range.
    """
    found = said.read(Caching, "cache", '{"order": "batches"}', text)
    check(found)
    return found


def write(**told: Any) -> str:
    """The record as a JSON object of what differs from the defaults."""
    return said.write(Caching(**told))


def check(caching: Caching) -> None:
    """Checks the record.

    Raises:
        InvalidInputError: a field is out of range; the error names it.
    """
    if caching.dtype not in DTYPES:
        raise InvalidInputError(
            f"unknown dtype {caching.dtype!r} for cached batches: use {', '.join(DTYPES)}"
        )
    if caching.order not in ORDERS and not (caching.order.startswith(LIST) and caching.order != LIST):
        raise InvalidInputError(
            f"unknown order {caching.order!r}: use one of {', '.join(ORDERS)}, or {LIST}FILE with row numbers"
        )
    least = {"batch_rows": 1, "window": 0, "ahead": 0, "ram": 0, "disk": -1}
    for name, value in least.items():
        if getattr(caching, name) < value:
            raise InvalidInputError(
                f"{name.replace('_', '-')} of the cache must be at least {value}, "
                f"got {getattr(caching, name)}"
            )
