"""What a study measures: a cell for each split, number of members, start and seed."""

import dataclasses
import hashlib
import json
import re
from dataclasses import dataclass, field, replace

from fourfold.contract.errors import InvalidInputError
from fourfold.contract.strict import to_json

SPLITS = (
    "contiguous x2",
    "sizes:80,20 x2",
    "dirichlet:0.5 x2",
    "skew:90,10 x2",
    "skew:99.8,0.2 x2",
    "disjoint x2",
    "contiguous x4",
    "dirichlet:0.5 x4",
    "disjoint x4",
    "contiguous x8",
    "dirichlet:0.5 x8",
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

    @property
    def said(self) -> str:
        """As ``read`` reads it."""
        return f"{self.split} x{self.members} {self.start} {self.seed}"


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
    splits: list[str] = field(default_factory=lambda: list(SPLITS))
    starts: list[str] = field(default_factory=lambda: list(STARTS))
    seeds: list[int] = field(default_factory=lambda: list(SEEDS))
    rules: list[str] = field(default_factory=lambda: list(RULES))

    def cells(self) -> list[Cell]:
        """All cells, the first seed of each before the second of any."""
        return [
            read(f"{split} {start} {seed}")
            for seed in self.seeds
            for split in self.splits
            for start in self.starts
        ]


def read(text: str) -> Cell:
    """Reads a cell, such as ``skew:90,10 x2 independent 0``.

    Raises:
        InvalidInputError: it is none.
    """
    found = re.fullmatch(r"(\S+) x(\d+) (\w+) (\d+)", text.strip())
    if not found or found[3] not in STARTS or int(found[2]) < 2:
        raise InvalidInputError(
            f"{text!r} is no cell: a split, x and at least 2 members, one of {', '.join(STARTS)}, and a "
            "seed, such as 'skew:90,10 x2 independent 0'"
        )
    return Cell(found[1], int(found[2]), found[3], int(found[4]))


QUICK = Study(
    data="sample",
    rows=2_000,
    holdout=1_000,
    epochs=2,
    splits=["skew:90,10 x2", "disjoint x2"],
    starts=["shared", "independent"],
    seeds=[0],
    rules=["plain_mean", "weight_matching,plain_mean", "weight_matching,sequential_regmean"],
)
"""A small one, on the sample, that takes a minute."""


def key(study: Study, cell: Cell) -> str:
    """The name of what is kept of a cell: a digest of all that it depends on."""
    told = to_json(cell) + to_json(replace(study, splits=[], starts=[], seeds=[]))
    return hashlib.sha256(told).hexdigest()[:20]


def settings(study: Study) -> str:
    """A study without its cells, which are named one by one, as a JSON object on one line."""
    told = dataclasses.asdict(study)
    return json.dumps({name: told[name] for name in told if name not in ("splits", "starts", "seeds")})
