"""The arithmetic of merging: what must hold for any members, and the faults that others have shipped."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, strategies as st
from hypothesis.extra import numpy as arrays

from fourfold.contract.errors import InvalidInputError
from fourfold.rules import plain_mean, weighted_mean
from fourfold.rules.members import Member
from fourfold.rules.state import State
from fourfold.rules.table import NEEDS, RULES, TABLE, numbers_of

SHAPES = {"0:Dense/kernel": (3, 2), "0:Dense/bias": (2,)}
MERGES = {"plain_mean": plain_mean.merge, "weighted_mean": weighted_mean.merge}


def member(weights: dict[str, np.ndarray], rows: float = 10, index: int = 0) -> Member:
    return Member(f"model {index}", weights, ("0 Dense",), ("",), rows)  # pyright: ignore[reportArgumentType]


def single(value: Any, rows: float = 10, dtype: Any = np.float32) -> Member:
    return member({"0:Dense/bias": np.atleast_1d(np.asarray(value, dtype=dtype))}, rows)


def merged(rule, members) -> np.ndarray:
    return rule(members)["0:Dense/bias"]


@st.composite
def some_weights(draw, dtype: Any = np.float32) -> dict[str, np.ndarray]:
    numbers = st.floats(-1000, 1000, width=np.dtype(dtype).itemsize * 8)  # pyright: ignore[reportArgumentType]
    return {name: draw(arrays.arrays(dtype, shape, elements=numbers)) for name, shape in SHAPES.items()}


@st.composite
def some_members(draw, low: int = 1) -> list[Member]:
    count = draw(st.integers(low, 6))
    return [member(draw(some_weights()), draw(st.integers(1, 100_000)), index) for index in range(count)]


@pytest.mark.parametrize("name", MERGES)
@pytest.mark.parametrize("dtype", [np.float16, np.float32])
@given(data=st.data())
def test_equal_members_merge_to_themselves_bit_for_bit(name, dtype, data):
    """Sums are taken in float64, so float32 and narrower arrays come back to the last bit, -0.0 too."""
    weights = data.draw(some_weights(dtype))
    counts = data.draw(st.lists(st.integers(1, 10_000), min_size=1, max_size=7))

    result = MERGES[name]([member(weights, rows) for rows in counts])

    assert list(result) == list(weights)
    for key, value in result.items():
        assert value.dtype == weights[key].dtype
        assert value.tobytes() == weights[key].tobytes()


@pytest.mark.parametrize("name", MERGES)
@given(weights=some_weights(np.float64), counts=st.lists(st.integers(1, 10_000), min_size=1, max_size=7))
def test_equal_members_in_float64_merge_to_themselves_up_to_rounding(name, weights, counts):
    result = MERGES[name]([member(weights, rows) for rows in counts])

    for key, value in result.items():
        np.testing.assert_allclose(value, weights[key], rtol=1e-14, atol=1e-300)


@pytest.mark.parametrize("name", MERGES)
@given(members=some_members(), random=st.randoms(use_true_random=False))
def test_the_order_of_members_does_not_matter(name, members, random):
    other = list(members)
    random.shuffle(other)

    a, b = MERGES[name](members), MERGES[name](other)

    for key in a:
        np.testing.assert_allclose(a[key], b[key], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", MERGES)
@given(members=some_members())
def test_a_merge_lies_between_its_members(name, members):
    for key, value in MERGES[name](members).items():
        stacked = np.stack([m.weights[key] for m in members])
        assert (value >= stacked.min(axis=0) - 1e-4).all()
        assert (value <= stacked.max(axis=0) + 1e-4).all()


@given(some_members(low=2))
def test_each_member_counts_by_its_rows(members):
    total = sum(m.rows for m in members)

    result = weighted_mean.merge(members)

    for key, value in result.items():
        expected = sum(m.rows * m.weights[key].astype(np.float64) for m in members) / total
        np.testing.assert_allclose(value, expected, rtol=1e-6, atol=1e-6)


@given(some_members(), st.integers(1, 1000))
def test_the_weighted_mean_of_equal_counts_is_the_plain_mean(members, rows):
    equal = [member(dict(m.weights), rows) for m in members]

    weighted, plain = weighted_mean.merge(equal), plain_mean.merge(equal)

    for key in plain:
        np.testing.assert_allclose(weighted[key], plain[key], rtol=1e-6, atol=1e-6)


def test_the_plain_mean_is_half_of_each_and_the_weighted_one_leans_to_the_larger():
    members = [single([1.0], rows=1500), single([0.0], rows=500)]

    assert merged(plain_mean.merge, members) == [0.5]
    assert merged(weighted_mean.merge, members) == [0.75]


def test_a_member_without_rows_counts_nothing():
    assert merged(weighted_mean.merge, [single([3.0], rows=0), single([7.0], rows=5)]) == [7.0]


@pytest.mark.parametrize(
    ("counts", "said"),
    [
        ((0, 0), r"no member was trained on any row \(rows: \[0, 0\]\)"),
        ((5, -1), "model 1 was trained on -1 rows"),
        ((-5, 5), "model 0 was trained on -5 rows"),
        ((float("nan"), 5), "model 0 was trained on nan rows"),
        ((5, float("inf")), "model 1 was trained on inf rows"),
    ],
)
def test_counts_that_are_none_are_refused_with_the_member(counts, said):
    members = [member({"0:Dense/bias": np.ones(1)}, rows, index) for index, rows in enumerate(counts)]

    with pytest.raises(InvalidInputError, match=said):
        weighted_mean.merge(members)


@pytest.mark.parametrize("rule", MERGES.values())
def test_float16_neither_overflows_nor_vanishes(rule):
    big = merged(rule, [single(60000, dtype=np.float16)] * 2)
    small = merged(rule, [single(1e-7, dtype=np.float16)] * 4)

    assert big.dtype == np.float16
    assert big == [60000]
    assert small.dtype == np.float16
    assert small == [np.float16(1e-7)]
    assert small[0] > 0


@pytest.mark.parametrize("rule", MERGES.values())
def test_bfloat16_is_averaged_too(rule):
    result = merged(rule, [single(1, dtype=ml_dtypes.bfloat16), single(3, dtype=ml_dtypes.bfloat16)])

    assert result.dtype == ml_dtypes.bfloat16
    assert result == [2]


@pytest.mark.parametrize("rule", MERGES.values())
@pytest.mark.parametrize("dtype", [np.int64, np.uint32, np.bool_])
def test_state_that_is_no_number_of_a_kind_to_average_stays_as_the_first_member_has_it(rule, dtype):
    first = np.array([1, 0], dtype=dtype)
    members = [member({"1:Dropout/seed": first}), member({"1:Dropout/seed": np.array([0, 1], dtype=dtype)})]

    kept = rule(members)["1:Dropout/seed"]

    assert kept.dtype == dtype
    assert kept.tolist() == first.tolist()
    assert kept is not first


@pytest.mark.parametrize("rule", MERGES.values())
def test_moving_statistics_are_averaged(rule):
    members = [
        member({"1:BatchNormalization/moving_mean": np.full(2, value, np.float32)}) for value in (0, 10)
    ]

    assert rule(members)["1:BatchNormalization/moving_mean"].tolist() == [5, 5]


@pytest.mark.parametrize("rule", MERGES.values())
def test_members_are_left_as_they_are(rule):
    members = [single([1.0]), single([3.0])]

    merged(rule, members)[0] = 99

    assert [m.weights["0:Dense/bias"].tolist() for m in members] == [[1.0], [3.0]]


@given(some_members(low=2))
def test_the_shares_of_members_sum_to_one(members):
    """A constant that all members have comes back, whatever their rows; so the shares sum to 1."""
    ones = [member({"0:Dense/bias": np.ones(2)}, m.rows, index) for index, m in enumerate(members)]

    for merge in MERGES.values():
        np.testing.assert_allclose(merge(ones)["0:Dense/bias"], 1, rtol=1e-15)


def test_the_table_lists_each_rule_once_with_what_it_needs_and_how_often_sites_are_asked():
    assert list(RULES) == [rule.name for rule in TABLE]
    for rule in TABLE:
        assert rule.needs in NEEDS
        assert rule.kind in ("align", "merge", "after")
        asks = rule.needs in ("statistics", "sums", "own labels")
        assert asks == (rule.exchanges != "0")


def test_only_rules_that_see_labels_train():
    assert [rule.name for rule in TABLE if rule.trains] == ["coefficients", "head_refit"]
    for rule in TABLE:
        assert not rule.trains or rule.needs in ("calibration rows", "own labels")


def test_every_rules_numbers_have_defaults_that_are_numbers():
    for rule in TABLE:
        for name, value in numbers_of(rule).items():
            assert isinstance(value, int | float), f"{rule.name}:{name}"


@pytest.mark.parametrize("name", MERGES)
def test_a_mean_in_the_table_is_the_mean(name):
    members = [single([1.0], rows=1500), single([0.0], rows=500)]
    nothing: Any = None

    state = RULES[name].apply(State(tuple(members)), nothing)

    assert state.merged is not None
    assert state.merged["0:Dense/bias"] == merged(MERGES[name], members)
    assert state.members == tuple(members)
