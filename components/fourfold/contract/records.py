"""The records that cross from one step to the next, and their strict JSON.

A record is written by one step and read by others, perhaps of another version: fields are only ever added,
with a default.
"""

import dataclasses
import json
import math
import types
import typing
from dataclasses import dataclass, field
from typing import Any, TypeVar

from fourfold.contract.errors import DamagedObjectError

R = TypeVar("R")


@dataclass(frozen=True)
class CachedBatch:
    """One cached batch of a part, as its manifest lists it.

    Attributes:
        index: place in the part; its rows follow those of the batch before.
        rows: number of rows.
        bytes: size of the two objects (x, y) together.
        sha256: of the ``x`` and the ``y`` object, by array name.
        classes: rows of each class, in the order of the class numbers.
    """

    index: int
    rows: int
    bytes: int
    sha256: dict[str, str]
    classes: list[int]


@dataclass(frozen=True)
class DatasetManifest:
    """What a data set in the store holds. Written last: a data set without one does not exist.

    Attributes:
        format: version of the layout.
        fingerprint: name of the data set; a hash over all that its content depends on.
        source: what was read, for people.
        source_sha256: over the source's uncompressed bytes.
        normalisation: what was done to the values, e.g. ``"x / 255"``.
        dtype: of ``x`` in the cached batches.
        shape: of one row of ``x``.
        class_names: by class number.
        rows_per_batch: rows of a cached batch; the last of a part may have fewer.
        parts: the cached batches of ``train``, ``holdout`` and ``test``.
    """

    format: int
    fingerprint: str
    source: str
    source_sha256: str
    normalisation: str
    dtype: str
    shape: list[int]
    class_names: list[str]
    rows_per_batch: int
    parts: dict[str, list[CachedBatch]]

    def rows(self, part: str) -> int:
        """Rows in a part."""
        return sum(batch.rows for batch in self.parts[part])

    def classes(self, part: str) -> list[int]:
        """Rows of each class in a part."""
        counts = [0] * len(self.class_names)
        for batch in self.parts[part]:
            counts = [a + b for a, b in zip(counts, batch.classes, strict=True)]
        return counts


@dataclass(frozen=True)
class Split:
    """How the training rows are dealt to shards.

    Attributes:
        id: name of the split; a hash over the row numbers.
        rule: the ``--split`` it was made from.
        seed: of the rule, where it draws.
        sizes: rows of each shard.
        classes: rows of each class in each shard.
        rows_sha256: of the object with the row numbers.
        said: what a user should know about it, in sentences.
    """

    id: str
    rule: str
    seed: int
    sizes: list[int]
    classes: list[list[int]]
    rows_sha256: str
    said: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Training:
    """All that the worker program is told: what is trained, on which rows, how, and where the result goes.

    Attributes:
        scenario: a row of the table of plans.
        workers: worker processes wanted, W.
        store: URI of the store that holds the data set.
        fingerprint: of the data set.
        split: id of the split; read only by scenarios that split data.
        output: URI of the folder that the result is written below.
        epochs: passes over the training rows.
        batch: rows per worker and step.
        optimizer: ``adam``, ``sgd`` or ``momentum``.
        learning_rate: of the optimiser.
        seed: of the model's start and of the order of rows.
        threads: intra-op threads of each worker; results depend on it in the last bits.
        start_seconds: how long a worker waits for its peers to start.
        finish_seconds: how long a worker that is done waits for its peers to be done, too.
        trace: steps, counted from 0, whose state before and after is written out; used to prove the laws.
        code: digest of the code that must run it, see ``contract.images``; empty for any.
    """

    scenario: str
    workers: int
    store: str
    fingerprint: str
    split: str
    output: str
    epochs: int = 5
    batch: int = 100
    optimizer: str = "adam"
    learning_rate: float = 1e-3
    seed: int = 0
    threads: int = 1
    start_seconds: float = 60.0
    finish_seconds: float = 600.0
    trace: list[int] = field(default_factory=list)
    code: str = ""


@dataclass(frozen=True)
class Epoch:
    """One epoch of one model.

    Attributes:
        loss: mean over rows of the training loss during the epoch, nats.
        accuracy: on all rows that the model trains on, after the epoch; 0 to 1.
        seconds: training time, without start-up and without measuring the accuracy.
        rows: rows trained on.
    """

    loss: float
    accuracy: float
    seconds: float
    rows: int


@dataclass(frozen=True)
class WorkerReport:
    """What one worker says of its training.

    Attributes:
        worker: its index.
        process: its process id, or the name of its pod.
        model: index of the model that it trained.
        rows: rows of its shard.
        epochs: of its model, the same for all workers that trained it.
        digests: of its copy's weights after each epoch.
        objects: sha256 of each object that it wrote, by key.
        environment: what the digests depend on besides the arguments: threads, CPU, library versions.
        said: what a user should know, in sentences.
    """

    worker: int
    process: str
    model: int
    rows: int
    epochs: list[Epoch]
    digests: list[str]
    objects: dict[str, str] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    said: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Trained:
    """What a training yielded. Written last: a training without one did not end well.

    Attributes:
        training: what was asked for.
        workers: processes used.
        stages: parts of the model.
        members: separate models.
        global_batch: rows of one update of one model.
        updates_per_epoch: of one model; of the model with the most where they differ.
        reports: one a worker.
    """

    training: Training
    workers: int
    stages: int
    members: int
    global_batch: int
    updates_per_epoch: int
    reports: list[WorkerReport]

    @property
    def models(self) -> int:
        """How many models there are."""
        return 1 + max(report.model for report in self.reports)

    @property
    def chiefs(self) -> list[WorkerReport]:
        """The report of the first worker of each model, in the order of the models."""
        first = {report.model: report for report in reversed(self.reports)}
        return [first[model] for model in sorted(first)]


