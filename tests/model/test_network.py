"""The default network is the source's: two convolutions, 28 -> 14 -> 7, 784 features, 10 logits."""

import math

import keras
import numpy as np
import pytest

from fourfold.contract.errors import InvalidInputError
from fourfold.model import measures, network, scoring, weights
from fourfold.prepare import source
from fourfold.train import step as train_step

SHAPE, CLASSES = (28, 28, 1), 10


@pytest.fixture(scope="module")
def model() -> keras.Model:
    return network.build(SHAPE, CLASSES, seed=0)


@pytest.fixture(scope="module")
def rows() -> tuple[np.ndarray, np.ndarray]:
    """Real rows, x float32 [500, 28, 28, 1] in 0..1 and y int32 [500]."""
    sample = source.read("sample")
    return sample.train_x[:500].astype(np.float32) / 255, sample.train_y[:500]


def digest(model: keras.Model) -> str:
    return weights.digest(weights.arrays(model))


def test_it_has_9098_weights(model):
    assert model.count_params() == 9098
    assert sum(value.size for value in weights.arrays(model).values()) == 9098


def test_it_halves_twice_and_flattens_16_channels_last_to_784(model):
    shapes = [tuple(layer.output.shape[1:]) for layer in model.layers]

    assert shapes == [(28, 28, 8), (14, 14, 8), (14, 14, 16), (7, 7, 16), (784,), (10,)]
    assert tuple(model.input_shape[1:]) == SHAPE


def test_it_gives_logits_not_probabilities(model, rows):
    logits = scoring.logits(model, rows[0])

    assert logits.shape == (500, 10)
    assert logits.min() < 0
    assert not np.allclose(logits.sum(axis=1), 1)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_its_first_loss_is_that_of_a_guess(rows, seed):
    x, y = rows

    loss = measures.cross_entropy(scoring.logits(network.build(SHAPE, CLASSES, seed), x), y)

    assert loss == pytest.approx(math.log(10), abs=0.15)


def test_the_same_seed_gives_the_same_weights_and_another_seed_others(model):
    assert digest(network.build(SHAPE, CLASSES, seed=0)) == digest(model)
    assert digest(network.build(SHAPE, CLASSES, seed=1)) != digest(model)


def test_another_shape_and_other_classes_fit(rows):
    odd = network.build((9, 11, 3), 4, seed=0)

    assert scoring.logits(odd, np.zeros((2, 9, 11, 3), np.float32)).shape == (2, 4)


@pytest.mark.parametrize(
    ("name", "kind", "momentum"),
    [("adam", keras.optimizers.Adam, None), ("sgd", keras.optimizers.SGD, 0.0),
     ("momentum", keras.optimizers.SGD, 0.9)],
)  # fmt: skip
def test_optimizers_by_name(name, kind, momentum):
    made = network.optimizer(name, 0.02)

    assert type(made) is kind
    assert float(made.learning_rate) == pytest.approx(0.02)
    if momentum is not None:
        assert made.momentum == momentum


def test_plain_sgd_takes_the_step_of_the_source():
    """W = 0.500, G = 0.040, eta = 0.01 gives 0.4996."""
    weight = keras.Variable([0.5])
    optimizer = network.optimizer("sgd", 0.01)

    optimizer.apply([keras.ops.convert_to_tensor([0.04])], [weight])

    assert float(weight.numpy()[0]) == pytest.approx(0.4996, abs=1e-7)


def test_an_unknown_optimizer_is_refused_with_those_that_there_are():
    with pytest.raises(InvalidInputError, match=r"'lion'.*adam, sgd, momentum"):
        network.optimizer("lion", 0.1)


def test_every_optimizer_that_the_train_step_lets_through_can_be_built():
    assert train_step.OPTIMIZERS == network.OPTIMIZERS
    for name in network.OPTIMIZERS:
        network.optimizer(name, 0.1)
