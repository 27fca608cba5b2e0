"""Models that are trained once for all tests of this room, on rows of the sample."""

from dataclasses import dataclass

import keras
import numpy as np
import pytest

from fourfold.model import weights
from fourfold.prepare import source

layers = keras.layers


@dataclass(frozen=True)
class Digits:
    """Images from 0 to 1 and their class numbers."""

    x: np.ndarray
    y: np.ndarray
    test_x: np.ndarray
    test_y: np.ndarray


@dataclass(frozen=True)
class Solos:
    """Models of one structure that were trained apart, each on rows of its own."""

    model: keras.Model
    values: list[dict[str, np.ndarray]]
    xs: list[np.ndarray]
    ys: list[np.ndarray]


@pytest.fixture(scope="session")
def digits() -> Digits:
    read = source.read("sample")
    x, test_x = ((each / 255).astype(np.float32) for each in (read.train_x, read.test_x[:1000]))
    return Digits(x, read.train_y, test_x, read.test_y[:1000])


@pytest.fixture(scope="session")
def cnn_solo(digits: Digits) -> Solos:
    """One small convolutional network, on 2,000 rows."""
    keras.utils.set_random_seed(0)
    model = keras.Sequential(
        [
            keras.Input((28, 28, 1)),
            layers.Conv2D(8, 3, strides=2, padding="same", activation="relu"),
            layers.Conv2D(16, 3, strides=2, padding="same", activation="relu"),
            layers.Flatten(),
            layers.Dense(32, activation="relu"),
            layers.Dense(10),
        ]
    )
    x, y = digits.x[:2000], digits.y[:2000]
    return Solos(model, [_fitted(model, x, y, epochs=8)], [x], [y])


@pytest.fixture(scope="session")
def mlp_solos(digits: Digits) -> Solos:
    """Two networks with BatchNorm, begun apart, each on 3,000 rows of its own."""
    made, xs, ys = [], [], []
    for index in range(2):
        keras.utils.set_random_seed(index)
        hidden = []
        for _ in range(3):
            hidden += [layers.Dense(128), layers.BatchNormalization(momentum=0.9), layers.ReLU()]
        model = keras.Sequential([keras.Input((28, 28, 1)), layers.Flatten(), *hidden, layers.Dense(10)])
        mine = slice(3000 * index, 3000 * (index + 1))
        xs.append(digits.x[mine])
        ys.append(digits.y[mine])
        made.append(_fitted(model, xs[-1], ys[-1], epochs=4))
    return Solos(model, made, xs, ys)  # pyright: ignore[reportPossiblyUnbound]


def _fitted(model: keras.Model, x: np.ndarray, y: np.ndarray, epochs: int) -> dict[str, np.ndarray]:
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(2e-3), loss)
    model.fit(x, y, epochs=epochs, batch_size=64, verbose=0)  # pyright: ignore[reportArgumentType]
    return weights.arrays(model)
