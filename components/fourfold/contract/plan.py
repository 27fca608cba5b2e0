"""The table of plans: a way to train is a point, not a program.

Each row says how data and model are split, what is merged and when. A new way is a new row; nothing outside
this file asks for a scenario by its name. The rows and their meaning are Table 1 of the README.
"""

from dataclasses import dataclass
from typing import Literal

from fourfold.contract.errors import InvalidInputError


@dataclass(frozen=True)
class Scenario:
    """One row of the table.

    Attributes:
        name: as in ``--scenario``.
        data: ``stream``: every model sees all rows; ``shards``: each worker has rows of its own.
        model: ``one`` model, equal ``copies`` of one, or ``separate`` models.
        merged: what the workers merge: ``nothing``, ``gradients`` or ``weights``.
        when: when they merge it: ``never``, at ``every_step``, or ``once`` by the merge step, after training.
        meaning: the row in a sentence, for people.
    """

    name: str
    data: Literal["stream", "shards"]
    model: Literal["one", "copies", "separate"]
    merged: Literal["nothing", "gradients", "weights"]
    when: Literal["never", "every_step", "once"]
    meaning: str

    @property
    def splits_data(self) -> bool:
        """True where each worker trains on rows of its own."""
        return self.data == "shards"

    @property
    def splits_model(self) -> bool:
        """True where one model is cut into stages."""
        return False

    @property
    def exchanges(self) -> bool:
        """True where workers talk to each other while they train."""
        return self.when == "every_step"

    @property
    def merges_after_training(self) -> bool:
        """True where the merge step has something to do."""
        return self.merged == "weights" and self.when == "once"


SCENARIOS: tuple[Scenario, ...] = (
    Scenario(
        "sequential",
        data="stream",
        model="one",
        merged="nothing",
        when="never",
        meaning="One model sees all rows, one batch after the other.",
    ),
    Scenario(
        "data_parallel",
        data="shards",
        model="copies",
        merged="gradients",
        when="every_step",
        meaning="Equal copies, each with a shard; their gradients are averaged at every step.",
    ),
    Scenario(
        "solo",
        data="shards",
        model="separate",
        merged="weights",
        when="once",
        meaning="Separate models, each with a shard; their weights are merged once, after training.",
    ),
)


@dataclass(frozen=True)
class Plan:
    """A row of the table with its numbers filled in.

    Attributes:
        scenario: the row.
        workers: worker processes (pods), W.
        stages: parts that the model is cut into, S.
        members: separate models at scoring, K.
    """

    scenario: Scenario
    workers: int
    stages: int
    members: int

    @property
    def shards(self) -> int:
        """How many shards the rows are dealt to."""
        return self.workers if self.scenario.splits_data else 1

    @property
    def groups(self) -> tuple[tuple[int, ...], ...]:
        """The workers that train together, by index: all of them, or each by itself."""
        if self.scenario.exchanges:
            return (tuple(range(self.workers)),)
        return tuple((worker,) for worker in range(self.workers))

    def group_of(self, worker: int) -> tuple[int, ...]:
        """The indices of the workers that ``worker`` exchanges with, itself among them."""
        return next(group for group in self.groups if worker in group)

    def model_of(self, worker: int) -> int:
        """The index of the model that ``worker`` trains."""
        return next(index for index, group in enumerate(self.groups) if worker in group)

    def shard_of(self, worker: int) -> int:
        """The index of the shard that ``worker`` reads."""
        return worker if self.scenario.splits_data else 0


def names() -> tuple[str, ...]:
    """The scenarios' names in the order of the table."""
    return tuple(scenario.name for scenario in SCENARIOS)


def scenario(name: str) -> Scenario:
    """Finds a row by its name.

    Raises:
        InvalidInputError: there is no such scenario.
    """
    for row in SCENARIOS:
        if row.name == name:
            return row
    import difflib

    near = difflib.get_close_matches(name, names(), n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    raise InvalidInputError(f"unknown scenario {name!r}: use one of {', '.join(names())}{hint}")


def plan(name: str, workers: int) -> Plan:
    """Fills in a row's numbers.

    Args:
        name: the scenario.
        workers: worker processes wanted, at least 1. A scenario that trains one undivided model uses one.

    Raises:
        InvalidInputError: the scenario is unknown, or ``workers`` is below 1.
    """
    row = scenario(name)
    if workers < 1:
        raise InvalidInputError(f"workers must be at least 1, got {workers}")
    used = 1 if row.model == "one" else workers
    return Plan(row, workers=used, stages=1, members=used if row.model == "separate" else 1)


def steps(sizes: tuple[int, ...], batch: int) -> tuple[tuple[int, ...], ...]:
    """Where each step's rows begin and end in the shards of a group, for one epoch.

    The global batch is ``len(sizes) * batch`` rows; every step takes as many, the last one what is left.
    Every worker takes its share in proportion to the rows that it has, so that all take the same number of
    steps and every row is taken once. Where shares are no whole numbers, rows are apportioned by
    Sainte-Laguë's method (1910), under which no worker ever has to give a row back as the epoch goes on.

    Args:
        sizes: rows of each worker's shard.
        batch: rows per worker and step where shards are equal.

    Returns:
        For each worker the S + 1 bounds of its S steps: step ``s`` takes rows from ``bounds[s]`` to before
        ``bounds[s + 1]``.

    Raises:
        InvalidInputError: there are no rows, or ``batch`` is below 1.
    """
    if batch < 1:
        raise InvalidInputError(f"batch must be at least 1 row, got {batch}")
    total, whole = sum(sizes), batch * len(sizes)
    if total < 1 or min(sizes) < 0:
        raise InvalidInputError(
            f"a group of workers needs at least one row, got shards of {list(sizes)} rows"
        )
    ends = [min(end, total) for end in range(0, total + whole, whole)]
    if all(size * end % total == 0 for size in sizes for end in ends):
        return tuple(tuple(size * end // total for end in ends) for size in sizes)
    turns = sorted(((2 * row + 1) / size, worker) for worker, size in enumerate(sizes) for row in range(size))
    taken, bounds = [0] * len(sizes), []
    for begin, end in zip([0, *ends], ends, strict=False):
        for _, worker in turns[begin:end]:
            taken[worker] += 1
        bounds.append(tuple(taken))
    return tuple(zip(*bounds, strict=True))
