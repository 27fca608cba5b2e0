"""The worked numbers of the source, by the worker's own step and the stages that it trains.

A worker's gradients and its peer's are given here by hand; what is tested is all that comes after them: the
sum, the division by the rows of the step, the update.
"""

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from fourfold.model import network, stages
from fourfold.worker import parts
from fourfold.worker.steps import Group, Steps


class Given:
    """Gradients whose mean over this worker's rows is a given number."""

    def __init__(self, mean):
        self.mean = mean

    def summed(self, x, y):
        rows = tf.cast(tf.size(y), tf.float32)
        return [tf.reshape(self.mean * rows, (1, 1))], 1.0 * rows


def one_weight(start=0.5):
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1, use_bias=False)])
    model.layers[0].set_weights([np.array([[start]], np.float32)])
    return model


def step(mean, peer_mean, rows, peer_rows):
    """One step of a worker at weight 0.5 and rate 0.01; the peer's sums are added as the exchange would."""
    model = one_weight()
    built = parts.whole(model, network.optimizer("sgd", 0.01))
    peer = [peer_mean * peer_rows, 1.0 * peer_rows, 0.0]
    steps = Steps(tf.distribute.get_strategy(), built, (1,), Group(reduce=lambda flat: flat + peer))
    steps._gradients = Given(mean)
    x, y = np.zeros((rows, 1), np.float32), np.zeros(rows, np.int32)
    taken = steps.run(x, y, np.array([0, rows]), np.array([rows + peer_rows]), 0.0)
    return float(model.get_weights()[0][0, 0]), float(taken.losses[0])


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


def test_two_copies_of_a_hybrid_move_by_the_mean_of_their_gradients():
    first, _ = step(0.050, 0.030, 100, 100)
    second, _ = step(0.030, 0.050, 100, 100)
    assert first == second == pytest.approx(0.5 - 0.0004, abs=1e-7)


def test_the_hand_off_of_the_network_is_64_rows_of_784_features_and_its_outputs_64_of_10():
    model = network.build((28, 28, 1), 10, 0)
    cut = stages.choose(model, 2)
    assert cut == ("flatten",)
    assert stages.handoffs(model, cut) == [(784,)]
    first, second = stages.cut(model, cut)
    features = first(np.zeros((64, 28, 28, 1), np.float32))
    assert features.shape == (64, 784)
    assert second(features).shape == (64, 10)


def test_one_tape_over_two_stages_gives_the_products_of_the_chain_and_two_tapes_do_not():
    """F = a x, y = c f, L = (y - t)^2 / 2: dL/dc = (y - t) f, dL/da = (y - t) c x."""
    a, c, x, target = 0.7, -1.3, 2.0, 0.5
    dense = [keras.layers.Dense(1, use_bias=False, name=name) for name in ("a", "c")]
    model = keras.Sequential([keras.Input((1,)), *dense])
    model.set_weights([np.array([[a]], np.float32), np.array([[c]], np.float32)])
    first, second = stages.cut(model, ("a",))

    def gradients(hand_over):
        with tf.GradientTape() as tape:
            y = second(hand_over(first(np.array([[x]], np.float32))))
            loss = (y - target) ** 2 / 2
        sources = [first.trainable_variables[0].value, second.trainable_variables[0].value]
        found: Any = tape.gradient(loss, sources, unconnected_gradients=tf.UnconnectedGradients.ZERO)
        return [float(gradient[0, 0]) for gradient in found]

    error = c * a * x - target
    assert gradients(lambda f: f) == pytest.approx([error * c * x, error * a * x], rel=1e-6)
    assert gradients(tf.stop_gradient)[0] == 0.0
