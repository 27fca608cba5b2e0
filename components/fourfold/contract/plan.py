"""The table of plans: a way to train is a point, not a program.

Each row says how data and model are split, what is merged and when. A new way is a new row; nothing outside
this file asks for a scenario by its name. The rows and their meaning are Table 1 of the README.
"""

from dataclasses import dataclass, replace
from typing import Literal

from fourfold.contract.errors import InvalidInputError
from fourfold.contract.records import Trained, Training


@dataclass(frozen=True)
class Scenario:
    """One row of the table.

    Attributes:
        name: as in ``--scenario``.
        data: ``stream``: every model sees all rows; ``shards``: each worker has rows of its own.
        model: ``one`` model, equal ``copies`` of one, or ``separate`` models.
        staged: whether each model is cut into stages.
        merged: what is merged: ``nothing``, ``gradients``, ``weights`` or ``predictions``.
        when: when it is merged: ``never``, at ``every_step``, after ``every_round`` of local steps, ``once``
            by the merge step after training, or ``when_scoring``.
        meaning: the row in a sentence, for people.
    """

    name: str
    data: Literal["stream", "shards"]
    model: Literal["one", "copies", "separate"]
    staged: bool
    merged: Literal["nothing", "gradients", "weights", "predictions"]
    when: Literal["never", "every_step", "every_round", "once", "when_scoring"]
    meaning: str

    @property
    def splits_data(self) -> bool:
        """True where each worker trains on rows of its own."""
        return self.data == "shards"

    @property
    def splits_model(self) -> bool:
        """True where one model is cut into stages."""
        return self.staged

    @property
    def exchanges(self) -> bool:
        """True where workers talk to each other while they train."""
        return self.when in ("every_step", "every_round")

    @property
    def in_rounds(self) -> bool:
        """True where workers take steps of their own between two merges of their weights."""
        return self.when == "every_round"

    @property
    def votes(self) -> bool:
        """True where the models speak as one, by the vote of their predictions."""
        return self.merged == "predictions"

    @property
    def starts_apart(self) -> bool:
        """True where every model has a start of its own."""
        return self.model == "separate" and self.data == "stream"

    @property
    def copies_back(self) -> bool:
        """True where worker 0's weights are set in all workers after each step."""
        return self.staged and self.model == "copies"

    @property
    def merges_after_training(self) -> bool:
        """True where the merge step has something to do."""
        return self.merged == "weights" and self.when == "once"


SCENARIOS: tuple[Scenario, ...] = (
    Scenario(
        "sequential",
        data="stream",
        model="one",
        staged=False,
        merged="nothing",
        when="never",
        meaning="One model sees all rows, one batch after the other.",
    ),
    Scenario(
        "data_parallel",
        data="shards",
        model="copies",
        staged=False,
        merged="gradients",
        when="every_step",
        meaning="Equal copies, each with a shard; their gradients are averaged at every step.",
    ),
    Scenario(
        "ensemble",
        data="stream",
        model="separate",
        staged=False,
        merged="predictions",
        when="when_scoring",
        meaning="Separate models with own starts see the same batches; they vote when they are scored.",
    ),
    Scenario(
        "pipeline",
        data="stream",
        model="one",
        staged=True,
        merged="nothing",
        when="never",
        meaning="One model, cut into stages; each stage hands its micro-batches on to the next.",
    ),
    Scenario(
        "hybrid",
        data="shards",
        model="copies",
        staged=True,
        merged="gradients",
        when="every_step",
        meaning="Equal copies, cut into stages, each with a shard; gradients are averaged at every step.",
    ),
    Scenario(
        "solo",
        data="shards",
        model="separate",
        staged=False,
        merged="weights",
        when="once",
        meaning="Separate models, each with a shard; their weights are merged once, after training.",
    ),
    Scenario(
        "federated",
        data="shards",
        model="copies",
        staged=False,
        merged="weights",
        when="every_round",
        meaning="Copies, each with a shard, take steps of their own; their weights are averaged every round.",
    ),
)


