"""Rules that see calibration rows, or the weights that all members started from."""

import functools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, strategies as st

from fourfold.model import measures
from fourfold.rules import coefficients, greedy_soup, plain_mean, task_arithmetic, ties
from fourfold.rules.members import Member
from fourfold.rules.state import State
from tests.rules import models

case = functools.cache(lambda kind: models.case(models.KINDS[kind], count=3))
seeds = st.integers(0, 10_000)
NAMES = ("a/kernel", "a/bias", "b/moving_mean", "step")


def weights_of(seed: int, dtype=np.float32) -> dict[str, np.ndarray]:
    generator = np.random.default_rng(seed)
    made = {name: generator.normal(size=(3, 2)).astype(dtype) for name in NAMES[:3]}
    return {**made, "step": np.array([1 << 60], np.int64)}


def member(values: dict[str, np.ndarray], index: int = 0) -> Member:
    return Member(f"model {index}", values, (), (), 10, index)


def some(seed: int, count: int = 3, dtype=np.float32) -> tuple[list[Member], dict[str, np.ndarray]]:
    """Members and their common start."""
    members = [member(weights_of(seed + 1 + index, dtype), index) for index in range(count)]
    return members, weights_of(seed, dtype)


def close(a, b, atol: float = 1e-5) -> None:
    assert list(a) == list(b)
    for name in a:
        assert a[name].dtype == b[name].dtype
        np.testing.assert_allclose(a[name], b[name], atol=atol, err_msg=name)


def single(value, dtype=np.float32) -> Member:
    return member({"a": np.asarray(value, dtype)})


def labelled(found: models.Case, index: int) -> models.Case:
    """Calibration rows with the labels that one of the members gives them."""
    rows = found.ground.calibration
    assert rows is not None
    y = models.logits(found.model, found.members[index].weights, rows.x).argmax(axis=1)
    return replace(found, ground=replace(found.ground, calibration=replace(rows, y=y)))


def accuracy(found: models.Case, values) -> float:
    rows = found.ground.calibration
    assert rows is not None
    return measures.accuracy(models.logits(found.model, values, rows.x), rows.y)


def loss(found: models.Case, values) -> float:
    rows = found.ground.calibration
    assert rows is not None
    return measures.cross_entropy(models.logits(found.model, values, rows.x), rows.y)


@given(seeds, st.integers(1, 5))
def test_task_arithmetic_with_one_over_the_number_of_members_is_the_mean(seed, count):
    members, start = some(seed, count)

    close(task_arithmetic.merge(members, start, 1 / count), plain_mean.merge(members))


@given(seeds)
def test_task_arithmetic_with_0_is_the_start_and_adds_in_proportion(seed):
    members, start = some(seed)
    none, one, two = (task_arithmetic.merge(members, start, scale) for scale in (0, 1, 2))

    for name in NAMES[:2]:
        np.testing.assert_allclose(none[name], start[name], atol=1e-6)
        np.testing.assert_allclose(two[name] - none[name], 2 * (one[name] - none[name]), atol=1e-4)
    np.testing.assert_array_equal(one["b/moving_mean"], plain_mean.merge(members)["b/moving_mean"])


def test_task_arithmetic_takes_the_scale_with_the_least_loss_of_all_that_are_tried():
    found = labelled(case("plain"), 1)

    state = task_arithmetic.apply(State(tuple(found.members)), found.ground)

    start = found.ground.start
    assert start is not None
    each = {s: loss(found, task_arithmetic.merge(found.members, start, s)) for s in task_arithmetic.SCALES}
    best = min(each, key=each.__getitem__)
    assert loss(found, state.base) == pytest.approx(each[best])
    assert state.said == (f"task_arithmetic took the scale {best:g} by calibration rows.",)


def test_task_arithmetic_without_calibration_rows_is_the_mean_and_with_a_scale_takes_that():
    found = case("plain")
    start = found.ground.start
    assert start is not None
    state = State(tuple(found.members))

    mean = task_arithmetic.apply(state, replace(found.ground, calibration=None)).base
    told = task_arithmetic.apply(state, found.ground, scale=0.4).base

    close(mean, plain_mean.merge(found.members))
    close(told, task_arithmetic.merge(found.members, start, 0.4))


@given(seeds)
def test_ties_that_keep_all_of_one_member_give_it_back(seed):
    (only,), start = some(seed, count=1)

    close(ties.merge([only], start, keep=1), dict(only.weights))


@given(seeds, st.integers(2, 4))
def test_ties_that_keep_all_of_equal_members_give_them_back(seed, count):
    (only,), start = some(seed, count=1)

    close(ties.merge([only] * count, start, keep=1), dict(only.weights))


def kept_of(member: Member, start: dict[str, np.ndarray], keep: float) -> dict[str, np.ndarray]:
    """A member's changes since the start, all but the largest set to 0."""
    least = ties._least(member, start, NAMES[:2], keep)
    changes = {name: member.weights[name].astype(float) - start[name].astype(float) for name in NAMES[:2]}
    return {name: ties._kept(change, least) for name, change in changes.items()}


