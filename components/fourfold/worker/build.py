"""Builds what a worker trains, as its plan says: a whole model, or stages on devices of their own."""

import tensorflow as tf

from fourfold.contract import plan as plans, starts
from fourfold.contract.errors import InvalidInputError
from fourfold.contract.records import INITIAL, Training
from fourfold.model import network, scoring, stages as cutting
from fourfold.model.pinned import keras
from fourfold.store.objects import open_store
from fourfold.worker import parts

APART = 1_000_003
"""Between the seeds of two models that start apart; so far that no other training's seed is met."""


def build(
    training: Training,
    plan: plans.Plan,
    worker: int,
    strategy: tf.distribute.Strategy,
    devices: list[str],
    shape: tuple[int, ...],
    classes: int,
) -> parts.Parts:
    """Builds a worker's copy of its model.

    Args:
        training: what is trained.
        plan: of the training.
        worker: its index.
        strategy: in whose scope a whole model is built; stages lie outside of it.
        devices: one a stage.
        shape: of one row.
        classes: number of classes.

    Raises:
        InvalidInputError: the model cannot be cut as asked.
    """
    if not plan.scenario.splits_model:
        with strategy.scope():
            return parts.whole(_model(training, plan, worker, shape, classes), _optimizer(training))
    with tf.device("CPU:0"):
        model = _model(training, plan, worker, shape, classes)
        measured = training.balance == "cost" and plan.stages > 1 and not training.cut
        costs = cutting.measure_costs(model, training.batch) if measured else None
        cut = cutting.choose(model, plan.stages, training.cut, costs)
    return parts.staged(model, lambda: _optimizer(training), cut, devices)


def _optimizer(training: Training) -> keras.optimizers.Optimizer:
    return network.optimizer(training.optimizer, training.learning_rate)


def _model(
    training: Training, plan: plans.Plan, worker: int, shape: tuple[int, ...], classes: int
) -> keras.Model:
    if not plan.scenario.starts_apart:
        if training.initial not in INITIAL:
            return _warm(training.initial, shape, classes)
        apart = plan.scenario.model == "separate" and training.initial == "independent"
        return network.build(shape, classes, training.seed + (APART * plan.model_of(worker) if apart else 0))
    start = starts.of(training.starts, plan.model_of(worker), training.seed)
    return network.build(shape, classes, start.seed, starts.FAMILIES[start.family])


def _warm(uri: str, shape: tuple[int, ...], classes: int) -> keras.Model:
    """The model that all start from.

    Raises:
        MissingObjectError: it is not there.
        InvalidInputError: it does not take these rows, or has other classes.
    """
    folder, _, name = uri.rpartition("/")
    model = scoring.from_bytes(open_store(folder).read(name), uri)
    takes, gives = tuple(model.input_shape[1:]), model.output_shape[-1]
    if takes != shape or gives != classes:
        raise InvalidInputError(
            f"initial {uri} takes rows of shape {takes} and tells {gives} classes apart; the data has "
            f"{shape} and {classes}"
        )
    return model
