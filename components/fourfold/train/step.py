"""The story of the step: check what is asked, run the workers, check what they wrote, make it whole."""

import math
from collections.abc import Callable

from fourfold.cache import dataset, splits
from fourfold.contract import caching, keys, plan as plans, starts
from fourfold.contract.errors import DamagedObjectError, FourfoldError, InvalidInputError
from fourfold.contract.records import INITIAL, Trained, Training, WorkerReport
from fourfold.contract.strict import from_json, to_json
from fourfold.store.formats import sha256
from fourfold.store.objects import Store, open_store
from fourfold.train import processes

OPTIMIZERS = ("adam", "sgd", "momentum")
"""What ``model.network.optimizer`` knows; written again since this step needs no TensorFlow, tested equal."""


Launch = Callable[[Training, Callable[[], None]], None]
"""Runs the workers of a training to their end; calls its second argument before it starts new ones."""


def train(training: Training, launch: Launch = processes.run) -> Trained:
    """Trains one scenario.

    Args:
        training: what to train.
        launch: as processes here (``processes.run``) or as pods of a cluster (``launch.run``).

    Returns:
        What it yielded, as written to the training's output.

    Raises:
        InvalidInputError: an argument is wrong; no worker was started.
        WorkerFailedError: a worker failed.
        DamagedObjectError: what the workers wrote is not whole, or copies that must be equal are not.
    """
    check(training)
    plan = plans.of(training)
    output = open_store(training.output)

    def clean() -> None:
        for key in (keys.TRAINED, *map(keys.worker, range(plan.workers))):
            output.delete(key)

    launch(training, clean)
    reports = [_report(output, worker) for worker in range(plan.workers)]
    _copies_are_equal(plan, reports)
    sizes = [report.rows for report in reports]
    updates = [
        len(plans.steps(tuple(sizes[w] for w in group), training.batch)[0]) - 1 for group in plan.groups
    ]
    trained = Trained(
        training=training,
        workers=plan.workers,
        stages=plan.stages,
        members=plan.members,
        global_batch=training.batch * (1 if plan.scenario.in_rounds else len(plan.groups[0])),
        updates_per_epoch=max(updates),
        reports=reports,
        processes=plan.processes,
    )
    output.write(keys.TRAINED, to_json(trained))
    for key in output.list(keys.CHECKPOINTS):
        output.delete(key)
    return trained


def copy(trained: Trained, source: Store, target: Store) -> None:
    """Copies what a training yielded, its record last.

    Raises:
        DamagedObjectError: an object is not what its worker wrote.
    """
    for report in trained.reports:
        for key, digest in report.objects.items():
            target.write(key, _read(source, key, digest, report.worker))
        target.write(keys.worker(report.worker), to_json(report))
    target.write(keys.TRAINED, to_json(trained))


def check(training: Training) -> None:
    """Checks a training before anything is started.

    Raises:
        InvalidInputError: an argument is out of its range; the error names it.
    """
    plan = plans.of(training)
    caching.check(training.caching)
    for name, value, least in (
        ("epochs", training.epochs, 1),
        ("batch", training.batch, 1),
        ("threads", training.threads, 1),
        ("micro-batches", training.micro_batches, 1),
        ("local-steps", training.local_steps, 0),
    ):
        if value < least:
            raise InvalidInputError(f"{name} must be at least {least}, got {value}")
    if not (math.isfinite(training.learning_rate) and training.learning_rate > 0):
        raise InvalidInputError(f"learning-rate must be a number above 0, got {training.learning_rate}")
    if training.optimizer not in OPTIMIZERS:
        raise InvalidInputError(
            f"unknown optimizer {training.optimizer!r}: use one of {', '.join(OPTIMIZERS)}"
        )
    if training.seed < 0:
        raise InvalidInputError(f"seed must be a whole number from 0 on, got {training.seed}")
    for name, value, below in (
        ("server-momentum", training.server_momentum, 1.0),
        ("proximal", training.proximal, math.inf),
    ):
        if not 0 <= value < below:
            raise InvalidInputError(f"{name} must be from 0 to below {below:g}, got {value}")
    if training.balance not in plans.BALANCES:
        raise InvalidInputError(
            f"unknown balance {training.balance!r}: use one of {', '.join(plans.BALANCES)}"
        )
    if training.initial not in INITIAL and not training.initial.endswith(".keras"):
        raise InvalidInputError(
            f"unknown initial {training.initial!r}: use one of {', '.join(INITIAL)}, or the URI of a .keras "
            "file"
        )
    if plan.scenario.splits_model and training.micro_batches > training.batch:
        raise InvalidInputError(
            f"micro-batches must not be more than batch, {training.batch} rows; got {training.micro_batches}"
        )
    if plan.scenario.starts_apart:
        for member in range(plan.members):
            starts.of(training.starts, member, training.seed)
    store = open_store(training.store)
    dataset.read_manifest(store, training.fingerprint)
    if plan.scenario.splits_data:
        split, _ = splits.read_split(store, training.fingerprint, training.split)
        if len(split.sizes) != plan.workers:
            raise InvalidInputError(
                f"the split has {len(split.sizes)} shards, the training {plan.workers} workers: "
                "prepare with as many"
            )


def _report(output: Store, worker: int) -> WorkerReport:
    """What a worker wrote, with each object that it names checked."""
    key = keys.worker(worker)
    report = from_json(WorkerReport, output.read(key), key)
    for name, digest in report.objects.items():
        _read(output, name, digest, worker)
    return report


def _read(output: Store, key: str, digest: str, worker: int) -> bytes:
    data = output.read(key)
    if sha256(data) != digest:
        raise DamagedObjectError(f"{key} in {output.uri} is not what worker {worker} wrote; train again")
    return data


def _copies_are_equal(plan: plans.Plan, reports: list[WorkerReport]) -> None:
    for group in plan.groups:
        first = reports[group[0]]
        for other in (reports[worker] for worker in group[1:]):
            for epoch, (a, b) in enumerate(zip(first.digests, other.digests, strict=True)):
                if a != b:
                    raise FourfoldError(
                        f"{plan.scenario.name}: the copies of worker {first.worker} and worker "
                        f"{other.worker} differ "
                        f"after epoch {epoch + 1} ({a[:12]} and {b[:12]}); please report this"
                    )
