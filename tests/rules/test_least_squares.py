"""Layers fitted by least squares: from members' sums, layer after layer, or the last one to labels."""

import functools
import itertools
from dataclasses import replace

import keras
import numpy as np
import pytest
from hypothesis import given, strategies as st

from fourfold.model import measures
from fourfold.rules import head_refit, plain_mean, regmean, sequential_regmean
from fourfold.rules.sites import Scores, Together
from fourfold.rules.state import State, solved
from tests.rules import models

layers = keras.layers
case = functools.cache(lambda kind: models.case(models.KINDS[kind], count=2))


def close(a, b, tolerance: float = 1e-4) -> None:
    assert list(a) == list(b)
    for name in a:
        scale = max(float(np.abs(b[name]).max()), 1e-3)
        np.testing.assert_allclose(a[name], b[name], rtol=0, atol=tolerance * scale, err_msg=name)


def loss_of(found: models.Case, values, sites) -> float:
    """The cross-entropy over all sites' rows."""
    logits = [models.logits(found.model, values, site.x) for site in sites]
    return measures.cross_entropy(np.concatenate(logits), np.concatenate([site.y for site in sites]))


@pytest.mark.parametrize("kind", models.KINDS)
@pytest.mark.parametrize("alpha", [1.0, 0.3, 0.0])
def test_regmean_of_members_with_equal_sums_and_rows_is_the_mean(kind, alpha):
    found = case(kind)
    told = found.members[0].statistics
    members = [replace(member, statistics=told, rows=50) for member in found.members]

    close(regmean.merge(members, found.ground.maps, alpha), plain_mean.merge(members))


@pytest.mark.parametrize("kind", models.KINDS)
def test_regmean_of_members_with_other_sums_is_not_the_mean(kind):
    found = case(kind)

    made, mean = regmean.merge(found.members, found.ground.maps), plain_mean.merge(found.members)

    assert any(np.abs(made[name] - mean[name]).max() > 0.01 for name in mean if "/moving_" not in name)


def test_regmean_is_the_least_squares_over_all_members_rows():
    """For the first layer, whose inputs are rows: the same as numpy.linalg.lstsq on the pooled rows."""
    found = case("plain")
    name, each = "0:Dense", found.ground.maps["0:Dense"]
    sites = found.ground.sites.sites  # pyright: ignore

    made = regmean.merge(found.members, found.ground.maps, ridge=0)

    h = np.concatenate([each.rows(site.x)[:, 0] for site in sites]).astype(np.float64)
    y = [each.rows(s.x)[:, 0] @ each.matrix(m.weights)[0] for s, m in zip(sites, found.members, strict=True)]
    expected = np.linalg.lstsq(h, np.concatenate(y))[0]
    np.testing.assert_allclose(each.matrix(made)[0], expected, atol=1e-4)
    assert name in found.ground.order


def test_members_count_by_their_rows_in_regmean():
    found = case("plain")
    many = [replace(m, rows=rows) for m, rows in zip(found.members, (1, 10**9), strict=True)]

    made = regmean.merge(many, found.ground.maps)

    for name, value in made.items():
        if name.endswith("kernel"):
            np.testing.assert_allclose(value, found.members[1].weights[name], atol=1e-3)


@pytest.mark.parametrize("ridge", [0.0, 1e-6, 1e-3])
def test_dead_inputs_leave_the_mean_and_nothing_singular(ridge):
    """A unit that is 0 for all rows says nothing of the weights that read it."""
    found = case("plain")
    members = []
    for member in found.members:
        gram = member.statistics["gram/1:Dense"].copy()
        gram[:, 2, :], gram[:, :, 2] = 0, 0
        none = np.zeros_like(member.statistics["gram/2:Dense"])
        members.append(replace(member, statistics={
            **member.statistics, "gram/1:Dense": gram, "gram/2:Dense": none,
        }))  # fmt: skip

    made, mean = regmean.merge(members, found.ground.maps, ridge=ridge), plain_mean.merge(members)

    assert all(np.isfinite(value).all() for value in made.values())
    np.testing.assert_allclose(made["1:Dense/kernel"][2], mean["1:Dense/kernel"][2], atol=1e-5)
    np.testing.assert_allclose(made["2:Dense/kernel"], mean["2:Dense/kernel"], atol=1e-6)
    assert np.abs(made["1:Dense/kernel"] - mean["1:Dense/kernel"]).max() > 0.01


@given(st.integers(0, 10_000))
def test_least_squares_without_a_ridge_minimise_the_squares_and_with_all_of_it_stay(seed):
    generator = np.random.default_rng(seed)
    h, y = generator.normal(size=(30, 4)), generator.normal(size=(30, 2))
    prior = generator.normal(size=(1, 4, 2))
    gram, cross = (h.T @ h)[np.newaxis], (h.T @ y)[np.newaxis]

    free, held = solved(gram, cross, prior, 0, least=0), solved(gram, cross, prior, 1e9)

    np.testing.assert_allclose(free[0], np.linalg.lstsq(h, y)[0], atol=1e-8)
    np.testing.assert_allclose(held, prior, atol=1e-6)


@pytest.mark.parametrize("kind", ["cnn", "text", "shared"])
def test_sequential_regmean_of_equal_members_gives_the_member_back(kind):
    found = models.case(models.KINDS[kind], equal=True, count=2, scores=False)
    own = dict(found.members[0].weights)

    made = sequential_regmean.apply(State(tuple(found.members)), found.ground).base

    a, b = (models.logits(found.model, values, found.x) for values in (made, own))
    np.testing.assert_allclose(a, b, rtol=0, atol=3e-3 * b.std())
    for name, value in made.items():
        if "Norm" not in name:
            np.testing.assert_allclose(value, own[name], atol=3e-3, err_msg=name)


