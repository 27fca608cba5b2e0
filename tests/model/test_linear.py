"""What a layer computes is the map: the least squares of its inputs and outputs give back its weights."""

import re
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest

from fourfold.model import linear, taps, weights
from tests.rules import models

layers = keras.layers
TWO: Any = [1, 2]
LAYERS: dict[str, tuple[tuple[int, ...], Callable[[], keras.Layer]]] = {
    "dense": ((5,), lambda: layers.Dense(4, activation="relu")),
    "dense without bias": ((5,), lambda: layers.Dense(4, use_bias=False)),
    "dense over time": ((3, 5), lambda: layers.Dense(4)),
    "conv1d causal": ((9, 3), lambda: layers.Conv1D(4, 3, padding="causal", dilation_rate=2)),
    "conv1d grouped": ((9, 4), lambda: layers.Conv1D(6, 3, groups=2, strides=2)),
    "conv1d same": ((8, 3), lambda: layers.Conv1D(4, 4, padding="same", use_bias=False)),
    "conv2d valid": ((6, 7, 2), lambda: layers.Conv2D(4, (2, 3), activation="relu")),
    "conv2d same strided": ((7, 8, 2), lambda: layers.Conv2D(4, 3, padding="same", strides=2)),
    "conv2d dilated": ((8, 8, 2), lambda: layers.Conv2D(4, 3, padding="same", dilation_rate=2)),
    "conv2d grouped": ((6, 6, 4), lambda: layers.Conv2D(6, 3, padding="same", groups=2)),
    "depthwise1d": ((9, 3), lambda: layers.DepthwiseConv1D(3, depth_multiplier=2)),
    "depthwise2d": ((6, 6, 3), lambda: layers.DepthwiseConv2D((3, 2), padding="same", depth_multiplier=2)),
    "depthwise2d strided": ((7, 7, 3), lambda: layers.DepthwiseConv2D(3, strides=2, use_bias=False)),
    "batch norm": ((6, 6, 3), lambda: layers.BatchNormalization()),
    "batch norm without slope": ((5,), lambda: layers.BatchNormalization(scale=False)),
    "batch norm without level": ((5,), lambda: layers.BatchNormalization(center=False)),
    "layer norm": ((3, 5), lambda: layers.LayerNormalization()),
    "layer norm without level": ((5,), lambda: layers.LayerNormalization(center=False)),
    "embedding": ((9,), lambda: layers.Embedding(models.TOKENS, 4)),
}
NO_MAPS: dict[str, tuple[tuple[int, ...], Callable[[], keras.Layer], str]] = {
    "lstm": ((5, 3), lambda: layers.LSTM(2), "not a layer that is linear in its weights"),
    "separable": ((6, 6, 3), lambda: layers.SeparableConv2D(4, 3), "not a layer that is linear"),
    "group norm": ((4,), lambda: layers.GroupNormalization(2), "not a layer that is linear"),
    "other axis": ((4, 3), lambda: layers.BatchNormalization(axis=1), "not normalise over the last axis"),
    "layer norm over time": ((4, 3), lambda: layers.LayerNormalization(axis=1), "over the last axis"),
    "two axes": ((4, 3), lambda: layers.LayerNormalization(axis=TWO), "not normalise over the last axis"),
    "channels first": ((3, 6, 6), lambda: layers.Conv2D(4, 3, data_format="channels_first"), "come first"),
    "own": ((4,), lambda: Doubled(4), "a class of its own"),
}


class Doubled(layers.Dense):
    """Looks like a Dense layer, and is none."""

    def call(self, x):
        return super().call(x) * 2  # pyright: ignore[reportOperatorIssue]


def one(name: str) -> tuple[keras.Model, linear.Map, dict[str, np.ndarray], np.ndarray]:
    """A model of one layer, its map, weights at random and rows."""
    shape, build = LAYERS[name]
    start = keras.Input(shape, dtype="int32" if name == "embedding" else "float32")
    model = keras.Model(start, build()(start))
    values = models.drawn(model, 3)
    weights.assign(model, values)
    found, said = linear.maps(model)
    assert not said
    (each,) = found.values()
    return model, each, values, models.rows(model, 5, 40)


def sums_of(model: keras.Model, each: linear.Map, x: np.ndarray) -> dict[str, np.ndarray]:
    """Sums of what goes in times itself, and times what comes out before the activation."""
    found: list[dict[str, np.ndarray]] = []
    taps.watch(model, {each.name: each.layer}, x, lambda _, given, made: found.append(each.sums(given, made)))
    (sums,) = found
    return sums


@pytest.mark.parametrize("name", LAYERS)
def test_what_a_layer_computes_is_its_map(name):
    model, each, values, x = one(name)

    sums = sums_of(model, each, x)

    expected = sums["gram"] @ each.matrix(values)
    assert sums["cross"].shape == expected.shape
    np.testing.assert_allclose(sums["cross"], expected, rtol=1e-3, atol=1e-3 * np.abs(expected).max())


@pytest.mark.parametrize("name", LAYERS)
def test_another_layers_weights_are_not_its_map(name):
    """So the test above can fail."""
    model, each, _, x = one(name)
    other = models.drawn(model, 4)

    sums = sums_of(model, each, x)

    wrong = sums["gram"] @ each.matrix(other)
    assert np.abs(sums["cross"] - wrong).max() > 0.05 * np.abs(wrong).max()