@dataclass(frozen=True)
class ModelScore:
    """A model on the test rows.

    Attributes:
        accuracy: share of rows whose class is right, 0 to 1.
        loss: mean cross-entropy, nats; None where it is not finite.
        holdout_accuracy: on the hold-out rows; choices look at this one only.
        holdout_loss: on the hold-out rows.
        weights_sha256: digest of its weights; empty for a vote of several models.
    """

    accuracy: float
    loss: float | None
    holdout_accuracy: float
    holdout_loss: float | None
    weights_sha256: str = ""


@dataclass(frozen=True)
class Evaluation:
    """One scenario on the test rows.

    Attributes:
        trained: what was evaluated.
        accuracy: of the scenario: of its model, or the mean of its separate models.
        loss: likewise; None where it is not finite.
        models: each model.
        vote: the soft vote of several models (mean of probabilities), None for one model.
        confusion: rows by true class (row) and predicted class (column), of all models together.
        class_names: by class number.
        test_rows: how many.
        roc: the receiver operating characteristic over all classes, one against the rest, of all models
            together: false positive rate, true positive rate, threshold of each point.
        auc: the area under it, before points were left out; None where no score is finite.
    """

    trained: Trained
    accuracy: float
    loss: float | None
    models: list[ModelScore]
    vote: ModelScore | None
    confusion: list[list[int]]
    class_names: list[str]
    test_rows: int
    roc: list[list[float]] = field(default_factory=list)
    auc: float | None = None


@dataclass(frozen=True)
class Merged:
    """What the merge step yielded.

    Attributes:
        members: how many models were merged; 0 where no scenario trained models apart.
        rules: each rule's merged model on the test rows.
        said: what a user should know, in sentences.
    """

    members: int
    rules: dict[str, ModelScore] = field(default_factory=dict)
    said: list[str] = field(default_factory=list)


def to_json(record: Any) -> bytes:
    """A record as strict JSON: no NaN, no Infinity, keys in the order of the fields.

    Raises:
        ValueError: a number is not finite.
    """
    if dataclasses.is_dataclass(record) and not isinstance(record, type):
        record = dataclasses.asdict(record)
    return (json.dumps(record, allow_nan=False, indent=1) + "\n").encode()


def from_json(kind: type[R], text: bytes | str, name: str = "record") -> R:
    """Reads a record back. Fields that this version does not know are left out.

    Args:
        kind: the record's class.
        text: strict JSON.
        name: of the object that the text came from, for the error.

    Raises:
        DamagedObjectError: the text is not JSON, or a field is missing or of another type.
    """
    try:
        return _build(kind, json.loads(text, parse_constant=_refuse))
    except (ValueError, TypeError, OverflowError) as error:
        raise DamagedObjectError(
            f"{name} is not a {kind.__name__}: {error}; delete it and run again"
        ) from error


def finite(value: float) -> float | None:
    """The number, or None where JSON has no word for it."""
    return float(value) if math.isfinite(value) else None


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


def _build(kind: Any, value: Any) -> Any:
    if kind is Any:
        return value
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if dataclasses.is_dataclass(kind):
        hints, known = typing.get_type_hints(kind), {f.name for f in dataclasses.fields(kind)}
        found = _expect(dict, value).items()
        return kind(**{name: _field(name, hints[name], item) for name, item in found if name in known})  # pyright: ignore
    if origin is list:
        return [_field(str(place), inner[0], item) for place, item in enumerate(_expect(list, value))]
    if origin is dict:
        return {key: _field(key, inner[1], item) for key, item in _expect(dict, value).items()}
    if origin in (typing.Union, types.UnionType):
        if value is None and type(None) in inner:
            return None
        return _build(next(a for a in inner if a is not type(None)), value)
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    if kind is int and isinstance(value, float) and value.is_integer():
        value = int(value)
    if kind is float and isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"expected a finite number, got {value}")
    return _expect(kind, value)


def _expect(kind: type[R], value: Any) -> R:
    if not isinstance(value, kind) or (kind is not bool and isinstance(value, bool)):
        raise TypeError(f"expected {kind.__name__}, got {value!r:.60}")
    return value


def _field(name: str, kind: Any, value: Any) -> Any:
    """Builds one field; its error begins with the field's name."""
    try:
        return _build(kind, value)
    except (ValueError, TypeError, OverflowError) as error:
        raise ValueError(f"{name}: {error}") from error
