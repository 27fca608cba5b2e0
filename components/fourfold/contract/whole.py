"""Whole numbers that arrive as floats: Kubeflow knows one kind of number, and may write 2 as 2.0."""

from fourfold.contract.errors import InvalidInputError


def whole(**numbers: float) -> tuple[int, ...]:
    """The numbers as integers.

    Args:
        **numbers: by the names that a user knows them by.

    Returns:
        The integers, in the order of the arguments.

    Raises:
        InvalidInputError: a number has a fraction, or is no number.
    """
    for name, value in numbers.items():
        is_whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
        if not is_whole or isinstance(value, bool):
            raise InvalidInputError(f"{name} must be a whole number, got {value!r}")
    return tuple(map(int, numbers.values()))
