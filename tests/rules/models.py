"""Small Keras models of every kind that merging has to treat, their rows, and what rules may use of them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np

from fourfold.model import graph, linear, scoring, symmetry, weights
from fourfold.rules import models as made, statistics
from fourfold.rules.members import Member
from fourfold.rules.sites import Site, Together
from fourfold.rules.state import Ground, Rows, ground_of

layers = keras.layers
WIDEST = 1000
TOKENS = 11


def cnn() -> keras.Model:
    """Convolutions, grouped and depthwise ones, BatchNorm, a residual, a concatenation, LayerNorm, Dense."""
    start = keras.Input((8, 8, 2))
    stem = layers.Conv2D(6, 3, padding="same", strides=2, use_bias=False)(start)
    stem = layers.ReLU()(layers.BatchNormalization()(stem))
    grouped = layers.Conv2D(6, 3, padding="same", groups=2, activation="relu")(stem)
    joined = layers.Add()([stem, grouped])
    deep = layers.DepthwiseConv2D(3, padding="same", depth_multiplier=2)(joined)
    both = layers.Concatenate()([deep, joined])
    narrow = layers.Conv2D(5, 1)(both)
    flat = layers.Flatten()(layers.MaxPooling2D(2)(layers.PReLU(shared_axes=[1, 2])(narrow)))
    hidden = layers.LayerNormalization()(layers.Dense(7, activation="tanh")(flat))
    return keras.Model(start, layers.Dense(4)(layers.Dropout(0.3)(hidden)))


def text() -> keras.Model:
    """Tokens, causal convolutions, a model in the model, and an operation instead of a layer."""
    start = keras.Input((9,), dtype="int32")
    told = layers.Embedding(TOKENS, 6)(start)
    heard = layers.Conv1D(6, 3, padding="causal", dilation_rate=2, activation="relu")(told)
    inner = keras.Sequential([keras.Input((9, 6)), layers.Dense(8, activation="gelu"), layers.Dense(6)])
    joined = told + inner(heard)
    return keras.Model(start, layers.Dense(4)(layers.GlobalAveragePooling1D()(joined)))


def mlp() -> keras.Model:
    """Dense layers with BatchNorm, also one without its slope."""
    return keras.Sequential(
        [
            keras.Input((5,)),
            layers.Dense(8),
            layers.BatchNormalization(),
            layers.ReLU(),
            layers.Dense(6, use_bias=False),
            layers.BatchNormalization(scale=False),
            layers.ReLU(),
            layers.Dense(4),
        ]
    )


def shared() -> keras.Model:
    """One Dense layer, and one model in the model, that are each used twice."""
    start = keras.Input((5,))
    first, second = layers.Dense(6, activation="relu")(start), layers.Dense(6, activation="tanh")(start)
    same = layers.Dense(7, activation="relu")
    inner = keras.Sequential([keras.Input((7,)), layers.Dense(9, activation="relu"), layers.Dense(7)])
    joined = layers.Add()([inner(same(first)), inner(same(second))])
    return keras.Model(start, layers.Dense(4)(joined))


def plain() -> keras.Model:
    """Dense layers and nothing else."""
    hidden = [layers.Dense(7, activation="relu"), layers.Dense(6, activation="tanh")]
    return keras.Sequential([keras.Input((5,)), *hidden, layers.Dense(4)])


KINDS: dict[str, Callable[[], keras.Model]] = {
    "cnn": cnn, "text": text, "mlp": mlp, "shared": shared, "plain": plain,
}  # fmt: skip


def rows(model: keras.Model, seed: int, count: int = 60) -> np.ndarray:
    """Rows that a model takes."""
    generator, shape = np.random.default_rng(seed), model.inputs[0].shape[1:]
    if "int" in model.inputs[0].dtype:
        return generator.integers(0, TOKENS, (count, *shape)).astype(np.int32)
    return generator.normal(size=(count, *shape)).astype(np.float32)


def labels(seed: int, count: int = 60, classes: int = 4) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, classes, count).astype(np.int32)


def drawn(model: keras.Model, seed: int) -> dict[str, np.ndarray]:
    """Weights at random, of every variable; variances are above 0."""
    generator, values = np.random.default_rng(seed), {}
    for name, value in weights.arrays(model).items():
        made = 0.5 * generator.normal(size=value.shape)
        if name.endswith(("gamma", "moving_variance")):
            made = np.abs(made) + 0.5
        values[name] = made.astype(value.dtype)
    return values


def member(model: keras.Model, seed: int, rows: int = 60, site: int = 0, **more: Any) -> Member:
    """A member with weights at random."""
    return with_weights(model, drawn(model, seed), rows, site, **more)


def with_weights(model: keras.Model, values: Any, rows: int = 60, site: int = 0, **more: Any) -> Member:
    weights.assign(model, values)
    return made.of_model(f"model {site}", model, rows, site, **more)


def together(
    model: keras.Model, xs: Sequence[np.ndarray], ys: Sequence[np.ndarray | None] | None = None
) -> Together:
    """Sites with these rows, one after another."""
    maps, _ = linear.maps(model, WIDEST)
    given = ys if ys is not None else [None] * len(xs)
    pairs = enumerate(zip(xs, given, strict=True))
    return Together([Site(index, x, y, model, maps) for index, (x, y) in pairs])


def ground(model: keras.Model, **known: Any) -> Ground:
    return ground_of(model, None, WIDEST, **known)


@dataclass(frozen=True)
class Case:
    """Members with statistics, and all that any rule may need."""

    model: keras.Model
    ground: Ground
    members: list[Member]
    x: np.ndarray


def case(build: Callable[[], keras.Model], equal: bool = False, count: int = 3, **known: Any) -> Case:
    """Members at random, or all equal, each with its site and rows."""
    model = build()
    xs, ys = [rows(model, 100 + site) for site in range(count)], [labels(site) for site in range(count)]
    sites = together(model, xs, ys)
    made = []
    for index, site in enumerate(sites.sites):
        values = drawn(model, 7 if equal else index)
        told = statistics.gather(site, values, seed=index)
        made.append(with_weights(model, values, 60, index, statistics=told))
    more = {
        "sites": sites,
        "calibration": Rows(np.concatenate(xs), np.concatenate(ys)),
        "start": drawn(model, 99),
        **known,
    }
    return Case(model, ground(model, **more), made, np.concatenate(xs))


def logits(model: keras.Model, values: Any, x: np.ndarray) -> np.ndarray:
    """The function of weights, on rows, float64."""
    weights.assign(model, values)
    return scoring.logits(model, x).astype(np.float64)


def moved(model: keras.Model, values: Any, seed: int) -> dict[str, np.ndarray]:
    """The weights with units in another order, at random; the function is the same."""
    read = graph.read(model)
    return read.permuted(values, symmetry.drawn(read, seed))
