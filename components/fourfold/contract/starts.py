"""Where the models of an ensemble start: an initialiser and a seed each."""

from collections.abc import Sequence
from dataclasses import dataclass

from fourfold.contract.errors import InvalidInputError

FAMILIES = {
    "uniform": "random_uniform",
    "normal": "random_normal",
    "he_uniform": "he_uniform",
    "he_normal": "he_normal",
    "glorot_uniform": "glorot_uniform",
    "glorot_normal": "glorot_normal",
}
"""Initialisers by the names that users give them, as Keras calls them. A layer's own is Glorot uniform."""


@dataclass(frozen=True)
class Start:
    """Where one model starts.

    Attributes:
        family: one of ``FAMILIES``.
        seed: of its draws.
    """

    family: str
    seed: int


def of(starts: Sequence[str], member: int, seed: int) -> Start:
    """The start of a member.

    Args:
        starts: taken in turn: ``family`` or ``family:seed``.
        member: its index.
        seed: of the training; where a start names none, member k draws with ``seed + k``.

    Raises:
        InvalidInputError: there is no start, or one is not as above.
    """
    if not starts:
        raise InvalidInputError(f"starts is empty: name at least one of {', '.join(FAMILIES)}")
    said = starts[member % len(starts)]
    family, colon, own = said.partition(":")
    if family not in FAMILIES:
        raise InvalidInputError(f"unknown start {family!r}: use one of {', '.join(FAMILIES)}")
    if not colon:
        return Start(family, seed + member)
    if not (own.isascii() and own.isdigit()) or int(own) >= 2**31:
        raise InvalidInputError(
            f"the seed of the start {said!r} must be a whole number from 0 on, below 2^31, such as {family}:7"
        )
    return Start(family, int(own))
