"""How far apart models are: a distance as the books have it, for every two, at every time."""

import itertools

import numpy as np
import pytest
from hypothesis import given, strategies as st
from hypothesis.extra import numpy as arrays

from fourfold.contract.errors import InvalidInputError
from fourfold.evaluate import distances

SHAPES = st.tuples(st.integers(2, 4), st.integers(1, 3), st.integers(1, 3), st.integers(1, 5))
MEMBERS = SHAPES.flatmap(
    lambda shape: arrays.arrays(np.float32, shape, elements=st.floats(-99, 99, width=32))
)


def test_the_distance_of_the_source():
    left, right = (np.asarray([[row]], np.float64) for row in ([0.5, -0.2, 0.3, 0.8], [0.4, -0.1, 0.5, 0.7]))

    assert distances.between([left, right]) == pytest.approx(np.sqrt(0.07))
    assert round(float(distances.between([left, right])[0, 0]), 3) == 0.265


def test_it_is_a_mean_over_rows_of_distances_and_not_the_distance_of_means():
    rows = np.asarray([[[3, 4], [-6, -8]]], np.float32)

    assert distances.between([rows, np.zeros_like(rows)]).tolist() == [[7.5]]


@given(MEMBERS)
def test_every_two_members_have_a_distance_at_every_time_each_as_if_they_were_alone(members):
    found = distances.between(list(members))

    assert found.shape == (members.shape[1], len(distances.pairs(len(members))))
    for place, (left, right) in enumerate(distances.pairs(len(members))):
        assert left < right
        alone = distances.between([members[left], members[right]])
        back = distances.between([members[right], members[left]])
        assert found[:, place].tolist() == alone[:, 0].tolist() == back[:, 0].tolist()


@given(MEMBERS)
def test_it_is_a_metric(members):
    found = dict(zip(distances.pairs(len(members)), distances.between(list(members)).T, strict=True))

    for pair, values in found.items():
        assert (values >= 0).all()
        assert ((values == 0) == (members[pair[0]] == members[pair[1]]).all(axis=(1, 2))).all()
    for a, b, c in itertools.combinations(range(len(members)), 3):
        assert (found[a, c] <= found[a, b] + found[b, c] + 1e-9).all()


@given(MEMBERS, st.integers(0, 3), st.integers(0, 3))
def test_what_is_equal_throughout_is_found_and_nothing_else(members, source, target):
    members[target % len(members)] = members[source % len(members)]

    groups = distances.equal(distances.between(list(members)), len(members))

    together = {pair for group in groups for pair in itertools.combinations(group, 2)}
    same = {
        (left, right)
        for left, right in distances.pairs(len(members))
        if (members[left] == members[right]).all()
    }
    assert together == same
    assert all(len(group) > 1 for group in groups)


def test_members_that_part_or_meet_are_not_equal():
    assert distances.equal(np.asarray([[0.0], [0.1]]), 2) == []
    assert distances.equal(np.asarray([[0.1], [0.0]]), 2) == []
    assert distances.equal(np.asarray([[0.0], [0.0]]), 2) == [[0, 1]]
    assert distances.equal(np.asarray([[np.nan]]), 2) == []


def test_one_member_has_no_pair():
    assert distances.between([np.zeros((3, 2, 1))]).shape == (3, 0)
    assert distances.equal(np.zeros((3, 0)), 1) == []


def test_members_of_other_shapes_are_refused_also_where_numpy_would_take_them():
    with pytest.raises(InvalidInputError, match=r"one shape, got \[\(1, 2, 3\), \(1, 1, 3\)\]"):
        distances.between([np.zeros((1, 2, 3)), np.zeros((1, 1, 3))])


def test_what_is_not_finite_has_no_distance_and_no_warning():
    endless = np.full((1, 2, 3), np.inf)

    assert np.isnan(distances.between([endless, endless])).all()
