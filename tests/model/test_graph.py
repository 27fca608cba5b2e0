"""A model's graph says which units may change places: what it says must never change a function."""

import re
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest

from fourfold.model import graph, symmetry, weights
from tests.rules import models

layers = keras.layers
SCALE = np.arange(1.0, 9.0, dtype=np.float32)


def functional(shape: tuple[int, ...], body: Callable[[Any], Any]) -> keras.Model:
    """A model that ends in a Dense layer of 3 outputs over all that ``body`` makes."""
    start = keras.Input(shape)
    made = body(start)
    return keras.Model(start, layers.Dense(3)(layers.Flatten()(made) if len(made.shape) > 2 else made))


class Scaled(layers.Layer):
    """Tells its units apart."""

    def build(self, shape):
        self.scale = self.add_weight(shape=(shape[-1],), name="scale")

    def call(self, x):
        return x * self.scale * keras.ops.arange(x.shape[-1], dtype="float32")


class DenseOfItsOwn(layers.Dense):
    """Looks like a Dense layer, and tells its units apart."""

    def call(self, x):
        return super().call(x) * SCALE  # pyright: ignore[reportOperatorIssue]


class Subclassed(keras.Model):
    """Has no graph that could be read."""

    def __init__(self):
        super().__init__()
        self.inner = layers.Dense(8)

    def call(self, x):
        return self.inner(x) * SCALE


def squeezed(start):
    """Squeeze and excitation: channels times what a Dense layer says of them, for every place."""
    made = layers.Conv2D(8, 3)(start)
    say = layers.Dense(4, activation="relu")(layers.GlobalAveragePooling2D(keepdims=True)(made))
    return layers.Multiply()([made, layers.Dense(8, activation="sigmoid")(say)])


def grouped_twice(start):
    """Groups of two and then of four read the same units."""
    made = layers.Conv2D(8, 3, padding="same")(start)
    two = layers.Conv2D(8, 3, groups=2, padding="same")(made)
    return layers.Conv2D(16, 1, groups=4)(layers.Add()([made, two]))


def twice(start):
    """The same units twice in a concatenation."""
    a, b = layers.Dense(8)(start), layers.Dense(8)(start)
    return layers.Concatenate()([layers.Concatenate()([a, b, a]), layers.Add()([a, b])])


UNDERSTOOD = {
    "squeeze": ((6, 6, 2), squeezed, 2),
    "groups": ((6, 6, 2), grouped_twice, 2),
    "twice": ((4,), twice, 1),
    "constant": ((4,), lambda x: layers.Dense(8)(x) * 2.0 + 1.0, 1),
    "operation": ((4,), lambda x: keras.ops.relu(layers.Dense(8)(x)), 1),
    "prelu, one number": ((4,), lambda x: layers.PReLU(shared_axes=[1])(layers.Dense(8)(x)), 1),
    "prelu, a number a unit": ((4,), lambda x: layers.PReLU()(layers.Dense(8)(x)), 1),
    "reshape": ((4,), lambda x: layers.Reshape((1, 1, 8))(layers.Dense(8)(x)), 1),
    "pool": ((9, 2), lambda x: layers.GlobalMaxPooling1D()(layers.Conv1D(8, 3, padding="causal")(x)), 1),
}  # fmt: skip
HELD = {
    "custom layer": ((4,), lambda x: Scaled()(layers.Dense(8)(x))),
    "custom kind of Dense": ((4,), lambda x: DenseOfItsOwn(8)(x)),
    "custom activation": ((4,), lambda x: layers.Dense(8, activation=lambda y: y * SCALE)(x)),
    "custom activation layer": ((4,), lambda x: layers.Activation(lambda y: y * SCALE)(layers.Dense(8)(x))),
    "activation with weights": ((4,), lambda x: layers.Dense(8, activation=layers.PReLU())(x)),
    "constant a unit": ((4,), lambda x: layers.Dense(8)(x) * SCALE),
    "rescaling a unit": ((4,), lambda x: layers.Rescaling(SCALE)(layers.Dense(8)(x))),
    "subclassed model": ((4,), lambda x: Subclassed()(layers.Dense(8)(x))),
    "lstm": ((5, 4), lambda x: layers.LSTM(3)(layers.Dense(8)(x))),
    "attention": ((5, 4), lambda x: layers.MultiHeadAttention(2, 2)(*[layers.Dense(8)(x)] * 2)),
    "channels first": ((2, 6, 6), lambda x: layers.Conv2D(8, 3, data_format="channels_first")(x)),
    "other axis": ((6, 2), lambda x: layers.BatchNormalization(axis=1)(layers.Conv1D(8, 1)(x))),
    "transpose": ((6, 2), lambda x: layers.Permute((2, 1))(layers.Dense(8)(x))),
    "slice": ((4,), lambda x: layers.Dense(8)(x)[:, 2:5]),
    "split": ((4,), lambda x: layers.Reshape((2, 4))(layers.Dense(8)(x))),
    "broadcast": ((4,), lambda x: layers.Add()([layers.Dense(8)(x), layers.Dense(1)(x)])),
    "input": ((8,), lambda x: layers.Add()([x, layers.Dense(8)(x)])),
}


