"""Weights by place and role: the same in every process, whatever Keras calls a layer (W7)."""

import keras
import numpy as np
import pytest
from hypothesis import given, strategies as st

from fourfold.contract.errors import InvalidInputError
from fourfold.model import network, scoring, weights

layers = keras.layers


def default() -> keras.Model:
    return network.build((28, 28, 1), 10, seed=0)


def residual() -> keras.Model:
    """A functional model with BatchNorm, a residual Add and Dropout."""
    start = keras.Input((8, 8, 1))
    stem = layers.Conv2D(4, 3, padding="same")(start)
    branch = layers.Conv2D(4, 3, padding="same")(layers.BatchNormalization()(stem))
    joined = layers.Dropout(0.5)(layers.Add()([stem, branch]))
    return keras.Model(start, layers.Dense(3)(layers.Flatten()(joined)))


def nested() -> keras.Model:
    """A model in a model, used twice, with a layer between; all Dense layers have one shape."""
    inner = keras.Sequential([keras.Input((4,)), layers.Dense(4), layers.Dropout(0.3), layers.Dense(4)])
    start = keras.Input((4,))
    return keras.Model(start, inner(layers.Dense(4)(inner(start))))


def recurrent() -> keras.Model:
    return keras.Sequential([keras.Input((5, 2)), layers.Bidirectional(layers.LSTM(3)), layers.Dense(2)])


def attention() -> keras.Model:
    start = keras.Input((5, 4))
    return keras.Model(start, layers.MultiHeadAttention(2, 2)(start, start))


class TwoUnnamed(layers.Layer):
    """Gives its variables no names, so that Keras counts them up in the process."""

    def build(self, shape):
        self.a = self.add_weight(shape=(2,))
        self.b = self.add_weight(shape=(2,))

    def call(self, x):
        return x * self.a + self.b


def unnamed() -> keras.Model:
    return keras.Sequential([keras.Input((2,)), TwoUnnamed()])


BUILDERS = [default, residual, nested, recurrent, attention, unnamed]


def test_names_say_place_class_and_role():
    assert list(weights.named_variables(default())) == [
        "0:Conv2D/kernel", "0:Conv2D/bias", "2:Conv2D/kernel", "2:Conv2D/bias",
        "5:Dense/kernel", "5:Dense/bias",
    ]  # fmt: skip


def test_names_of_layers_within_layers_say_every_place():
    assert list(weights.named_variables(nested())) == [
        "1:Sequential/0:Dense/kernel", "1:Sequential/0:Dense/bias",
        "1:Sequential/2:Dense/kernel", "1:Sequential/2:Dense/bias", "2:Dense/kernel", "2:Dense/bias",
    ]  # fmt: skip
    assert "0:Bidirectional/1:LSTM/0:LSTMCell/kernel" in weights.named_variables(recurrent())
    assert list(weights.named_variables(unnamed())) == ["0:TwoUnnamed/variable", "0:TwoUnnamed/variable.1"]


@pytest.mark.parametrize("build", BUILDERS)
def test_every_variable_that_is_saved_has_one_name(build):
    model = build()
    saved = [variable for variable in model.variables if "seed_generator" not in variable.path]

    named = weights.named_variables(model)

    assert sorted(map(id, named.values())) == sorted(set(map(id, saved)))


@pytest.mark.parametrize("build", BUILDERS)
def test_the_same_net_built_second_has_the_same_names_and_structure(build):
    first, second = build(), build()
    assert [layer.name for layer in first.layers] != [layer.name for layer in second.layers]

    assert list(weights.named_variables(second)) == list(weights.named_variables(first))
    assert weights.structure(second) == weights.structure(first)


@pytest.mark.parametrize("build", [default, residual, nested, recurrent, attention])
def test_a_saved_model_keeps_names_structure_and_digest(build):
    model = build()

    loaded = scoring.from_bytes(scoring.to_bytes(model), "m")

    assert weights.structure(loaded) == weights.structure(model)
    assert weights.digest(weights.arrays(loaded)) == weights.digest(weights.arrays(model))


@pytest.mark.parametrize("build", BUILDERS)
def test_assign_gives_a_second_net_the_weights_of_the_first(build):
    first, second = build(), build()
    rng = np.random.default_rng(1)
    values = {
        name: value + rng.random(value.shape).astype(value.dtype) if value.dtype.kind == "f" else value
        for name, value in weights.arrays(first).items()
    }

    weights.assign(second, dict(reversed(values.items())))

    assert weights.digest(weights.arrays(second)) == weights.digest(values)


@pytest.mark.parametrize("change", ["missing", "more", "renamed", "shape"])
def test_assign_refuses_other_names_and_shapes_and_changes_nothing(change):
    model = default()
    before = weights.digest(weights.arrays(model))
    values = {name: value + 1 for name, value in weights.arrays(model).items()}
    last = values.pop("5:Dense/bias")
    values |= {
        "missing": {},
        "more": {"5:Dense/bias": last, "6:Dense/bias": last},
        "renamed": {"5:Dense/beta": last},
        "shape": {"5:Dense/bias": last[:-1]},
    }[change]

    with pytest.raises(InvalidInputError, match="Dense/b"):
        weights.assign(model, values)

    assert weights.digest(weights.arrays(model)) == before