def test_where_outputs_are_class_scores_what_is_the_same_for_all_classes_is_taken_off():
    found = models.case(models.plain, equal=True, count=2)

    made = sequential_regmean.apply(State(tuple(found.members)), found.ground).base

    a, b = (models.logits(found.model, each, found.x) for each in (made, found.members[0].weights))
    np.testing.assert_allclose(a, b - b.mean(axis=1, keepdims=True), atol=3e-3)
    np.testing.assert_allclose(made["2:Dense/kernel"].sum(axis=1), 0, atol=1e-4)


def test_sequential_regmean_asks_once_a_layer_and_comes_nearer_to_the_members_than_the_mean():
    found = models.case(models.plain, count=2, scores=False)
    sites = found.ground.sites
    assert isinstance(sites, Together)

    made = sequential_regmean.apply(State(tuple(found.members)), found.ground, ridge=1e-6).base

    def far(values) -> float:
        pairs = zip(sites.sites, found.members, strict=True)
        gaps = [
            models.logits(found.model, values, s.x) - models.logits(found.model, m.weights, s.x)
            for s, m in pairs
        ]
        return float(np.mean(np.square(gaps)))

    assert sites.exchanges == len(found.ground.order) == 3
    assert far(made) < 0.9 * far(plain_mean.merge(found.members))


def test_each_site_is_asked_with_its_own_members_weights_whatever_their_order():
    found = models.case(models.plain, count=2)

    one = sequential_regmean.apply(State(tuple(found.members)), found.ground).base
    other = sequential_regmean.apply(State(tuple(found.members[::-1])), found.ground).base

    close(one, other, 1e-5)


@pytest.mark.parametrize("kind", models.KINDS)
def test_the_sum_over_sites_is_what_all_rows_give_together(kind):
    found = case(kind)
    apart, pooled = found.ground.sites, models.together(found.model, [found.x])
    values = [member.weights for member in found.members]
    names = list(found.ground.order)
    asked = [
        lambda site: site.grams(values[0], names, 10_000),
        lambda site: site.fit(names[-1], values[0], values[1], 10_000),
        lambda site: site.fit(names[-1], values[0], values[1], 10_000, Scores(0.0, 0.01)),
        lambda site: site.fit(names[-1], values[0], values[1], 10_000, Scores(5.0, 0.01)),
        lambda site: site.outputs(values, names, 10_000),
        lambda site: site.crossed(values, names, 10_000),
    ]

    for ask in asked:
        whole, added = pooled.total(ask), apart.total(ask)  # pyright: ignore
        assert set(whole) == set(added)
        for key, value in whole.items():
            np.testing.assert_allclose(added[key], value, rtol=1e-4, atol=1e-4 * np.abs(value).max() + 1e-9)


def test_sites_that_are_together_count_questions_and_bytes():
    sites = models.together(models.plain(), [np.zeros((2, 5), np.float32)] * 3)

    first = sites.total(lambda site: {"a": np.ones(4), "b": np.array(float(site.index))})
    sites.total(lambda site: {"a": np.ones(1)})

    assert first["a"].tolist() == [3, 3, 3, 3]
    assert first["b"] == 3
    assert sites.exchanges == 2
    assert sites.sent == 3 * (4 + 1 + 1) * 8


@pytest.mark.parametrize("seed", range(3))
def test_refitting_the_head_never_makes_the_loss_greater_and_asks_once_and_then_once_a_step(seed):
    found = models.case(models.plain, count=2)
    sites = found.ground.sites
    assert isinstance(sites, Together)
    for site in sites.sites:
        site.y = models.labels(seed + 10 * site.index)
    base = models.drawn(found.model, seed)
    losses = [loss_of(found, base, sites.sites)]

    for steps in (0, 1, 2, 3, 5, 10, 20):
        sites.exchanges = 0
        state = head_refit.apply(State(tuple(found.members), base), found.ground, steps=steps)
        assert sites.exchanges == 1 + steps
        losses.append(loss_of(found, state.base, sites.sites))

    # Momentum may carry a step a hair too far before it is begun anew.
    assert all(later < before + 1e-4 for before, later in itertools.pairwise(losses))
    assert max(losses) == losses[0]
    assert losses[-1] < losses[0] - 0.1


def test_refitting_the_head_changes_the_head_alone_and_says_that_it_trains():
    found = case("mlp")

    state = head_refit.apply(State(tuple(found.members)), found.ground)

    mean = plain_mean.merge(found.members)
    changed = [name for name in mean if not np.array_equal(state.base[name], mean[name])]
    assert changed == ["6:Dense/kernel", "6:Dense/bias"]
    assert state.said == ("head_refit trained the last layer on the sites' own labels.",)


def test_refitting_the_head_comes_to_the_best_loss_that_there_is():
    """Compared with Adam on the last layer, which sees the same rows."""
    found = case("plain")
    sites = found.ground.sites.sites  # pyright: ignore
    base = plain_mean.merge(found.members)

    refit = head_refit.apply(State(tuple(found.members)), found.ground, steps=300).base

    h = np.concatenate([site.head_inputs("2:Dense", base, 100) for site in sites])
    y = np.concatenate([site.y for site in sites])
    head = keras.Sequential([keras.Input((h.shape[1],)), layers.Dense(4, use_bias=False)])
    head.compile(keras.optimizers.Adam(0.1), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    head.fit(h, y, epochs=60, batch_size=len(y), verbose=0)  # pyright: ignore
    best = measures.cross_entropy(head.predict_on_batch(h), y)
    assert loss_of(found, refit, sites) < best + 0.005
