"""What comes after a merge: the spread of activations, and BatchNorm's moving statistics."""

import functools
from dataclasses import replace

import keras
import numpy as np
import pytest

from fourfold.model import linear, taps, weights
from fourfold.rules import bn_recalibration, plain_mean, repair
from fourfold.rules.sites import Together
from fourfold.rules.state import State
from tests.rules import models

layers = keras.layers
case = functools.cache(lambda kind: models.case(models.KINDS[kind], count=2))


def seen(found: models.Case, values, name: str, place: int) -> np.ndarray:
    """What goes into a layer (0) or comes out before its activation (1), units last, over all rows."""
    weights.assign(found.model, values)
    parts = []
    told = {name: found.ground.maps[name].layer}
    taps.watch(found.model, told, found.x, lambda _, *each: parts.append(each[place]))
    return np.concatenate([part.reshape(-1, part.shape[-1]) for part in parts]).astype(np.float64)


def names_of(found: models.Case, kind: type) -> list[str]:
    return [name for name in found.ground.order if isinstance(found.ground.maps[name].layer, kind)]


@pytest.mark.parametrize("kind", ["cnn", "mlp"])
def test_moving_statistics_become_those_of_the_rows_in_the_merged_model(kind):
    """Of each layer, with those before it already right: so all of them are right at once."""
    found = case(kind)

    made = bn_recalibration.apply(State(tuple(found.members)), found.ground).base

    for name in names_of(found, layers.BatchNormalization):
        given = seen(found, made, name, 0)
        np.testing.assert_allclose(made[f"{name}/moving_mean"], given.mean(axis=0), atol=1e-4)
        np.testing.assert_allclose(made[f"{name}/moving_variance"], given.var(axis=0), rtol=1e-3)


@pytest.mark.parametrize("kind", ["cnn", "mlp"])
def test_recalibration_changes_nothing_but_moving_statistics_and_twice_is_once(kind):
    found = case(kind)
    mean = plain_mean.merge(found.members)

    once = bn_recalibration.apply(State(tuple(found.members)), found.ground)
    twice = bn_recalibration.apply(once, found.ground)

    changed = [name for name in mean if not np.array_equal(once.base[name], mean[name])]
    assert changed == [name for name in mean if "/moving_" in name]
    for name in mean:
        np.testing.assert_allclose(twice.base[name], once.base[name], rtol=1e-5, atol=1e-6)
        assert once.base[name].dtype == mean[name].dtype


def test_recalibration_asks_once_a_batch_norm_and_says_what_it_did():
    found = models.case(models.mlp, count=2)
    assert isinstance(found.ground.sites, Together)

    state = bn_recalibration.apply(State(tuple(found.members)), found.ground)

    assert found.ground.sites.exchanges == 2
    assert state.said == ("BatchNorm's moving statistics were computed anew (2 layers).",)


def test_recalibration_of_a_model_without_batch_norm_says_that_it_had_nothing_to_do():
    found = case("plain")

    state = bn_recalibration.apply(State(tuple(found.members)), found.ground)

    assert state.said == ("bn_recalibration had nothing to do: the model has no BatchNorm.",)
    for name, value in plain_mean.merge(found.members).items():
        np.testing.assert_array_equal(state.base[name], value)


def test_only_the_rows_that_are_asked_for_count():
    found = case("mlp")

    few = bn_recalibration.apply(State(tuple(found.members)), found.ground, rows=10).base

    first = np.concatenate([site.x[:10] for site in found.ground.sites.sites])  # pyright: ignore
    given = seen(replace(found, x=first), few, "1:BatchNormalization", 0)
    np.testing.assert_allclose(few["1:BatchNormalization/moving_mean"], given.mean(axis=0), atol=1e-5)


@pytest.mark.parametrize("kind", ["cnn", "text", "plain"])
def test_repaired_units_have_the_mean_and_spread_that_the_members_units_have_on_average(kind):
    found = case(kind)

    made = repair.apply(State(tuple(found.members)), found.ground).base

    names = [name for name in found.ground.order[:-1] if f"{name}/bias" in made]
    assert names
    for name in names:
        own = [seen(found, member.weights, name, 1) for member in found.members]
        got = seen(found, made, name, 1)
        spread = np.mean([each.std(axis=0) for each in own], axis=0)
        np.testing.assert_allclose(
            got.mean(axis=0), np.mean([each.mean(axis=0) for each in own], axis=0), atol=2e-3
        )
        np.testing.assert_allclose(got.std(axis=0), spread, rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("kind", ["cnn", "text", "plain"])
def test_the_plain_mean_has_another_spread(kind):
    """So the test above can fail."""
    found = case(kind)
    name = next(name for name in found.ground.order if "Embedding" not in name)
    mean = plain_mean.merge(found.members)

    own = np.mean([seen(found, member.weights, name, 1).std(axis=0) for member in found.members], axis=0)

    assert np.abs(seen(found, mean, name, 1).std(axis=0) / own - 1).max() > 0.1


def test_repair_leaves_the_last_layer_and_layers_without_a_bias_alone_and_says_so():
    found = case("mlp")
    mean = plain_mean.merge(found.members)

    state = repair.apply(State(tuple(found.members)), found.ground)

    changed = {name for name in mean if not np.array_equal(state.base[name], mean[name])}
    assert changed == {"0:Dense/kernel", "0:Dense/bias"}
    assert state.said == ("repair left 3:Dense alone: without a bias their mean cannot be set.",)


def test_repair_asks_once_and_then_once_a_layer():
    found = models.case(models.plain, count=3)
    assert isinstance(found.ground.sites, Together)

    repair.apply(State(tuple(found.members)), found.ground)

    assert found.ground.sites.exchanges == 1 + 2


def test_a_unit_that_is_always_the_same_is_moved_and_not_blown_up():
    found = case("plain")
    still = {name: value.copy() for name, value in plain_mean.merge(found.members).items()}
    still["0:Dense/kernel"][:, 2] = 0

    made = repair.apply(State(tuple(found.members), still), found.ground).base

    own = np.mean([seen(found, m.weights, "0:Dense", 1).mean(axis=0) for m in found.members], axis=0)
    assert all(np.isfinite(value).all() for value in made.values())
    np.testing.assert_array_equal(made["0:Dense/kernel"][:, 2], 0)
    np.testing.assert_allclose(made["0:Dense/bias"][2], own[2], atol=1e-4)


def test_repair_of_a_model_with_nothing_to_mend_changes_nothing():
    found = models.case(lambda: keras.Sequential([keras.Input((5,)), layers.Dense(4)]), count=2)

    state = repair.apply(State(tuple(found.members)), found.ground)

    for name, value in plain_mean.merge(found.members).items():
        np.testing.assert_array_equal(state.base[name], value)


def test_moments_of_two_sites_are_those_of_all_their_rows_not_their_mean():
    """A site with more rows counts more."""
    model = models.mlp()
    xs = [models.rows(model, 1, 10), 5 + models.rows(model, 2, 90)]
    ground = models.ground(model, sites=models.together(model, xs))
    base = models.drawn(model, 1)

    made = bn_recalibration.apply(State((), base), ground).base

    pooled = np.concatenate(xs) @ base["0:Dense/kernel"] + base["0:Dense/bias"]
    np.testing.assert_allclose(
        made["1:BatchNormalization/moving_mean"], pooled.mean(axis=0), rtol=1e-3, atol=1e-4
    )
    np.testing.assert_allclose(made["1:BatchNormalization/moving_variance"], pooled.var(axis=0), rtol=1e-3)
    assert linear.maps(model)[0].keys() == ground.maps.keys()