@dataclass(frozen=True)
class Plan:
    """A row of the table with its numbers filled in.

    Attributes:
        scenario: the row.
        workers: that train, W; each trains a model, or its copy of one.
        stages: parts that a model is cut into, S.
        members: separate models at scoring, K.
        processes: that the workers are dealt to, or that hold a stage each.
        stage_a_process: whether the stages of the one model lie on a process each.
        merging: whether the workers merge what was trained: each beside its shard, all exchange.
    """

    scenario: Scenario
    workers: int
    stages: int
    members: int
    processes: int
    stage_a_process: bool = False
    merging: bool = False

    @property
    def exchanges(self) -> bool:
        """True where workers talk to each other."""
        return self.scenario.exchanges or self.merging

    @property
    def shards(self) -> int:
        """How many shards the rows are dealt to."""
        return self.workers if self.scenario.splits_data else 1

    @property
    def groups(self) -> tuple[tuple[int, ...], ...]:
        """The workers that train together, by index: all of them, or each by itself."""
        if self.exchanges:
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

    def workers_of(self, process: int) -> tuple[int, ...]:
        """The workers that a process is, one after another; none where it only holds a stage."""
        if self.stage_a_process:
            return (0,) if process == 0 else ()
        return tuple(range(process, self.workers, self.processes))

    @property
    def processes_talk(self) -> bool:
        """True where a process is reached by others while it trains."""
        return self.stage_a_process or (self.exchanges and self.workers > 1)


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


PLACEMENTS = ("devices", "pods")
"""Where the stages of a model lie: on devices of its worker, or on a process (a pod) each."""


BALANCES = ("parameters", "cost")
"""What stages balance where nobody says where to cut: trained parameters, or measured time."""


def plan(
    name: str,
    workers: int,
    members: int = 3,
    stages: int = 2,
    member_workers: int = 0,
    placement: str = "devices",
) -> Plan:
    """Fills in a row's numbers; each row takes what it needs.

    Args:
        name: the scenario.
        workers: that split the data, at least 1; read by rows with shards.
        members: separate models of a row whose models all see the same rows, at least 1.
        stages: parts of a model that is cut, at least 1.
        member_workers: processes that such members are dealt to; 0 for one a member.
        placement: one of ``PLACEMENTS``; ``pods`` is for the row with one model that is cut.

    Raises:
        InvalidInputError: the scenario is unknown, or a number is out of its range.
    """
    row = scenario(name)
    for what, value, least in (
        ("workers", workers, 1),
        ("members", members, 1),
        ("stages", stages, 1),
        ("member-workers", member_workers, 0),
    ):
        if value < least:
            raise InvalidInputError(f"{what} must be at least {least}, got {value}")
    if placement not in PLACEMENTS:
        raise InvalidInputError(f"unknown placement {placement!r}: use one of {', '.join(PLACEMENTS)}")
    used = {"one": 1, "copies": workers, "separate": members if row.starts_apart else workers}[row.model]
    cut = stages if row.staged else 1
    apart = row.staged and row.model == "one" and placement == "pods" and cut > 1
    processes = used
    if apart:
        processes = cut
    elif row.starts_apart and member_workers:
        processes = min(member_workers, used)
    return Plan(
        row,
        workers=used,
        stages=cut,
        members=used if row.model == "separate" else 1,
        processes=processes,
        stage_a_process=apart,
    )


def of(training: Training) -> Plan:
    """The plan of a training.

    Raises:
        InvalidInputError: as of ``plan``; or it is to be debugged, with more than one worker.
    """
    if training.debug:
        if training.workers > 1:
            raise InvalidInputError(f"debug trains with one worker, got workers {training.workers}")
        return plan(training.scenario, 1, training.members, training.stages, member_workers=1)
    found = plan(
        training.scenario,
        training.workers,
        members=training.members,
        stages=training.stages,
        member_workers=training.member_workers,
        placement=training.placement,
    )
    return found if training.merging is None else replace(found, merging=True)


def trained_apart(trained: Trained) -> bool:
    """True where a training yielded several models whose weights are to be merged."""
    return scenario(trained.training.scenario).merges_after_training and trained.models > 1


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