def changes(model: keras.Model, orders: dict[int, np.ndarray], seed: int = 3) -> float:
    """By how much at most the outputs change, of their spread, where units are put in other orders."""
    values, x = models.drawn(model, seed), models.rows(model, seed, 20)
    before = models.logits(model, values, x)
    after = models.logits(model, graph.read(model).permuted(values, orders), x)
    return float(np.abs(after - before).max() / before.std())


@pytest.mark.parametrize("kind", models.KINDS)
@pytest.mark.parametrize("seed", range(3))
def test_a_function_is_the_same_with_its_units_in_any_order(kind, seed):
    model = models.KINDS[kind]()
    read = graph.read(model)

    assert changes(model, symmetry.drawn(read, seed)) < 1e-4


@pytest.mark.parametrize("kind", models.KINDS)
def test_every_kind_of_model_has_units_that_may_change_places(kind):
    read = graph.read(models.KINDS[kind]())

    moved = models.moved(models.KINDS[kind](), values := models.drawn(models.KINDS[kind](), 1), 1)

    assert read.free()
    assert any(not np.array_equal(moved[name], values[name]) for name in values)
    assert not graph.read(models.KINDS[kind]()).untreated


@pytest.mark.parametrize("kind", models.KINDS)
def test_one_layers_units_alone_change_the_function(kind):
    """So the test above can fail: the weights that read the units are left as they are."""
    model = models.KINDS[kind]()
    read, values, x = graph.read(model), models.drawn(model, 3), models.rows(model, 3, 20)
    before = models.logits(model, values, x)
    for group in read.free():
        orders = {group: np.roll(np.arange(read.groups[group].size), 1)}
        name = next(
            name
            for name, axes in read.axes.items()
            if axes[-1] is not None and (axes[-1].group == group).any() and not axes[-1].block
        )
        wrong = {**values, name: read.of_one(name, values[name], orders)}
        assert np.abs(models.logits(model, wrong, x) - before).max() > 0.01 * before.std()


@pytest.mark.parametrize("case", UNDERSTOOD)
def test_what_is_understood_has_free_units_and_keeps_its_function(case):
    shape, body, free = UNDERSTOOD[case]
    model = functional(shape, body)
    read = graph.read(model)

    assert len(read.free()) == free
    for seed in range(4):
        assert changes(model, symmetry.drawn(read, seed)) < 1e-4


@pytest.mark.parametrize("case", HELD)
def test_what_is_not_understood_holds_its_units_and_says_why(case):
    shape, body = HELD[case]
    read = graph.read(functional(shape, body))

    assert not read.free()
    assert any("stay where they are" in sentence for sentence in read.held)


@pytest.mark.parametrize(
    ("case", "said"),
    [
        ("custom layer", r"scaled\w* \(Scaled\)"),
        ("custom kind of Dense", r"dense_of_its_own\w* \(DenseOfItsOwn\)"),
        ("subclassed model", r"subclassed\w* \(Subclassed\)"),
        ("lstm", r"lstm\w* \(LSTM\)"),
        ("channels first", r"conv2d\w* \(Conv2D\)"),
    ],
)
def test_a_layer_with_weights_that_is_not_understood_is_said_by_name_and_class(case, said):
    shape, body = HELD[case]

    sentences = graph.read(functional(shape, body)).untreated

    assert len(sentences) == 1
    assert re.match(said + r" is not understood", sentences[0])


def test_layers_beyond_one_that_is_not_understood_are_free_again():
    model = functional((5, 4), lambda x: layers.Dense(8)(layers.LSTM(3)(layers.Dense(6)(x))))
    read = graph.read(model)

    assert [read.groups[group].size for group in read.free()] == [8]
    assert changes(model, symmetry.drawn(read, 1)) < 1e-4


def test_a_sum_makes_units_of_two_layers_one_group():
    model = functional((4,), lambda x: layers.Add()([layers.Dense(8)(x), layers.Dense(8)(x)]))
    read = graph.read(model)

    assert len(read.free()) == 1
    one, other = (read.axes[f"{place}:Dense/kernel"][-1] for place in (1, 2))
    assert one is not None and other is not None
    assert one.group[0] == other.group[0]


def test_inputs_and_outputs_stay_where_they_are():
    model = models.plain()
    values = models.drawn(model, 1)

    moved = models.moved(model, values, 1)

    np.testing.assert_array_equal(moved["2:Dense/bias"], values["2:Dense/bias"])
    assert np.array_equal(np.sort(moved["0:Dense/kernel"], axis=1), np.sort(values["0:Dense/kernel"], axis=1))


def test_a_model_of_a_class_of_its_own_has_nothing_free():
    model = Subclassed()
    model(np.zeros((1, 4), np.float32))

    assert not graph.read(model).free()
    assert list(weights.arrays(model))
