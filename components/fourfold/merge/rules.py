"""The table of merging rules. A new rule is a new file and a new row here."""

from collections.abc import Callable, Sequence

import numpy as np

from fourfold.merge import plain_mean, weighted_mean
from fourfold.merge.members import Member

Rule = Callable[[Sequence[Member]], dict[str, np.ndarray]]

RULES: dict[str, Rule] = {
    "plain_mean": plain_mean.merge,
    "weighted_mean": weighted_mean.merge,
}
