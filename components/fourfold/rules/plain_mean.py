"""The plain mean of the members' weights."""

from collections.abc import Sequence

import numpy as np

from fourfold.rules.members import Member, mean


def merge(members: Sequence[Member]) -> dict[str, np.ndarray]:
    """Every member counts the same: W = (W_1 + ... + W_K) / K.

    Utans, 1996, "Weight averaging for neural networks and local resampling schemes".

    Args:
        members: of one structure.

    Returns:
        The merged weights by place and role, each with the dtype of the members.
    """
    return mean(members)
