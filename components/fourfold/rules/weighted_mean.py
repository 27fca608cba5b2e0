"""The mean of the members' weights, weighted by the rows that each was trained on."""

from collections.abc import Sequence

import numpy as np

from fourfold.contract.errors import InvalidInputError
from fourfold.rules.members import Member, average


def merge(members: Sequence[Member]) -> dict[str, np.ndarray]:
    """A member counts by its rows: W = sum of n_k / N W_k (McMahan et al., 2017, FedAvg, here in one round).

    Args:
        members: of one structure, each with the rows that it was trained on.

    Returns:
        The merged weights by place and role, each with the dtype of the members.

    Raises:
        InvalidInputError: a count is negative or not a number, or all are 0.
    """
    counts = [member.rows for member in members]
    total = sum(counts)
    for member in members:
        if not (np.isfinite(member.rows) and member.rows >= 0):
            raise InvalidInputError(
                f"{member.name} was trained on {member.rows} rows: a count must be 0 or more"
            )
    if total == 0:
        raise InvalidInputError(
            f"no member was trained on any row (rows: {counts}): there are no weights to give them"
        )
    return average(members, [count / total for count in counts])
