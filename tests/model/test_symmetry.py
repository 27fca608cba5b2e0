"""Permutations of units: pure arithmetic on arrays whose axes are known."""

import numpy as np
import pytest
from hypothesis import given, strategies as st

from fourfold.model import symmetry
from fourfold.model.symmetry import Axis, Group, Symmetry

UNITS, CHANNELS, PLACES = 6, 4, 3


def along(group: int, size: int, times: int = 1, block: bool = False) -> Axis:
    """An axis with a group's units, again and again."""
    return Axis(np.full(size * times, group), np.tile(np.arange(size), times), block)


def network() -> Symmetry:
    """Input 2, channels in blocks of 2 and a grouped convolution, flattened to units, then outputs."""
    free = Group("units", UNITS), Group("channels", CHANNELS, blocks=2), Group("outputs", 3, free=False)
    axes = {
        "channels/kernel": (None, along(1, CHANNELS)),
        "channels/bias": (along(1, CHANNELS),),
        "grouped/kernel": (Axis(np.full(2, 1), np.arange(2), block=True), along(1, CHANNELS)),
        "flat/kernel": (along(1, CHANNELS, PLACES), along(0, UNITS)),
        "out/kernel": (along(0, UNITS), along(2, 3)),
    }
    return Symmetry(free, axes)


def values(seed: int) -> dict[str, np.ndarray]:
    generator = np.random.default_rng(seed)
    shapes = {
        "channels/kernel": (2, CHANNELS), "channels/bias": (CHANNELS,), "grouped/kernel": (2, CHANNELS),
        "flat/kernel": (CHANNELS * PLACES, UNITS), "out/kernel": (UNITS, 3), "elsewhere": (2, 2),
    }  # fmt: skip
    return {name: generator.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}


def function(v: dict[str, np.ndarray], x: np.ndarray) -> np.ndarray:
    """What the network computes of rows [n, places, 2], by hand."""
    made = np.maximum(x @ v["channels/kernel"] + v["channels/bias"], 0)
    halves = [made[..., :2] @ v["grouped/kernel"][:, :2], made[..., 2:] @ v["grouped/kernel"][:, 2:]]
    flat = np.tanh(np.concatenate(halves, axis=-1) + made).reshape(len(x), -1)
    return np.maximum(flat @ v["flat/kernel"], 0) @ v["out/kernel"]


def same(a: dict[str, np.ndarray], b: dict[str, np.ndarray]) -> bool:
    return list(a) == list(b) and all(np.array_equal(a[name], b[name]) for name in a)


seeds = st.integers(0, 10_000)


@given(seeds)
def test_a_networks_function_is_the_same_in_any_order(seed):
    x = np.random.default_rng(seed).normal(size=(5, PLACES, 2))
    v = values(seed)

    moved = network().permuted(v, symmetry.drawn(network(), seed))

    np.testing.assert_allclose(function(moved, x), function(v, x), rtol=1e-4, atol=1e-5)


def test_one_array_alone_changes_the_function():
    x, v = np.random.default_rng(1).normal(size=(5, PLACES, 2)), values(1)
    orders = {0: np.roll(np.arange(UNITS), 1), 1: np.array([1, 0, 3, 2])}

    for name in network().axes:
        wrong = {**v, name: network().of_one(name, v[name], orders)}
        assert np.abs(function(wrong, x) - function(v, x)).max() > 0.01, name


def test_units_that_leave_their_block_change_the_function():
    x, v = np.random.default_rng(1).normal(size=(5, PLACES, 2)), values(1)
    orders = {1: np.array([2, 3, 0, 1])}
    without = {name: each for name, each in v.items() if name != "grouped/kernel"}

    moved = {**network().permuted(without, orders), "grouped/kernel": v["grouped/kernel"]}

    assert np.abs(function(moved, x) - function(v, x)).max() > 0.01


@given(seeds)
def test_orders_that_are_drawn_are_permutations_that_stay_in_their_blocks(seed):
    orders = symmetry.drawn(network(), seed)

    assert set(orders) == {0, 1}
    assert sorted(orders[0]) == list(range(UNITS))
    assert sorted(orders[1][:2]) == [0, 1]
    assert sorted(orders[1][2:]) == [2, 3]


