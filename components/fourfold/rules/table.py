"""The table of merging rules. A new rule is a new file and a new row here."""

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from fourfold.rules import (
    activation_matching,
    bn_recalibration,
    coefficients,
    fisher,
    greedy_soup,
    head_refit,
    plain_mean,
    regmean,
    repair,
    sequential_regmean,
    task_arithmetic,
    ties,
    weight_matching,
    weighted_mean,
)
from fourfold.rules.members import Member
from fourfold.rules.state import Ground, State

NEEDS = {
    "nothing": "the models alone",
    "row counts": "how many rows each member was trained on",
    "a common start": "the weights that all members started from",
    "statistics": "Fisher or Gram sums that each site gathered after training; no row leaves a site",
    "sums": "sums that sites answer with while it runs; no row leaves a site, no label is used",
    "own labels": "sums that sites answer with while it runs, from their own labels; no row leaves a site",
    "calibration rows": "pooled rows with labels",
}


@dataclass(frozen=True)
class Rule:
    """A row of the table.

    Attributes:
        name: as in ``--rule``.
        kind: ``align``: changes members before they are merged; ``merge``; ``after``: mends what is merged.
        needs: a key of ``NEEDS``.
        exchanges: how often all sites are asked: in words, since it may depend on the model's layers.
        apply: takes a chain's state and what may be used, and the rule's own numbers by name.
        trains: True where it minimises a loss of labels: then its result is no longer a merge alone.
    """

    name: str
    kind: Literal["align", "merge", "after"]
    needs: str
    exchanges: str
    apply: Callable[..., State]
    trains: bool = False


def _of_members(merge: Callable[[Sequence[Member]], dict[str, np.ndarray]]) -> Callable[..., State]:
    def apply(state: State, ground: Ground) -> State:
        return state.now(merge(state.members))

    return apply


TABLE: tuple[Rule, ...] = (
    Rule("plain_mean", "merge", "nothing", "0", _of_members(plain_mean.merge)),
    Rule("weighted_mean", "merge", "row counts", "0", _of_members(weighted_mean.merge)),
    Rule("task_arithmetic", "merge", "a common start", "0", task_arithmetic.apply),
    Rule("ties", "merge", "a common start", "0", ties.apply),
    Rule("fisher", "merge", "statistics", "1", fisher.apply),
    Rule("regmean", "merge", "statistics", "1", regmean.apply),
    Rule("weight_matching", "align", "nothing", "0", weight_matching.apply),
    Rule("activation_matching", "align", "sums", "1", activation_matching.apply),
    Rule("sequential_regmean", "merge", "sums", "1 a layer", sequential_regmean.apply),
    Rule("repair", "after", "sums", "1 + 1 a layer", repair.apply),
    Rule("bn_recalibration", "after", "sums", "1 a BatchNorm", bn_recalibration.apply),
    Rule("greedy_soup", "merge", "calibration rows", "0", greedy_soup.apply),
    Rule("coefficients", "merge", "calibration rows", "0", coefficients.apply, trains=True),
    Rule("head_refit", "after", "own labels", "21", head_refit.apply, trains=True),
)

RULES: dict[str, Rule] = {rule.name: rule for rule in TABLE}


def numbers_of(rule: Rule) -> dict[str, Any]:
    """The numbers that a rule takes, with their defaults."""
    parameters = inspect.signature(rule.apply).parameters.values()
    return {each.name: each.default for each in parameters if each.default is not inspect.Parameter.empty}
