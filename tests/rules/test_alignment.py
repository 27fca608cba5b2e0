"""Members are brought to one order of units before they are merged; what they compute stays the same."""

import functools
import itertools
from dataclasses import replace

import keras
import numpy as np
import pytest
from hypothesis import given, strategies as st
from hypothesis.extra import numpy as arrays

from fourfold.model import measures, symmetry
from fourfold.model.symmetry import Axis, Group, Symmetry
from fourfold.rules import activation_matching, chain, statistics, weight_matching
from fourfold.rules.state import State
from tests.rules import models

layers = keras.layers
ALIGN = {"weight_matching": weight_matching.apply, "activation_matching": activation_matching.apply}
case = functools.cache(lambda kind: models.case(models.KINDS[kind], count=2))
scores = arrays.arrays(np.float64, (5, 5), elements=st.floats(-10, 10))


def aligned(rule: str, found: models.Case, *values) -> list[dict[str, np.ndarray]]:
    members = [replace(found.members[site], weights=each, statistics={}) for site, each in enumerate(values)]
    return [dict(each.weights) for each in ALIGN[rule](State(tuple(members)), found.ground).members]


def same(a, b) -> bool:
    return list(a) == list(b) and all(a[name].tobytes() == b[name].tobytes() for name in a)


@pytest.mark.parametrize("rule", ALIGN)
@pytest.mark.parametrize("kind", models.KINDS)
@pytest.mark.parametrize("seed", range(3))
def test_a_permuted_copy_of_a_member_aligns_back_to_every_bit(rule, kind, seed):
    found = case(kind)
    own = dict(found.members[0].weights)
    copy = models.moved(found.model, own, seed)
    assert not same(copy, own)

    first, second = aligned(rule, found, own, copy)

    assert same(first, own)
    assert same(second, own)


@pytest.mark.parametrize("rule", ALIGN)
@pytest.mark.parametrize("kind", models.KINDS)
def test_alignment_changes_no_members_function(rule, kind):
    found = case(kind)
    values = [member.weights for member in found.members]

    after = aligned(rule, found, *values)

    assert same(after[0], values[0])
    assert not same(after[1], values[1])
    for one, other in zip(values, after, strict=True):
        a, b = (models.logits(found.model, each, found.x) for each in (one, other))
        np.testing.assert_allclose(b, a, rtol=1e-4, atol=1e-4 * a.std())


@pytest.mark.parametrize("kind", models.KINDS)
def test_weight_matching_makes_members_no_less_alike_and_more_tries_no_worse(kind):
    found = case(kind)
    first, second = (member.weights for member in found.members)
    read = found.ground.symmetry
    names = [name for name in read.axes if "/moving_" not in name]

    def alike(orders) -> float:
        moved = read.permuted(second, orders)
        return sum(float(np.vdot(first[n].astype(float), moved[n].astype(float))) for n in names)

    reached = [alike(weight_matching.match(read, first, second, tries=tries)) for tries in (0, 1, 5)]

    assert reached[0] == alike({})
    assert reached == sorted(reached)
    assert reached[1] > reached[0]


@pytest.mark.parametrize("kind", models.KINDS)
def test_what_was_gathered_of_a_member_comes_along(kind):
    """Sums that move with the weights are those that the moved model would gather anew."""
    found = case(kind)
    site, member = found.ground.sites.sites[1], found.members[1]  # pyright: ignore

    moved = weight_matching.moved_member(member, found.ground, symmetry.drawn(found.ground.symmetry, 4))

    anew = statistics.gather(site, moved.weights, seed=1)
    assert set(moved.statistics) == set(anew) == set(member.statistics)
    for key, value in moved.statistics.items():
        np.testing.assert_allclose(
            value, anew[key], rtol=1e-3, atol=1e-4 * np.abs(anew[key]).max(), err_msg=key
        )


@pytest.mark.parametrize("rule", ALIGN)
def test_a_trained_solo_and_its_permuted_copy_merge_to_the_solo(rule, cnn_solo, digits):
    """Their plain mean is worse than a coin; after alignment it is the solo itself."""
    model, (own,), (x,) = cnn_solo.model, cnn_solo.values, cnn_solo.xs
    ground = models.ground(model, sites=models.together(model, [x, x]))
    pair = [
        models.with_weights(model, own, len(x), 0),
        models.with_weights(model, models.moved(model, own, 3), len(x), 1),
    ]

    def accuracy(values) -> float:
        return measures.accuracy(models.logits(model, values, digits.test_x), digits.test_y)

    mean = chain.apply(chain.read("plain_mean"), pair, ground).merged
    merged = chain.apply(chain.read(f"{rule},plain_mean"), pair, ground).merged

    solo = accuracy(own)
    assert solo > 0.85
    assert accuracy(mean) < 0.5
    assert accuracy(merged) == solo
    np.testing.assert_allclose(
        models.logits(model, merged, x[:50]), models.logits(model, own, x[:50]), rtol=1e-4, atol=1e-4
    )


