"""The records that cross from one step to the next.

A record is written by one step and read by others, perhaps of another version: fields are only ever added,
with a default. ``contract.strict`` writes and reads them.
"""

from dataclasses import dataclass, field

from fourfold.contract.caching import Caching
from fourfold.contract.merges import MergedAtSites, Merging

INITIAL = ("shared", "independent")
"""Where models start, besides a model in a store."""
STARTS = ("uniform", "he_uniform", "glorot_uniform")
"""Initialisers of the members of an ensemble, in turn, where none are named."""


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
        members: separate models that all see the same rows, K; read by scenarios that have such.
        member_workers: processes that those members are dealt to; 0 for one a member.
        starts: of those members, in turn: an initialiser, perhaps with a seed, such as ``he_uniform:7``.
        stages: parts of a model that is cut, S.
        micro_batches: parts of a batch that the stages work on one after the other, M.
        cut: names of the layers after which the model is cut; empty for a balanced choice.
        balance: what a balanced choice balances: ``parameters`` or ``cost``.
        placement: of the stages: ``devices`` of a worker, or ``pods``.
        local_steps: of each round of a scenario that merges after rounds, H; 0 for one local epoch.
        server_momentum: of the merged weights over rounds, 0 to below 1; 0 for none (FedAvg).
        proximal: how strongly local steps are held to the round's start, mu; 0 for none (FedAvg).
        debug: one worker on one device, outside any strategy, step by step in Python.
        initial: where models start: ``shared``, all with the same drawn weights; ``independent``, models that
            are trained apart on shards each with its own; or the URI of a ``.keras`` file in a store, a warm
            start for all but members of an ensemble.
        merging: models that the workers merge, each beside its own rows; None where they train.
        caching: how its rows are kept and read.
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
    members: int = 3
    member_workers: int = 0
    starts: list[str] = field(default_factory=lambda: list(STARTS))
    stages: int = 2
    micro_batches: int = 4
    cut: list[str] = field(default_factory=list)
    balance: str = "parameters"
    placement: str = "devices"
    local_steps: int = 0
    server_momentum: float = 0.0
    proximal: float = 0.0
    debug: bool = False
    initial: str = "shared"
    merging: Merging | None = None
    caching: Caching = field(default_factory=Caching)


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
class Round:
    """One round of steps that each worker takes by itself, ended by a merge of their weights.

    Attributes:
        steps: local steps of each worker.
        rows: of all workers together.
        loss: mean over those rows of the local losses, nats; None where there were no rows.
        distance: Euclidean, of the workers' weights to the merge; mean over workers, weighted by rows.
    """

    steps: int
    rows: int
    loss: float | None
    distance: float


@dataclass(frozen=True)
class Busy:
    """A span in which a stage computed.

    Attributes:
        stage: its index.
        begin: seconds since the step began.
        end: likewise.
    """

    stage: int
    begin: float
    end: float


@dataclass(frozen=True)
class Input:
    """What one worker read in one epoch.

    Attributes:
        waited: seconds that its steps waited for rows.
        memory: rows that lay in memory.
        disk: rows that were read from disk: from the disk tier, or from a store that is a folder.
        store: rows that were read from the store, over the network.
        fetched: bytes that were read from the store for these rows.
    """

    waited: float
    memory: int
    disk: int
    store: int
    fetched: int


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
        stage_processes: the processes that hold its other stages, where those are not its own.
        cut: names of the layers after which its model was cut.
        rounds: of merging weights, in their order; empty where they are not merged in rounds.
        probed: steps after which features of fixed rows were taken; where they were, the object is listed.
        distance: largest Euclidean distance of its weights to worker 0's after any step, once worker 0's had
            been copied back; None where nothing is copied back.
        drift: likewise, before they were copied back.
        bytes_per_step: sent by this worker in a step, for merging and between its stages; a mean, counted.
        merge_share: share of a step's time that merging takes, measured, 0 to 1; None where it was not.
        peak_memory: largest resident memory of its process, bytes.
        busy: spans in which its stages worked during one step; empty where they were not measured.
        training: digest of what was trained, see ``worker.checkpoint.identity``.
        resumed: epochs that were taken from checkpoints, counted from 1: the last of them for each restart.
        inputs: what it read in each epoch.
        window: cached batches that lay in memory at a time to deal rows among; 0 where all rows did.
        merges: of models at the sites, where that was asked for; ``digests`` are then those of the results.
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
    stage_processes: list[str] = field(default_factory=list)
    cut: list[str] = field(default_factory=list)
    rounds: list[Round] = field(default_factory=list)
    probed: list[int] = field(default_factory=list)
    distance: float | None = None
    drift: float | None = None
    bytes_per_step: float = 0.0
    merge_share: float | None = None
    peak_memory: int = 0
    busy: list[Busy] = field(default_factory=list)
    resumed: list[int] = field(default_factory=list)
    training: str = ""
    inputs: list[Input] = field(default_factory=list)
    window: int = 0
    merges: list[MergedAtSites] = field(default_factory=list)


@dataclass(frozen=True)
class Trained:
    """What a training yielded. Written last: a training without one did not end well.

    Attributes:
        training: what was asked for.
        workers: that trained, each a model or its copy of one.
        stages: parts of the model.
        members: separate models.
        global_batch: rows of one update of one model.
        updates_per_epoch: of one model; of the model with the most where they differ.
        reports: one a worker.
        processes: that the workers were dealt to, or that held a stage each; 0 where as many as workers.
    """

    training: Training
    workers: int
    stages: int
    members: int
    global_batch: int
    updates_per_epoch: int
    reports: list[WorkerReport]
    processes: int = 0

    @property
    def models(self) -> int:
        """How many models there are."""
        return 1 + max(report.model for report in self.reports)

    @property
    def pods(self) -> int:
        """How many processes, or pods, there were."""
        return self.processes or self.workers

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
class Distances:
    """How far apart the models of a scenario are, along training.

    Attributes:
        steps: after which it was measured; 0 is the start.
        pairs: of models, by index.
        values: for each step and each pair the Euclidean distance between the models' flattened features of
            the same fixed rows, a mean over those rows.
        rows: how many rows.
    """

    steps: list[int]
    pairs: list[list[int]]
    values: list[list[float]]
    rows: int


@dataclass(frozen=True)
class Evaluation:
    """One scenario on the test rows.

    Attributes:
        trained: what was evaluated.
        accuracy: of the scenario: of its model, of the vote of its models where they vote, else their mean.
        loss: likewise; None where it is not finite.
        models: each model.
        vote: the soft vote of several models (mean of probabilities), None for one model.
        confusion: rows by true class (row) and predicted class (column), of all models together, or of their
            vote where they vote; so the curve below.
        class_names: by class number.
        test_rows: how many.
        roc: the receiver operating characteristic over all classes, one against the rest, of all models
            together: false positive rate, true positive rate, threshold of each point.
        auc: the area under it, before points were left out; None where no score is finite.
        distances: between the models, where features were taken along training.
        said: what a user should know, in sentences.
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
    distances: Distances | None = None
    said: list[str] = field(default_factory=list)

    @property
    def told(self) -> list[str]:
        """What a user should know, of the evaluation and of all workers, each sentence once."""
        return sorted({*self.said, *(said for report in self.trained.reports for said in report.said)})
