"""The record of a merge: what each chain of rules reached, what lies between models, what is handed on."""

from dataclasses import dataclass, field

from fourfold.contract.records import ModelScore


@dataclass(frozen=True)
class RuleTold:
    """How one chain of merging rules came about.

    Attributes:
        rule: the chain.
        needs: what it needs, a sentence a rule that needs anything.
        exchanges: how often all sites added up sums for it, with what they gathered after training.
        sent: bytes that each site sent for that.
        seconds: that it took, with the exchanges.
        trains: whether a rule of it minimises a loss of labels, so that it is more than a merge.
        classes: share of right test rows of each class, 0 to 1.
        said: what a user should know, in sentences.
    """

    rule: str
    needs: list[str]
    exchanges: int
    sent: int
    seconds: float
    trains: bool
    classes: list[float]
    said: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Line:
    """The loss along the straight line from one model's weights to another's.

    Attributes:
        members: the two, by index.
        aligned: whether the second one's units were matched to the first one's before.
        losses: mean cross-entropy of hold-out rows at equal steps from the first (0) to the second (1), nats;
            None where it is not finite.
        accuracies: likewise, 0 to 1.
        barrier: how far the loss rises above the straight line between those of the two ends, nats.
    """

    members: list[int]
    aligned: bool
    losses: list[float | None]
    accuracies: list[float]
    barrier: float


@dataclass(frozen=True)
class Slice:
    """The loss on a plane through three points of the space of weights.

    Attributes:
        x: places along the first axis, from the first point (0) to the second (1).
        y: along the second, at a right angle, in the same unit.
        losses: a row for each y; nats, None where it is not finite.
        points: the names and the places (x, y) of models in the plane.
    """

    x: list[float]
    y: list[float]
    losses: list[list[float | None]]
    points: dict[str, list[float]]


@dataclass(frozen=True)
class Gate:
    """Whether a merge is handed on. Accuracies are those of the hold-out rows that no rule has seen, 0 to 1.

    Attributes:
        rule: the chain that was to be handed on.
        merged: its accuracy.
        best_solo: that of the best member.
        ensemble: that of the soft vote of the members.
        margin: by how much the merge may be below the best solo.
        handed_on: ``merged``, ``ensemble`` or ``best_solo``.
        rows: how many rows decided.
    """

    rule: str
    merged: float
    best_solo: float
    ensemble: float
    margin: float
    handed_on: str
    rows: int


@dataclass(frozen=True)
class Merged:
    """What the merge step yielded.

    Attributes:
        members: how many models were merged; 0 where no scenario trained models apart.
        rules: each chain's merged model on the test rows.
        said: what a user should know, in sentences.
        told: how each came about.
        lines: the loss between the first two members, before and after they were aligned.
        slice: the loss on a plane through them; None where there is none.
        gate: what is handed on; None where nothing was merged.
        causes: why the plain mean is as good or bad as it is, in sentences, by what was measured.
    """

    members: int
    rules: dict[str, ModelScore] = field(default_factory=dict)
    said: list[str] = field(default_factory=list)
    told: list[RuleTold] = field(default_factory=list)
    lines: list[Line] = field(default_factory=list)
    slice: Slice | None = None
    gate: Gate | None = None
    causes: list[str] = field(default_factory=list)