def test_two_networks_with_batch_norm_need_alignment_and_new_statistics(mlp_solos, digits):
    """Jordan et al., 2023, REPAIR: neither alone recovers what the mean of two models lost."""
    model = mlp_solos.model
    ground = models.ground(model, sites=models.together(model, mlp_solos.xs))
    pair = [models.with_weights(model, v, 3000, site) for site, v in enumerate(mlp_solos.values)]

    def accuracy(text: str) -> float:
        merged = chain.apply(chain.read(text), pair, ground).merged
        return measures.accuracy(models.logits(model, merged, digits.test_x), digits.test_y)

    aligned_alone = accuracy("weight_matching,plain_mean")
    renewed_alone = accuracy("plain_mean,bn_recalibration")
    both = accuracy("weight_matching,plain_mean,bn_recalibration")

    assert both > 0.8
    assert both > aligned_alone + 0.05
    assert both > renewed_alone + 0.05
    assert max(aligned_alone, renewed_alone) > accuracy("plain_mean")


@given(scores)
def test_an_assignment_is_the_best_of_all_permutations(values):
    found = weight_matching.assigned(values)

    best = max(values[np.arange(5), list(order)].sum() for order in itertools.permutations(range(5)))
    assert sorted(found) == list(range(5))
    assert values[np.arange(5), found].sum() == pytest.approx(best)


@given(arrays.arrays(np.float64, (6, 6), elements=st.floats(-10, 10)))
def test_an_assignment_stays_in_its_blocks(values):
    found = weight_matching.assigned(values, blocks=2)

    assert sorted(found[:3]) == [0, 1, 2]
    assert sorted(found[3:]) == [3, 4, 5]


def test_correlations_are_those_of_the_units_over_the_rows():
    found = case("plain")
    values = [member.weights for member in found.members]
    sites = found.ground.sites
    sums = sites.total(lambda site: site.crossed(values, ["0:Dense"], 60))  # pyright: ignore

    made = []
    for each in values:
        made.append(found.x @ each["0:Dense/kernel"] + each["0:Dense/bias"])
    expected = np.corrcoef(made[0].T, made[1].T)[:7, 7:]

    np.testing.assert_allclose(activation_matching.correlations(sums, "0:Dense", 1), expected, atol=1e-4)


def test_a_unit_that_is_always_the_same_goes_with_none():
    sums = {
        "sums/count/a": np.array(4.0),
        "sums/0/a": np.array([[4.0, 0.0], [4.0, 4.0]]),
        "sums/1/a": np.array([[0.0, 0.0], [4.0, 4.0]]),
        "1/a": np.array([[0.0, 0.0], [4.0, 0.0]]),
    }

    np.testing.assert_array_equal(activation_matching.correlations(sums, "a", 1), [[0, 0], [1, 0]])


def test_activation_matching_asks_once_and_sends_no_rows():
    found = models.case(models.plain, count=3)
    sites = found.ground.sites

    activation_matching.apply(State(tuple(found.members)), found.ground)

    assert sites is not None
    assert sites.exchanges == 1
    asked = {
        key
        for site in sites.sites
        for key in site.crossed([m.weights for m in found.members], ["0:Dense"], 9)
    }  # pyright: ignore
    assert asked == {
        "sums/count/0:Dense", "sums/0/0:Dense", "sums/1/0:Dense", "sums/2/0:Dense", "1/0:Dense", "2/0:Dense",
    }  # fmt: skip


def test_units_of_a_layer_that_is_not_understood_stay_and_the_layer_is_said():
    def recurrent() -> keras.Model:
        stack = [layers.Dense(6), layers.LSTM(5), layers.Dense(4)]
        return keras.Sequential([keras.Input((7, 3)), *stack])

    found = models.case(recurrent, count=2)

    for rule in ALIGN.values():
        state = rule(State(tuple(found.members)), found.ground)
        for before, after in zip(found.members, state.members, strict=True):
            assert same(before.weights, after.weights)
        assert any("(LSTM) is not understood" in sentence for sentence in state.said)


def test_half_precision_and_whole_numbers_keep_every_bit_and_dtype():
    """60000 is near the end of float16, and sums of its squares are beyond."""
    own = {
        "a/kernel": np.array([[60000, 1e-7, -3]], np.float16),
        "a/moving_mean": np.array([1, 2, 3], np.float16),
        "b/kernel": np.array([[1], [2], [3]], np.float16),
        "step": np.array([1 << 60], np.int64),
    }
    units = Axis(np.zeros(3, np.int64), np.arange(3))
    axes = {
        "a/kernel": (None, units), "a/moving_mean": (units,), "b/kernel": (units, None), "step": (None,),
    }  # fmt: skip
    read = Symmetry((Group("a", 3),), axes)
    copy = read.permuted(own, {0: np.array([2, 0, 1])})

    back = read.permuted(copy, weight_matching.match(read, own, copy))

    assert same(back, own)
    assert {name: value.dtype for name, value in back.items()} == {n: v.dtype for n, v in own.items()}


def test_units_that_activation_matching_cannot_see_stay_and_are_said():
    """A layer that is too wide for sums of its inputs is no map."""
    found = case("plain")
    narrow = replace(found.ground, maps={}, order=[])

    state = activation_matching.apply(State(tuple(found.members)), narrow)

    assert len(state.said) == 2
    assert "left the units of dense" in state.said[0]
    assert same(state.members[1].weights, found.members[1].weights)
