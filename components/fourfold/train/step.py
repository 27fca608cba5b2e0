"""The story of the step: check what is asked, run the workers, check what they wrote, make it whole."""

import math
from collections.abc import Callable

from fourfold.contract import keys, plan as plans
from fourfold.contract.errors import DamagedObjectError, FourfoldError, InvalidInputError
from fourfold.contract.records import Trained, Training, WorkerReport, from_json, to_json
from fourfold.store import cache
from fourfold.store.formats import sha256
from fourfold.store.objects import Store, open_store
from fourfold.train import processes

OPTIMIZERS = ("adam", "sgd", "momentum")
"""What ``model.network.optimizer`` knows; written again since this step needs no TensorFlow, tested equal."""


def train(training: Training, launch: Callable[[Training], None] = processes.run) -> Trained:
    """Trains one scenario.

    Args:
        training: what to train.
        launch: runs the workers to their end.

    Returns:
        What it yielded, as written to the training's output.

    Raises:
        InvalidInputError: an argument is wrong; no worker was started.
        WorkerFailedError: a worker failed.
        DamagedObjectError: what the workers wrote is not whole, or copies that must be equal are not.
    """
    check(training)
    plan = plans.plan(training.scenario, training.workers)
    output = open_store(training.output)
    for key in (keys.TRAINED, *map(keys.worker, range(plan.workers))):
        output.delete(key)
    launch(training)
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
        global_batch=training.batch * len(plan.groups[0]),
        updates_per_epoch=max(updates),
        reports=reports,
    )
    output.write(keys.TRAINED, to_json(trained))
    return trained


def check(training: Training) -> None:
    """Checks a training before anything is started.

    Raises:
        InvalidInputError: an argument is out of its range; the error names it.
    """
    plan = plans.plan(training.scenario, training.workers)
    for name, value in (
        ("epochs", training.epochs),
        ("batch", training.batch),
        ("threads", training.threads),
    ):
        if value < 1:
            raise InvalidInputError(f"{name} must be at least 1, got {value}")
    if not (math.isfinite(training.learning_rate) and training.learning_rate > 0):
        raise InvalidInputError(f"learning-rate must be a number above 0, got {training.learning_rate}")
    if training.optimizer not in OPTIMIZERS:
        raise InvalidInputError(
            f"unknown optimizer {training.optimizer!r}: use one of {', '.join(OPTIMIZERS)}"
        )
    if training.seed < 0:
        raise InvalidInputError(f"seed must be a whole number from 0 on, got {training.seed}")
    store = open_store(training.store)
    cache.read_manifest(store, training.fingerprint)
    if plan.scenario.splits_data:
        split, _ = cache.read_split(store, training.fingerprint, training.split)
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
        if sha256(output.read(name)) != digest:
            raise DamagedObjectError(f"{name} in {output.uri} is not what worker {worker} wrote; train again")
    return report


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