@given(seeds, st.sampled_from([0.1, 0.2, 0.5, 1.0]))
def test_ties_add_nothing_that_no_member_kept_and_keep_the_share_that_is_said(seed, keep):
    members, start = some(seed, count=2)
    for each in members:
        kept = kept_of(each, start, keep)
        count = sum(int((change != 0).sum()) for change in kept.values())
        assert count == max(1, round(keep * 12))
        least = min(np.abs(change[change != 0]).min(initial=np.inf) for change in kept.values())
        for name, change in kept.items():
            whole = each.weights[name].astype(float) - start[name].astype(float)
            assert (np.abs(whole[change == 0]) <= least).all()

    merged = ties.merge(members, start, keep)

    stays = np.logical_and(*(kept_of(each, start, keep)["a/kernel"] == 0 for each in members))
    np.testing.assert_array_equal(merged["a/kernel"][stays], start["a/kernel"][stays])


def test_ties_take_the_mean_of_those_that_agree_with_the_elected_sign():
    """Yadav et al., 2023, figure 1: a sign is elected by the sum; who contradicts it does not count."""
    members = [single([4.0, 1.0, 2.0]), single([2.0, -3.0, 0.0]), single([-1.0, 1.0, 4.0])]

    merged = ties.merge(members, {"a": np.zeros(3, np.float32)}, keep=1)["a"]

    assert merged.tolist() == [3.0, -3.0, 3.0]


def test_ties_scale_what_they_add():
    members, start = [single([4.0]), single([2.0])], {"a": np.array([1.0], np.float32)}

    assert ties.merge(members, start, keep=1, scale=0.5)["a"] == [1 + 0.5 * 2]


@pytest.mark.parametrize("rule", ["task_arithmetic", "ties", "coefficients"])
def test_half_precision_and_whole_numbers_stay_right(rule):
    """60000 + 60000 is beyond float16, and 1e-7 near its least."""
    own = {"a": np.array([60000, 1e-7], np.float16), "step": np.array([1 << 60], np.int64)}
    start = {"a": np.array([50000, 0], np.float16), "step": np.array([0], np.int64)}
    merges = {
        "task_arithmetic": lambda pair: task_arithmetic.merge(pair, start, 0.5),
        "ties": lambda pair: ties.merge(pair, start, keep=1),
        "coefficients": lambda pair: coefficients.mix(pair, np.full((2, 1), 0.5)),
    }

    merged = merges[rule]([member(own), member(own, 1)])

    for name, value in own.items():
        assert merged[name].dtype == value.dtype
        assert merged[name].tolist() == value.tolist()


@given(seeds)
def test_a_mix_with_all_of_one_member_is_that_member_and_with_equal_shares_the_mean(seed):
    members, _ = some(seed)
    one = np.zeros((3, 3))
    one[1] = 1

    alone, equal = coefficients.mix(members, one), coefficients.mix(members, np.full((3, 3), 1 / 3))

    close(alone, dict(members[1].weights))
    close(equal, plain_mean.merge(members))


def test_coefficients_begin_with_the_mean_and_lower_the_loss():
    found = labelled(case("plain"), 1)
    state = State(tuple(found.members))

    begun = coefficients.apply(state, found.ground, steps=0).base
    some_steps = coefficients.apply(state, found.ground, steps=15).base

    close(begun, plain_mean.merge(found.members))
    assert loss(found, some_steps) < loss(found, begun) - 0.01


def test_a_first_step_of_coefficients_goes_down_each_slope_by_the_rate():
    """Adam's first step is the rate in the direction of each slope, here measured by differences."""
    found = labelled(case("plain"), 0)
    names = list(found.members[0].weights)
    mean = plain_mean.merge(found.members)

    made = coefficients.apply(State(tuple(found.members)), found.ground, steps=1, rate=1e-3).base

    for place, name in enumerate(names):
        slopes = []
        for index in range(3):
            shares = np.full((3, len(names)), 1 / 3)
            shares[index, place] += 1e-2
            slopes.append(loss(found, coefficients.mix(found.members, shares)) - loss(found, mean))
        expected = sum(
            -1e-3 * np.sign(slope) * each.weights[name]
            for slope, each in zip(slopes, found.members, strict=True)
        )
        if min(abs(slope) for slope in slopes) > 1e-4:
            np.testing.assert_allclose(made[name] - mean[name], expected, atol=1e-5)


@pytest.mark.parametrize("best", [0, 1, 2])
def test_a_soup_is_never_worse_on_its_rows_than_the_best_member_and_says_who_is_in(best):
    found = labelled(case("plain"), best)

    state = greedy_soup.apply(State(tuple(found.members)), found.ground)

    assert accuracy(found, state.base) >= accuracy(found, found.members[best].weights) == 1
    assert f"members: model {best}" in state.said[0]


def test_a_soup_of_members_that_spoil_it_is_the_best_one_alone():
    found = labelled(case("mlp"), 1)

    state = greedy_soup.apply(State(tuple(found.members)), found.ground)

    assert state.said == ("greedy_soup took 1 of 3 members: model 1.",)
    for name, value in found.members[1].weights.items():
        np.testing.assert_array_equal(state.base[name], value)


def test_a_soup_of_members_that_do_no_harm_takes_all_of_them():
    found = labelled(case("plain"), 0)
    rng = np.random.default_rng(0)
    near = [
        replace(m, weights={
            name: value + np.float32(1e-5) * rng.normal(size=value.shape).astype(value.dtype)
            for name, value in found.members[0].weights.items()
        })
        for m in found.members
    ]  # fmt: skip

    state = greedy_soup.apply(State(tuple(near)), found.ground)

    assert state.said[0].startswith("greedy_soup took 3 of 3 members")
    close(state.base, plain_mean.merge(near))
