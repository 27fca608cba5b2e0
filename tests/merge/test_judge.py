"""What is handed on, and what is said of the plain mean."""

import pytest
from hypothesis import given, strategies as st

from fourfold.contract.merged import Line
from fourfold.merge import judge

accuracy = st.floats(0, 1)
NAMES = ["cat", "dog"]


@given(accuracy, st.lists(accuracy, min_size=1, max_size=5), accuracy, st.floats(0, 0.2))
def test_what_is_handed_on_is_never_worse_than_the_best_solo_by_more_than_the_margin(
    merged, solos, vote, margin
):
    gate = judge.gate("rule", merged, solos, vote, margin, rows=100)

    handed = {"merged": merged, "ensemble": vote, "best_solo": max(solos)}[gate.handed_on]
    assert handed >= max(solos) - margin
    assert (gate.handed_on == "merged") == (merged >= max(solos) - margin)
    assert gate.rule in judge.said_of(gate)


@pytest.mark.parametrize(
    ("merged", "vote", "expected", "said"),
    [
        (0.90, 0.95, "merged", "Handed on: the merge by mean (90.0% of 500 hold-out rows right"),
        (
            0.889,
            0.95,
            "ensemble",
            "Handed on: the vote of the solos, since the merge by mean is more than 1 point",
        ),
        (0.1, 0.5, "best_solo", "Handed on: the best solo"),
    ],
)
def test_the_margin_is_met_or_the_better_of_the_others_goes_on(merged, vote, expected, said):
    gate = judge.gate("mean", merged, [0.9, 0.3], vote, 0.01, rows=500)

    assert gate.handed_on == expected
    assert said in judge.said_of(gate)


def line(barrier: float, aligned: bool = False) -> Line:
    return Line([0, 1], aligned, [0.1, 0.1 + barrier, 0.1], [0.9, 0.5, 0.9], barrier)


def causes(lines, classes, accuracies, solos=(0.97, 0.98), own=(0.99, 0.991)) -> str:
    return " ".join(judge.causes(lines, classes, NAMES, accuracies, solos, own))


EVEN = [[50, 50], [50, 50]]
SKEWED = [[1000, 2], [2, 1000]]


def test_a_ridge_is_named_where_the_loss_rises_between_models_and_only_there():
    ridge = causes([line(0.5), line(0.04, aligned=True)], EVEN, {"plain_mean": 0.8})
    flat = causes([line(0.05), line(0.04, aligned=True)], EVEN, {"plain_mean": 0.979})

    assert "the loss rises 0.50 nats" in ridge and "a ridge" in ridge
    assert "with their units matched it rises 0.04" in ridge
    assert "There is no ridge" in flat and "The mean lost nothing that matters" in flat


def test_a_last_layer_that_never_saw_all_classes_is_named_where_it_was_measured():
    told = causes([line(0.0)], SKEWED, {"plain_mean": 0.929, "weight_matching,head_refit": 0.979})

    assert "The solos get 99.0% to 99.1% of the rows right that each was trained on" in told
    assert "shard 0: dog; shard 1: cat" in told
    assert "get 97.9%: what the mean lost is in the last layer" in told


def test_a_refit_is_no_cause_where_nothing_is_missing_or_there_is_a_ridge():
    fitted = {"plain_mean": 0.80, "weight_matching,head_refit": 0.98}

    assert "says nothing of the merge" in causes([line(0.5)], SKEWED, fitted)
    assert "says nothing of the merge" in causes([line(0.0)], EVEN, fitted)


def test_nothing_is_said_of_a_mean_that_was_not_made():
    assert judge.causes([line(0.5)], EVEN, NAMES, {"regmean": 0.9}, [0.9], [0.9]) == []
