"""What tests of the laws share: a training's traces, and a step of plain Keras in float64 to compare with."""

import functools
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from fourfold.cache import dataset
from fourfold.contract import keys, plan as plans
from fourfold.contract.records import Training
from fourfold.model import network, weights
from fourfold.store.formats import arrays_from_bytes
from fourfold.store.objects import open_store

State = dict[str, np.ndarray]

LIMIT = 1e-6
"""How near two ways must be after a step, in units of the largest weight."""
ROUNDING = 2.0**-22
"""Of a gradient, in units of the largest one of its variable: twice the most that was seen in float32."""


def traces(training: Training, step: int) -> list[State]:
    """What each worker wrote of a step."""
    output = open_store(training.output)
    return [
        arrays_from_bytes(output.read(keys.trace(worker, step)), "trace")
        for worker in range(plans.of(training).workers)
    ]


def part(trace: State, when: str) -> State:
    """The state ``before`` or ``after`` a step."""
    return {
        name.removeprefix(f"{when}/"): value for name, value in trace.items() if name.startswith(f"{when}/")
    }


def rows_of_all(found: list[State]) -> np.ndarray:
    """The rows that all workers took together in a step."""
    return np.concatenate([trace["rows"] for trace in found])


@functools.cache
def _plain():
    """The network in float64, and the gradients of its mean loss."""
    keras.config.set_dtype_policy("float64")
    try:
        model = network.build((28, 28, 1), 10, seed=99)
    finally:
        keras.config.set_dtype_policy("float32")

    row, label = tf.TensorSpec([None, 28, 28, 1], tf.float64), tf.TensorSpec([None], tf.int32)

    @tf.function(input_signature=[row, label])
    def gradients(x, y):
        with tf.GradientTape() as tape:
            logits = model(x, training=True)
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(y, logits))
        return tape.gradient(loss, model.trainable_weights)

    return model, gradients


def plain_step(training: Training, before: State, rows: np.ndarray) -> tuple[State, State]:
    """One step of plain Keras in float64.

    Adam's first step is all rounding where a gradient is near Adam's epsilon: there float32 may be as far off
    as the step is with a gradient that is off by its rounding.

    Args:
        training: names the data set and the optimiser.
        before: the model's and the optimiser's variables.
        rows: that are stepped on, in any order.

    Returns:
        The weights after it, and how far off each may be for rounding.
    """
    store = open_store(training.store)
    manifest = dataset.read_manifest(store, training.fingerprint)
    x, y = dataset.read_rows(store, manifest, "train", np.sort(rows))
    model, gradients_of = _plain()
    start = {name[6:]: value for name, value in before.items() if name.startswith("model/")}
    weights.assign(model, start)
    gradients: Any = gradients_of(x.astype(np.float64), y)
    steps = []
    for off in (0.0, -ROUNDING, ROUNDING):
        weights.assign(model, start)
        optimizer = network.optimizer(training.optimizer, training.learning_rate)
        optimizer.build(model.trainable_variables)
        for index, variable in enumerate(optimizer.variables):
            variable.assign(before[f"optimizer/{index:03d}"])
        moved = [gradient + off * tf.reduce_max(tf.abs(gradient)) for gradient in gradients]
        optimizer.apply(moved, model.trainable_weights)
        steps.append(weights.arrays(model))
    exact, *others = steps
    return exact, {
        name: np.max([np.abs(other[name] - value) for other in others], axis=0)
        for name, value in exact.items()
    }


def distance(training: Training, step: int, rows: np.ndarray | None = None) -> float:
    """How far a step is from the plain one on all workers' rows, beyond rounding, in largest weights.

    Args:
        training: that was traced.
        step: counted from 0.
        rows: to step on instead.
    """
    found = traces(training, step)
    before, after = part(found[0], "before"), part(found[0], "after")
    expected, allowed = plain_step(training, before, rows_of_all(found) if rows is None else rows)
    return _apart(after, {f"model/{k}": v for k, v in expected.items()}, allowed)


def distance_between(one: Training, other: Training, step: int) -> float:
    """How far two ways are after a step on the same rows from the same state, measured as ``distance``."""
    first, second = traces(one, step), traces(other, step)
    _, allowed = plain_step(one, part(first[0], "before"), rows_of_all(first))
    twice = {name: 2 * value for name, value in allowed.items()}
    return _apart(part(first[0], "after"), part(second[0], "after"), twice)


def _apart(state: State, expected: State, allowed: State) -> float:
    scale = max(np.abs(expected[f"model/{name}"]).max() for name in allowed)
    return (
        max(
            (np.abs(state[f"model/{name}"] - expected[f"model/{name}"]) - value).max()
            for name, value in allowed.items()
        )
        / scale
    )
