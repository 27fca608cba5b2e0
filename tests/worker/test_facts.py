"""The worked numbers of data-parallel training, by the worker's own step.

A worker's gradients and its peer's are given here by hand; what is tested is all that comes after them: the
sum, the division by the rows of the step, the update.
"""

import keras
import numpy as np
import pytest
import tensorflow as tf

from fourfold.model import network
from fourfold.worker.steps import Steps


class Given(Steps):
    """A step whose gradient, mean over this worker's rows, is a given number."""

    mean: float

    def _summed_over_rows(self, x, y):
        rows = tf.cast(tf.size(y), tf.float32)
        return tf.stack([self.mean * rows, 1.0 * rows])


def one_weight(start=0.5):
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1, use_bias=False)])
    model.layers[0].set_weights([np.array([[start]], np.float32)])
    return model


def step(mean, peer_mean, rows, peer_rows):
    """One step of a worker at weight 0.5 and rate 0.01; the peer's sums are added as the exchange would."""
    model, optimizer = one_weight(), network.optimizer("sgd", 0.01)
    optimizer.build(model.trainable_variables)
    peer = [peer_mean * peer_rows, 1.0 * peer_rows, 0.0]
    steps = Given(tf.distribute.get_strategy(), model, optimizer, (1,), 1, reduce=lambda flat: flat + peer)
    steps.mean = mean
    x, y = np.zeros((rows, 1), np.float32), np.zeros(rows, np.int32)
    losses, _ = steps.run(x, y, np.array([0, rows]), np.array([rows + peer_rows]), 0.0)
    return float(model.get_weights()[0][0, 0]), float(losses[0])


def test_one_model_goes_against_its_gradient():
    assert step(0.04, 0.0, 100, 0)[0] == pytest.approx(0.4996, abs=1e-7)


def test_both_copies_take_the_mean_of_two_gradients():
    first, loss = step(0.06, 0.02, 100, 100)
    second, _ = step(0.02, 0.06, 100, 100)
    assert first == second == pytest.approx(0.4996, abs=1e-7)
    assert loss == 200


def test_the_mean_leans_to_the_larger_shard():
    expected = 0.5 - 0.01 * (160 / 200 * 0.06 + 40 / 200 * 0.02)
    assert step(0.06, 0.02, 160, 40)[0] == pytest.approx(expected, abs=1e-7)
    assert step(0.02, 0.06, 40, 160)[0] == pytest.approx(expected, abs=1e-7)


def test_an_optimizer_outside_the_step_agrees():
    model, optimizer = one_weight(), network.optimizer("sgd", 0.01)
    optimizer.apply([np.array([[0.04]], np.float32)], model.trainable_variables)
    assert float(model.get_weights()[0][0, 0]) == pytest.approx(0.4996, abs=1e-7)
