"""Weights count by how much predictions depend on them; the information is that of the model's own labels."""

import functools
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, strategies as st

from fourfold.model import weights
from fourfold.rules import fisher, plain_mean, statistics
from fourfold.rules.members import Member
from tests.rules import models

layers = keras.layers
case = functools.cache(lambda kind: models.case(models.KINDS[kind], count=2))


def single(value, information=None, dtype: Any = np.float32) -> Member:
    told = {} if information is None else {"fisher/a": np.asarray(information, np.float32)}
    return Member("m", {"a": np.asarray(value, dtype)}, (), (), 1, statistics=told)


@given(st.integers(0, 10_000), st.integers(1, 5))
def test_members_with_equal_information_merge_to_their_mean(seed, count):
    generator = np.random.default_rng(seed)
    told = generator.random(6) ** 8
    members = [single(generator.normal(size=6), told) for _ in range(count)]

    merged, mean = fisher.merge(members)["a"], plain_mean.merge(members)["a"]

    np.testing.assert_allclose(merged, mean, rtol=1e-5, atol=1e-6)


@given(st.integers(0, 10_000))
def test_a_merge_lies_between_its_members_and_nearer_to_the_one_that_knows_more(seed):
    generator = np.random.default_rng(seed)
    values, told = generator.normal(size=(2, 6)), generator.random((2, 6)) + 0.01
    members = [single(value, more) for value, more in zip(values, told, strict=True)]

    merged = fisher.merge(members)["a"]

    assert (merged >= values.min(axis=0) - 1e-5).all()
    assert (merged <= values.max(axis=0) + 1e-5).all()
    nearer = np.abs(merged - values[0]) < np.abs(merged - values[1])
    clear = np.abs(values[0] - values[1]) * np.abs(told[0] - told[1]) > 1e-3
    assert (nearer == (told[0] > told[1]))[clear].all()


def test_each_element_counts_by_its_own_information():
    members = [single([1.0, 1.0, 1.0], [3, 0, 0]), single([5.0, 5.0, 5.0], [1, 7, 0])]

    np.testing.assert_allclose(fisher.merge(members)["a"], [2, 5, 3], rtol=1e-6)


def test_what_has_no_information_is_averaged():
    assert fisher.merge([single([1.0], [3]), single([5.0])])["a"] == [3]


def test_float16_neither_overflows_nor_vanishes():
    told = np.array([60000.0, 1e-12])
    own = np.array([60000, 1e-7], np.float16)

    merged = fisher.merge([single(own, told, np.float16)] * 3)["a"]

    assert merged.dtype == np.float16
    assert merged.tolist() == own.tolist()


@pytest.mark.parametrize("kind", models.KINDS)
def test_information_has_the_shape_of_what_is_trained_and_is_never_negative(kind):
    found = case(kind)
    variables = weights.named_variables(found.model)
    trained = {id(variable) for variable in found.model.trainable_variables}

    told = {k.removeprefix("fisher/"): v for k, v in found.members[0].statistics.items() if "fisher" in k}

    assert set(told) == {name for name, variable in variables.items() if id(variable) in trained}
    for name, value in told.items():
        assert value.shape == tuple(variables[name].shape)
        assert (value >= 0).all()
        assert value.max() > 0


def test_information_is_the_mean_of_squared_gradients_row_by_row():
    """Not the square of the mean gradient, which is near 0 at the end of a training."""
    found = case("plain")
    site, values = found.ground.sites.sites[0], found.members[0].weights  # pyright: ignore
    x = site.x[:20]
    logits = models.logits(found.model, values, x)
    noise = np.random.default_rng(5).gumbel(size=logits.shape)
    expected = np.zeros((5, 7))
    for row, label in zip(x, np.argmax(logits + noise, axis=1), strict=True):
        with tf.GradientTape() as tape:
            out = found.model(row[np.newaxis], training=False)
            loss = tf.nn.sparse_softmax_cross_entropy_with_logits([label], out)
        kernel = weights.named_variables(found.model)["0:Dense/kernel"]
        expected += np.square(np.asarray(tape.gradient(loss, kernel.value)))

    told = site.fisher(values, 20, seed=5)

    assert told["rows"] == 20
    np.testing.assert_allclose(told["0:Dense/kernel"], expected, rtol=1e-4, atol=1e-7)


def test_labels_are_drawn_from_the_model_not_taken_from_the_rows():
    found = case("plain")
    site, values = found.ground.sites.sites[0], found.members[0].weights  # pyright: ignore
    with_labels = site.fisher(values, 20, seed=5)
    before, site.y = site.y, None

    without, other = site.fisher(values, 20, seed=5), site.fisher(values, 20, seed=6)
    site.y = before

    for name, value in with_labels.items():
        np.testing.assert_array_equal(without[name], value)
    assert any(np.abs(other[name] - value).max() > 1e-6 for name, value in with_labels.items())


def test_weights_that_nothing_depends_on_have_none_and_are_averaged():
    """A unit behind a ReLU that is always off."""
    found = models.case(models.plain, count=2)
    sites = found.ground.sites.sites  # pyright: ignore
    members = []
    for site, member in zip(sites, found.members, strict=True):
        values = {name: value.copy() for name, value in member.weights.items()}
        values["0:Dense/bias"][3] = -1000
        told = statistics.gather(site, values, seed=0)
        assert (told["fisher/0:Dense/kernel"][:, 3] == 0).all()
        members.append(models.with_weights(found.model, values, 60, site.index, statistics=told))

    merged, mean = fisher.merge(members), plain_mean.merge(members)

    np.testing.assert_allclose(merged["0:Dense/kernel"][:, 3], mean["0:Dense/kernel"][:, 3], rtol=1e-6)
    assert np.abs(merged["0:Dense/kernel"] - mean["0:Dense/kernel"]).max() > 0.01


def test_frozen_layers_have_no_information_and_are_averaged():
    def frozen() -> keras.Model:
        model = models.plain()
        model.layers[0].trainable = False
        return model

    found = models.case(frozen, count=2)

    assert not any(key.startswith("fisher/0:Dense") for key in found.members[0].statistics)
    np.testing.assert_array_equal(
        fisher.merge(found.members)["0:Dense/kernel"], plain_mean.merge(found.members)["0:Dense/kernel"]
    )
