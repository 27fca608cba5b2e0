"""Which merges a run makes, when one is handed on, and what is told of merging beside the rows."""

from dataclasses import dataclass, field

RULES = (
    "plain_mean",
    "weighted_mean",
    "fisher",
    "regmean",
    "weight_matching,plain_mean",
    "weight_matching,regmean",
    "greedy_soup",
)
"""Chains of rules that the merge step applies: from the models and what sites gathered after training."""
AT_SITES = ("weight_matching,sequential_regmean", "weight_matching,head_refit")
"""Chains of rules that ask the sites while they run, so that workers apply them beside their shards."""
CHOSEN = "weight_matching,sequential_regmean"
"""The chain whose result is handed on, if it passes the gate; why this one is in the README."""
MARGIN = 0.01
"""By how much a merge that is handed on may be less accurate than the best solo, on hold-out rows."""


def file_name(chain: str) -> str:
    """The name of the file of a chain's model, without its ending."""
    return chain.replace(",", "+").replace(":", "-")


@dataclass(frozen=True)
class Merging:
    """Merging models at the sites of their rows, instead of training: see ``worker.merging``.

    Attributes:
        models: URI of the output of the training that yielded the models, one a worker.
        rules: chains of rules, each as for ``--rule``.
    """

    models: str
    rules: list[str]


@dataclass(frozen=True)
class MergedAtSites:
    """What one chain of rules did at the sites.

    Attributes:
        rule: the chain.
        exchanges: how often all sites added up their sums.
        sent: bytes of this site's sums.
        seconds: that it took.
        said: what a user should know, in sentences.
    """

    rule: str
    exchanges: int
    sent: int
    seconds: float
    said: list[str] = field(default_factory=list)
