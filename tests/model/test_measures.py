"""Accuracy, loss, soft vote, confusion and ROC, held against Keras and against the source's numbers."""

import math
from typing import Any

import keras
import numpy as np
import pytest
from hypothesis import given, strategies as st
from hypothesis.extra import numpy as arrays

from fourfold.contract.errors import InvalidInputError
from fourfold.contract.strict import finite
from fourfold.model import measures

SCORES = ([0.10, 0.70, 0.20], [0.15, 0.55, 0.30], [0.05, 0.80, 0.15])


@st.composite
def logits_and_labels(draw) -> tuple[np.ndarray, np.ndarray]:
    """Logits float32 [n, classes] between -50 and 50, and labels int32 [n]."""
    shape = draw(st.tuples(st.integers(1, 20), st.integers(2, 12)))
    logits = draw(arrays.arrays(np.float32, shape, elements=st.floats(-50, 50, width=32)))
    labels = draw(arrays.arrays(np.int32, shape[0], elements=st.integers(0, shape[1] - 1)))
    return logits, labels


def test_the_vote_of_the_source():
    voted = measures.soft_vote([np.log(np.array([row])) for row in SCORES])

    np.testing.assert_allclose(voted[0], [0.10, 0.683, 0.217], atol=5e-4)
    assert int(np.argmax(voted[0])) == 1
    assert measures.accuracy(voted, np.array([1])) == 1.0
    assert measures.vote_loss(voted, np.array([1])) == pytest.approx(-math.log(2.05 / 3))


@given(st.integers(1, 5), logits_and_labels())
def test_a_vote_sums_to_one_whatever_the_order_of_its_members(count, pair):
    members = [np.roll(pair[0], shift, axis=1) for shift in range(count)]

    voted = measures.soft_vote(members)

    np.testing.assert_allclose(voted.sum(axis=-1), 1, atol=1e-12)
    np.testing.assert_allclose(measures.soft_vote(members[::-1]), voted, atol=1e-12)


@given(logits_and_labels())
def test_a_vote_of_equal_members_is_the_member(pair):
    logits, labels = pair

    voted = measures.soft_vote([logits] * 3)

    np.testing.assert_allclose(voted, measures.probabilities(logits), atol=1e-12)
    assert measures.vote_loss(voted, labels) == pytest.approx(
        measures.cross_entropy(logits, labels), abs=1e-9
    )


@pytest.mark.parametrize("members", [[], [np.zeros((2, 3)), np.zeros((2, 4))]])
def test_a_vote_needs_members_of_one_shape(members):
    with pytest.raises(InvalidInputError, match="one shape"):
        measures.soft_vote(members)


@given(logits_and_labels())
def test_the_loss_is_that_of_keras(pair):
    logits, labels = pair

    losses: Any = keras.losses.sparse_categorical_crossentropy(labels, logits, from_logits=True)

    expected = pytest.approx(float(np.mean(losses)), rel=1e-4, abs=1e-5)
    assert measures.cross_entropy(logits, labels) == expected


def test_huge_logits_have_a_finite_loss():
    logits = np.array([[1e30, -1e30], [3e38, -3e38]], dtype=np.float32)

    assert measures.cross_entropy(logits, np.array([0, 0])) == 0.0
    assert math.isfinite(measures.cross_entropy(logits, np.array([1, 1])))
    np.testing.assert_array_equal(measures.probabilities(logits), [[1, 0], [1, 0]])


def test_a_vote_that_gives_the_right_class_nothing_has_no_finite_loss_and_does_not_warn():
    assert finite(measures.vote_loss(np.array([[1.0, 0.0]]), np.array([1]))) is None


def test_rows_with_nan_count_as_wrong_and_are_left_out_of_the_confusion():
    logits = np.array([[0, 9, 0], [np.nan, 0, 0], [np.nan, np.nan, np.nan], [9, 0, 0]], dtype=np.float32)
    labels = np.array([1, 0, 0, 0])

    assert measures.accuracy(logits, labels) == 0.5
    assert measures.confusion(logits, labels, 3).tolist() == [[1, 0, 0], [0, 1, 0], [0, 0, 0]]
    assert finite(measures.cross_entropy(logits, labels)) is None


def test_a_score_of_nan_logits_has_no_loss_but_an_accuracy():
    good, bad = np.array([[5.0, 0.0]]), np.array([[np.nan, 0.0]])

    score = measures.score(
        {"holdout": good, "test": bad}, {"holdout": np.array([0]), "test": np.array([0])}, "d"
    )

    assert (score.accuracy, score.loss) == (0.0, None)
    assert score.holdout_accuracy == 1.0
    assert score.holdout_loss == pytest.approx(math.log1p(math.exp(-5)))
    assert score.weights_sha256 == "d"


@given(logits_and_labels())
def test_the_confusion_counts_every_row_once_and_agrees_with_the_accuracy(pair):
    logits, labels = pair
    classes = logits.shape[1]

    table = measures.confusion(logits, labels, classes)

    assert table.sum(axis=1).tolist() == np.bincount(labels, minlength=classes).tolist()
    assert np.trace(table) / len(labels) == pytest.approx(measures.accuracy(logits, labels))