@pytest.mark.parametrize("name", LAYERS)
def test_least_squares_give_back_the_weights(name):
    model, each, values, x = one(name)
    sums = sums_of(model, each, x)

    found = each.arrays(np.linalg.solve(sums["gram"], sums["cross"]), values)

    for key, value in found.items():
        np.testing.assert_allclose(value, values[key], rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("name", LAYERS)
def test_a_matrix_turns_back_into_the_weights_that_it_was_made_of(name):
    _, each, values, _ = one(name)

    back = each.arrays(each.matrix(values), values)

    assert set(back) == set(values)
    for key, value in back.items():
        assert value.dtype == values[key].dtype
        assert value.shape == values[key].shape
        np.testing.assert_allclose(value, values[key], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", LAYERS)
def test_a_map_has_as_many_inputs_as_its_gram_has_rows(name):
    model, each, values, x = one(name)

    gram = sums_of(model, each, x)["gram"]

    assert gram.dtype == np.float64
    assert each.inputs == gram.shape[1] == gram.shape[2] == each.matrix(values).shape[1]
    np.testing.assert_array_equal(gram, np.swapaxes(gram, 1, 2))


@pytest.mark.parametrize("name", LAYERS)
def test_sums_over_pieces_of_rows_add_up(name):
    model, each, _, x = one(name)

    whole = sums_of(model, each, x)
    pieces = [sums_of(model, each, part) for part in np.array_split(x, 3)]

    for key, value in whole.items():
        added = np.sum([piece[key] for piece in pieces], axis=0)
        np.testing.assert_allclose(added, value, rtol=1e-4, atol=1e-4 * np.abs(value).max())


@pytest.mark.parametrize("name", ["batch norm", "batch norm without slope", "batch norm without level"])
def test_a_normalisation_that_takes_its_moments_from_a_gram_computes_what_its_matrix_says(name):
    """Where it has a slope and a level of its own; else its output has the level that the matrix says."""
    model, each, values, x = one(name)
    gram, matrix = sums_of(model, each, x)["gram"], each.matrix(values)

    made = {**values, **each.arrays(matrix, values, gram)}

    flat = x.reshape(-1, x.shape[-1]).astype(np.float64)
    np.testing.assert_allclose(made[f"{each.name}/moving_mean"], flat.mean(axis=0), atol=1e-5)
    np.testing.assert_allclose(made[f"{each.name}/moving_variance"], flat.var(axis=0), rtol=1e-4)
    if name == "batch norm":
        np.testing.assert_allclose(each.matrix(made), matrix, rtol=1e-4, atol=1e-5)


def test_moments_are_those_of_the_rows():
    x = np.random.default_rng(0).normal(3, 2, (500, 4))
    h = np.stack([x, np.ones_like(x)], axis=2)

    mean, variance = linear.moments(np.einsum("nbd,nbe->bde", h, h))

    np.testing.assert_allclose(mean, x.mean(axis=0))
    np.testing.assert_allclose(variance, x.var(axis=0))


def test_moments_are_right_where_the_mean_is_far_from_0():
    """Sums of squares in float32 would lose the variance: 1 of a million."""
    model, each, _, x = one("batch norm")
    far = (1000 + x).astype(np.float32)

    mean, variance = linear.moments(sums_of(model, each, far)["gram"])

    flat = far.reshape(-1, far.shape[-1]).astype(np.float64)
    np.testing.assert_allclose(mean, flat.mean(axis=0), rtol=1e-6)
    np.testing.assert_allclose(variance, flat.var(axis=0), rtol=1e-3)


def test_no_rows_have_moments_of_0():
    mean, variance = linear.moments(np.zeros((3, 2, 2)))

    assert mean.tolist() == variance.tolist() == [0, 0, 0]


@pytest.mark.parametrize("kind", models.KINDS)
def test_all_layers_of_a_model_with_weights_are_maps_or_said(kind):
    model = models.KINDS[kind]()

    found, said = linear.maps(model)

    assert len(found) + len(said) == len(weights.named_layers(model))
    assert [sentence.rpartition(": ")[0].rpartition(" ")[2] for sentence in said] == (
        ["(PReLU)"] if kind == "cnn" else []
    )


@pytest.mark.parametrize("name", NO_MAPS)
def test_a_layer_that_is_no_map_is_said_by_name(name):
    shape, build, why = NO_MAPS[name]
    layer = build()
    start = keras.Input(shape)
    model = keras.Model(start, layer(start))

    found, said = linear.maps(model)

    assert not found
    (sentence,) = said
    assert re.match(r"\w+ \(\w+\): ", sentence)
    assert sentence.startswith(re.sub(r"_\d+$", "", layer.name))
    assert why in sentence


def test_a_map_that_is_too_wide_is_said_with_its_width():
    """With the 1 of its bias: the layers of this model have 6, 8 and 7 inputs."""
    found, said = linear.maps(models.plain(), widest=7)

    assert list(found) == ["0:Dense", "2:Dense"]
    assert len(said) == 1
    assert "(Dense): it has 8 inputs, more than 7" in said[0]
