"""What a study measures: a cell for each split, number of members, start and seed."""

import hashlib
from dataclasses import dataclass, field

from fourfold.contract.strict import to_json

SPLITS = (
    ("contiguous", 2),
    ("sizes:80,20", 2),
    ("dirichlet:0.5", 2),
    ("skew:90,10", 2),
    ("skew:99.8,0.2", 2),
    ("disjoint", 2),
    ("contiguous", 4),
    ("dirichlet:0.5", 4),
    ("disjoint", 4),
    ("contiguous", 8),
    ("dirichlet:0.5", 8),
)
"""How rows are dealt, and to how many members."""
STARTS = ("shared", "warm", "independent")
"""One drawn start for all; one model that has seen all rows once; a drawn start each."""
SEEDS = (0, 1, 2)
RULES = (
    "plain_mean",
    "weighted_mean",
    "fisher",
    "regmean",
    "regmean:alpha=0.9",
    "repair",
    "greedy_soup",
    "task_arithmetic",
    "ties",
    "weight_matching,plain_mean",
    "weight_matching,fisher",
    "weight_matching,regmean",
    "weight_matching,repair",
    "weight_matching,coefficients",
    "activation_matching,plain_mean",
    "sequential_regmean",
    "weight_matching,sequential_regmean",
    "weight_matching,sequential_regmean:temperature=0",
    "weight_matching,plain_mean,head_refit",
    "weight_matching,sequential_regmean,head_refit",
)
"""Chains that are measured, as for ``--rule``."""


@dataclass(frozen=True)
class Cell:
    """One cell of the table.

    Attributes:
        split: as for ``--split``.
        members: models.
        start: one of ``STARTS``.
        seed: of starts, orders and splits that draw.
    """

    split: str
    members: int
    start: str
    seed: int

    @property
    def name(self) -> str:
        """For people."""
        return f"{self.split}, {self.members} members, {self.start} start, seed {self.seed}"


@dataclass(frozen=True)
class Study:
    """All that the numbers of a study depend on, besides the code.

    Attributes:
        data: the source, as for ``--data``.
        rows: training rows.
        holdout: rows after those: the first quarter calibrates, the rest selects.
        epochs: of each solo, and rounds of one local epoch of federated.
        batch: rows a step.
        learning_rate: of Adam.
        splits: of which cells are made.
        starts: likewise.
        seeds: likewise.
        rules: chains that are measured in each cell.
    """

    data: str = "mnist"
    rows: int = 55_000
    holdout: int = 4_000
    epochs: int = 4
    batch: int = 64
    learning_rate: float = 1e-3
    splits: list[tuple[str, int]] = field(default_factory=lambda: list(SPLITS))
    starts: list[str] = field(default_factory=lambda: list(STARTS))
    seeds: list[int] = field(default_factory=lambda: list(SEEDS))
    rules: list[str] = field(default_factory=lambda: list(RULES))

    def cells(self) -> list[Cell]:
        """All cells, the first seed of each before the second of any."""
        return [
            Cell(split, members, start, seed)
            for seed in self.seeds
            for split, members in self.splits
            for start in self.starts
        ]


QUICK = Study(
    data="sample",
    rows=2_000,
    holdout=1_000,
    epochs=2,
    splits=[("skew:90,10", 2), ("disjoint", 2)],
    starts=["shared", "independent"],
    seeds=[0],
    rules=["plain_mean", "weight_matching,plain_mean", "weight_matching,sequential_regmean"],
)
"""A small one, on the sample, that takes a minute."""


def key(study: Study, cell: Cell) -> str:
    """The name of what is kept of a cell: a digest of all that it depends on."""
    told = to_json(cell) + to_json(Study(**{**study.__dict__, "splits": [], "starts": [], "seeds": []}))
    return hashlib.sha256(told).hexdigest()[:20]