# The receiver operating characteristic.

FEW = st.sampled_from([-2.0, 0.0, 0.5, 3.0])


@st.composite
def with_ties(draw) -> tuple[np.ndarray, np.ndarray]:
    """As ``logits_and_labels``, of few different logits, so that decisions tie."""
    shape = draw(st.tuples(st.integers(1, 30), st.integers(2, 4)))
    logits = draw(arrays.arrays(np.float64, shape, elements=FEW))
    labels = draw(arrays.arrays(np.int32, shape[0], elements=st.integers(0, shape[1] - 1)))
    return logits, labels


CASES = logits_and_labels() | with_ties()


def rank_statistic(logits: np.ndarray, labels: np.ndarray) -> float:
    """Share of pairs of a right and a wrong decision in which the right one scores higher; a tie is half."""
    given_ = measures.probabilities(logits)
    positive = np.arange(given_.shape[1]) == labels[:, None]
    right, wrong = given_[positive][:, None], given_[~positive][None, :]
    return float(np.mean((right > wrong) + 0.5 * (right == wrong)))


@given(CASES)
def test_the_area_is_the_rank_statistic_of_mann_and_whitney(pair):
    _, area = measures.roc(*pair)

    assert area == pytest.approx(rank_statistic(*pair), abs=1e-9)


@given(CASES, st.integers(2, 200))
def test_a_curve_is_finite_and_goes_up_from_nothing_to_everything(pair, points):
    curve, area = measures.roc(*pair, points=points)

    assert curve.dtype == np.float64
    assert np.isfinite(curve).all()
    assert 2 <= len(curve) <= points
    assert curve[0, :2].tolist() == [0, 0]
    assert curve[-1, :2].tolist() == [1, 1]
    assert (np.diff(curve[:, :2], axis=0) >= 0).all()
    assert (np.diff(curve[:, :2], axis=0).sum(axis=1) > 0).all()
    assert (np.diff(curve[:, 2]) < 0).all()
    assert area is not None
    assert 0 <= area <= 1


@given(CASES)
def test_each_point_counts_the_decisions_at_or_above_its_threshold(pair):
    logits, labels = pair
    given_ = measures.probabilities(logits)
    positive = np.arange(given_.shape[1]) == labels[:, None]

    curve, _ = measures.roc(logits, labels)

    for false_positive, true_positive, threshold in curve:
        taken = given_ >= threshold
        assert true_positive == pytest.approx(np.mean(taken[positive]))
        assert false_positive == pytest.approx(np.mean(taken[~positive]))


@given(CASES, st.randoms(use_true_random=False))
def test_the_order_of_rows_changes_no_curve(pair, random):
    logits, labels = pair
    order = list(range(len(labels)))
    random.shuffle(order)

    curve, area = measures.roc(logits, labels)
    other, its_area = measures.roc(logits[order], labels[order])

    np.testing.assert_array_equal(other, curve)
    assert its_area == area


@given(CASES, st.data())
def test_rows_that_are_not_finite_are_left_out(pair, data):
    logits, labels = pair
    place = data.draw(st.integers(0, len(labels)))
    bad = np.full(logits.shape[1], 0.0)
    bad[data.draw(st.integers(0, logits.shape[1] - 1))] = data.draw(st.sampled_from([np.nan, np.inf]))

    curve, area = measures.roc(np.insert(logits, place, bad, axis=0), np.insert(labels, place, 0))

    expected, its_area = measures.roc(logits, labels)
    np.testing.assert_array_equal(curve, expected)
    assert area == its_area


@given(st.integers(2, 8), st.integers(1, 30))
def test_perfect_scores_have_the_area_one_and_their_opposite_none(classes, rows):
    labels = np.arange(rows) % classes
    logits = 20.0 * np.eye(classes)[labels]

    assert measures.roc(logits, labels)[1] == pytest.approx(1)
    if classes == 2:
        assert measures.roc(-logits, labels)[1] == pytest.approx(0)


def test_scores_that_say_nothing_have_the_area_a_half_and_two_points():
    curve, area = measures.roc(np.zeros((5, 4)), np.array([0, 1, 2, 3, 0]))

    assert area == 0.5
    assert curve.tolist() == [[0, 0, 2], [1, 1, 0.25]]


@pytest.mark.parametrize(
    "logits", [np.zeros((0, 3)), np.full((2, 3), np.nan), np.zeros((2, 1)), np.full((2, 3), -np.inf)]
)
def test_without_a_finite_row_or_another_class_there_is_no_curve(logits):
    curve, area = measures.roc(logits, np.zeros(len(logits), dtype=int))

    assert curve.shape == (0, 3)
    assert area is None


def test_a_long_curve_keeps_its_bend():
    """Most points of a good curve lie along its two sides; thinned out evenly it would lose the corner."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 10, 5000)
    logits = rng.normal(size=(5000, 10)) + 6 * np.eye(10)[labels]

    curve, area = measures.roc(logits, labels)
    drawn = float(np.sum(np.diff(curve[:, 0]) * (curve[1:, 1] + curve[:-1, 1]) / 2))

    assert len(curve) > 50
    assert drawn == pytest.approx(area, abs=2e-3)