@given(seeds)
def test_the_same_seed_draws_the_same_orders(seed):
    first, second = symmetry.drawn(network(), seed), symmetry.drawn(network(), seed)

    assert all(np.array_equal(first[group], second[group]) for group in first)


@given(seeds)
def test_an_order_and_its_inverse_give_back_every_bit(seed):
    v, orders = values(seed), symmetry.drawn(network(), seed)
    back = {group: np.argsort(order) for group, order in orders.items()}

    assert same(network().permuted(network().permuted(v, orders), back), v)


@given(seeds, seeds)
def test_composed_orders_do_what_one_after_the_other_does(first, second):
    v, one, two = values(0), symmetry.drawn(network(), first), symmetry.drawn(network(), second)

    at_once = network().permuted(v, symmetry.composed(one, two))

    assert same(at_once, network().permuted(network().permuted(v, one), two))


def test_the_identity_and_no_orders_change_nothing():
    assert same(network().permuted(values(0), symmetry.identity(network())), values(0))
    assert same(network().permuted(values(0), {}), values(0))


def test_what_the_model_does_not_have_stays_as_it_is():
    moved = network().permuted(values(0), symmetry.drawn(network(), 1))

    np.testing.assert_array_equal(moved["elsewhere"], values(0)["elsewhere"])


def test_groups_that_are_held_or_of_one_unit_are_not_free():
    groups = (Group("a", 3), Group("b", 3, free=False), Group("c", 1))

    assert Symmetry(groups, {}).free() == [0]


@pytest.mark.parametrize("group", [0, 1])
@given(seeds)
def test_similarity_is_the_inner_product_of_what_belongs_to_two_units(group, seed):
    """The sum over units of how alike they are, in an order, is the inner product of the moved weights."""
    fixed, other = values(seed), values(seed + 1)
    names = [
        n for n, axes in network().axes.items() if any(a is not None and a.group[0] == group for a in axes)
    ]
    order = symmetry.drawn(network(), seed)[group]

    scores = symmetry.similarity(network(), group, fixed, other, names)

    # A grouped kernel has the group on both of its axes: it counts once for each while the other one rests.
    once = [name for name in names if name != "grouped/kernel"]
    without = symmetry.similarity(network(), group, fixed, other, once)
    moved = network().permuted(other, {group: order})
    inner = sum(float(np.vdot(fixed[name].astype(float), moved[name].astype(float))) for name in once)
    np.testing.assert_allclose(without[np.arange(len(order)), order].sum(), inner, rtol=1e-9, atol=1e-9)
    if "grouped/kernel" in names:
        kernels = [np.split(v["grouped/kernel"].astype(float), 2, axis=1) for v in (fixed, other)]
        inputs = [a @ b.T for a, b in zip(*kernels, strict=True)]
        more = np.zeros((CHANNELS, CHANNELS))
        more[:2, :2], more[2:, 2:] = inputs
        more += fixed["grouped/kernel"].astype(float).T @ other["grouped/kernel"].astype(float)
        np.testing.assert_allclose(scores - without, more, atol=1e-9)
    assert scores.dtype == np.float64


@given(seeds)
def test_no_order_makes_a_copy_more_like_its_original_than_the_one_that_brings_it_back(seed):
    order = symmetry.drawn(network(), seed)[0]
    names = ["flat/kernel", "out/kernel"]

    scores = symmetry.similarity(
        network(), 0, values(seed), network().permuted(values(seed), {0: order}), names
    )

    back, every = np.argsort(order), np.arange(UNITS)
    weights = np.hstack([values(seed)["flat/kernel"].T, values(seed)["out/kernel"]])
    own = np.square(weights).sum(axis=1)
    np.testing.assert_allclose(scores[every, back], own, rtol=1e-5)
    for other in range(5):
        assert scores[every, symmetry.drawn(network(), other)[0]].sum() <= own.sum() + 1e-4


def test_dtypes_are_kept():
    half = {name: value.astype(np.float16) for name, value in values(0).items()}

    moved = network().permuted(half, symmetry.drawn(network(), 1))

    assert {value.dtype for value in moved.values()} == {np.dtype(np.float16)}
