"""Only models of one structure are merged, and what does not fit is named (W1, W7, W8)."""

from dataclasses import replace

import keras
import numpy as np
import pytest

from fourfold.contract.errors import InvalidInputError
from fourfold.model import network, weights
from fourfold.rules import members, plain_mean
from fourfold.rules.models import of_model

layers = keras.layers


def dense(*names: str | None, classes: int = 2, more: int = 0) -> keras.Model:
    """Dense layers of one shape, with the names given or Keras' own, then a head."""
    hidden = [layers.Dense(4, name=name) for name in names]
    extra = [layers.Dense(4) for _ in range(more)]
    return keras.Sequential([keras.Input((4,)), *hidden, *extra, layers.Dense(classes)])


def pair(first: keras.Model, second: keras.Model) -> list[members.Member]:
    return [of_model("model 0", first, 10), of_model("model 1", second, 20)]


def test_nothing_to_merge_is_said():
    with pytest.raises(InvalidInputError, match="no model to merge"):
        members.check([])


def test_a_member_holds_weights_structure_and_rows():
    model = network.build((28, 28, 1), 10, seed=0)

    made = of_model("model 3", model, 70)

    assert made.rows == 70
    assert list(made.weights) == list(weights.named_variables(model))
    assert len(made.structure) == len(made.layer_names) == len(model.layers)


def test_the_same_net_built_twice_fits_though_its_layers_have_other_names():
    first, second = dense(None, None), dense(None, None)
    assert {layer.name for layer in first.layers}.isdisjoint(layer.name for layer in second.layers)

    members.check(pair(first, second))


def test_layers_of_one_shape_with_auto_names_match_by_place():
    """The second net's first layer has the auto name of the first net's second layer."""
    first, second = dense("dense", "dense_1"), dense("dense_1", "dense_2")
    for model, values in ((first, (1.0, 10.0)), (second, (3.0, 30.0))):
        for layer, value in zip(model.layers[:2], values, strict=True):
            layer.kernel.assign(np.full((4, 4), value))

    both = pair(first, second)
    members.check(both)
    merged = plain_mean.merge(both)

    assert np.unique(merged["0:Dense/kernel"]).tolist() == [2.0]
    assert np.unique(merged["1:Dense/kernel"]).tolist() == [20.0]


@pytest.mark.parametrize("others", [("right", "left"), ("right", None), (None, "left")])
def test_names_that_users_gave_in_another_order_are_refused(others):
    """Also where other layers have auto names, which differ between models built in one process."""
    with pytest.raises(
        InvalidInputError, match=r"model 1 has the layers of model 0 in another order.*left, right"
    ):
        members.check(pair(dense("left", "right"), dense(*others)))


def test_other_names_at_the_same_places_fit():
    members.check(pair(dense("left", "right"), dense("a", "b")))


def test_one_layer_more_is_refused_and_named():
    with pytest.raises(InvalidInputError) as caught:
        members.check(pair(dense(None), dense(None, more=1)))

    said = str(caught.value)
    assert "model 1 has not the structure of model 0" in said
    assert "only model 1: 2 Dense (2,) from 1 kernel(4, 2) bias(2,)" in said


def test_one_layer_fewer_is_refused_and_named():
    with pytest.raises(InvalidInputError, match=r"only model 0: 2 Dense"):
        members.check(pair(dense(None, more=1), dense(None)))


def test_other_classes_are_refused_and_named():
    with pytest.raises(InvalidInputError) as caught:
        members.check(pair(dense(None), dense(None, classes=3)))

    assert "model 0: 1 Dense (2,)" in str(caught.value)
    assert "model 1: 1 Dense (3,)" in str(caught.value)


def test_other_inputs_of_a_layer_are_refused():
    def model(residual: bool) -> keras.Model:
        start = keras.Input((4,))
        first = layers.Dense(4)(start)
        second = layers.Dense(4)(first)
        return keras.Model(start, layers.Add()([second, first if residual else start]))

    with pytest.raises(InvalidInputError, match=r"3 Add \(4,\) from 2,1"):
        members.check(pair(model(True), model(False)))


def test_the_third_of_three_is_named():
    three = [*pair(dense(None), dense(None)), of_model("model 2", dense(None, classes=5), 10)]

    with pytest.raises(InvalidInputError, match="model 2 has not the structure of model 0"):
        members.check(three)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("which", [0, 1])
def test_a_weight_that_is_not_finite_is_refused_with_member_and_array(value, which):
    both = pair(dense(None), dense(None))
    broken = {name: array.copy() for name, array in both[which].weights.items()}
    broken["1:Dense/kernel"][2, 1] = value
    both[which] = replace(both[which], weights=broken)

    with pytest.raises(InvalidInputError, match=f"model {which}: 1:Dense/kernel holds NaN or infinity"):
        members.check(both)