VALUES = {
    "0:Dense/kernel": np.arange(6, dtype=np.float32).reshape(2, 3),
    "0:Dense/bias": np.zeros(3, np.float32),
}


@given(st.integers(0, 23), st.integers(0, 7))
def test_a_digest_changes_with_any_bit(byte, bit):
    raw = bytearray(VALUES["0:Dense/kernel"].tobytes())
    raw[byte] ^= 1 << bit
    changed = np.frombuffer(bytes(raw), np.float32).reshape(2, 3)

    assert weights.digest({**VALUES, "0:Dense/kernel": changed}) != weights.digest(VALUES)


@pytest.mark.parametrize(
    "other",
    [
        {**VALUES, "0:Dense/kernel": VALUES["0:Dense/kernel"].reshape(3, 2)},
        {**VALUES, "0:Dense/bias": np.zeros(3, np.int32)},
        {**VALUES, "0:Dense/bias": np.zeros((3, 1), np.float32)},
        {"1:Dense/kernel": VALUES["0:Dense/kernel"], "0:Dense/bias": VALUES["0:Dense/bias"]},
        {"0:Dense/beta": VALUES["0:Dense/bias"], "0:Dense/kernel": VALUES["0:Dense/kernel"]},
        dict(reversed(VALUES.items())),
        {"0:Dense/kernel": VALUES["0:Dense/kernel"]},
    ],
    ids=["shape", "dtype", "rank", "place", "role", "order", "fewer"],
)
def test_a_digest_changes_with_shape_dtype_and_place(other):
    assert weights.digest(other) != weights.digest(VALUES)


def test_a_digest_does_not_depend_on_how_an_array_lies_in_memory():
    turned = {**VALUES, "0:Dense/kernel": np.asfortranarray(VALUES["0:Dense/kernel"])}

    assert weights.digest(turned) == weights.digest(VALUES)


def without_settings(model: keras.Model) -> list[str]:
    return [line.split(" {")[0] for line in weights.structure(model)]


@pytest.mark.parametrize(
    "other", [{"activation": "tanh"}, {"strides": 2}, {"padding": "valid"}, {"use_bias": False}]
)
def test_the_structure_says_what_a_layer_computes_with(other):
    def lines(**settings):
        convolution = layers.Conv2D(2, 1, **{"activation": "relu", "padding": "same", **settings})
        return weights.structure(keras.Sequential([keras.Input((4, 4, 1)), convolution]))

    assert lines() == lines(name="mine", kernel_initializer="zeros")
    assert lines() != lines(**other)


def test_the_structure_says_class_shape_inputs_and_weights():
    assert without_settings(residual()) == [
        "0 InputLayer (8, 8, 1) from -",
        "1 Conv2D (8, 8, 4) from 0 kernel(3, 3, 1, 4) bias(4,)",
        "2 BatchNormalization (8, 8, 4) from 1 gamma(4,) beta(4,) moving_mean(4,) moving_variance(4,)",
        "3 Conv2D (8, 8, 4) from 2 kernel(3, 3, 4, 4) bias(4,)",
        "4 Add (8, 8, 4) from 1,3",
        "5 Dropout (8, 8, 4) from 4",
        "6 Flatten (256,) from 5",
        "7 Dense (3,) from 6 kernel(256, 3) bias(3,)",
    ]


def test_the_structure_says_what_is_used_twice_and_what_is_within():
    assert without_settings(nested()) == [
        "0 InputLayer (4,) from -",
        "1 Sequential (4,) from 0;2 kernel(4, 4) bias(4,) kernel(4, 4) bias(4,)",
        "1.0 Dense (4,) from - kernel(4, 4) bias(4,)",
        "1.1 Dropout (4,) from 0",
        "1.2 Dense (4,) from 1 kernel(4, 4) bias(4,)",
        "2 Dense (4,) from 1 kernel(4, 4) bias(4,)",
    ]


def test_inputs_in_another_order_are_another_structure():
    """The rows of the Dense kernel belong to other features then."""

    def concatenated(swap: bool) -> keras.Model:
        start = keras.Input((3,))
        first = layers.Dense(3)(start)
        pair = [first, layers.Dense(3)(first)]
        return keras.Model(start, layers.Dense(2)(layers.Concatenate()(pair[::-1] if swap else pair)))

    plain, swapped = without_settings(concatenated(False)), without_settings(concatenated(True))

    assert [pair for pair in zip(plain, swapped, strict=True) if pair[0] != pair[1]] == [
        ("3 Concatenate (6,) from 1,2", "3 Concatenate (6,) from 2,1")
    ]


def test_a_model_used_again_keeps_its_structure():
    model = residual()
    before = weights.structure(model)

    model(keras.Input((8, 8, 1)))

    assert weights.structure(model) == before


def test_given_names_are_those_of_users_alone():
    model = keras.Sequential([
        keras.Input((8, 8, 1)), layers.Conv2D(2, 3), layers.Conv2D(2, 3, name="conv_7"),
        layers.BatchNormalization(), layers.Flatten(), layers.Dense(2, name="head"),
    ])  # fmt: skip

    assert weights.given_names(model) == ["", "conv_7", "", "", "head"]
