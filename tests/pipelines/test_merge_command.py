"""``fourfold merge``: what it makes of models that were trained apart."""

from collections.abc import Callable
from pathlib import Path

import keras
import numpy as np
import pytest

from fourfold.rules.table import TABLE
from tests.pipelines.merging import (
    CLASSES,
    INPUTS,
    OWN,
    TWO,
    done,
    merge,
    network,
    refused,
    rows,
    set_head,
    weights,
)

pytestmark = pytest.mark.usefixtures("two_models")


def test_without_rows_units_are_matched_and_averaged():
    said = done(*TWO)
    assert "weight_matching,plain_mean: 2 models merged" in said
    assert said.endswith("written: out.keras")
    assert "The sites added up" not in said


def test_with_rows_layers_are_fitted_to_them_and_what_left_the_sites_is_told():
    said = done(*TWO, *OWN)
    assert "The sites added up 2 times" in said
    assert "weight_matching,sequential_regmean: 2 models merged" in said


def test_equal_models_merge_to_themselves_by_default():
    network(0).save("b.keras")
    done(*TWO)
    for found, wanted in zip(weights(), network(0).get_weights(), strict=True):
        np.testing.assert_allclose(found, wanted, atol=1e-6)


def test_a_merged_model_loads_with_keras_alone_and_takes_the_same_rows():
    done(*TWO)
    model = keras.models.load_model("out.keras")
    assert model.predict(rows(0)[0], verbose=0).shape == (90, CLASSES)  # pyright: ignore


def test_the_folder_of_out_is_made():
    done("a.keras", "b.keras", "-o", "deep/er/out.keras")
    assert weights("deep/er/out.keras")


def test_a_file_of_an_earlier_merge_is_written_over():
    done(*TWO)
    first = Path("out.keras").read_bytes()
    done(*TWO, "--rule", "plain_mean")
    assert Path("out.keras").read_bytes() != first


def test_rows_weight_the_mean():
    done(*TWO, "--rule", "weighted_mean", "--rows", "3", "--rows", "1")
    a, b = network(0).get_weights(), network(1).get_weights()
    for found, first, second in zip(weights(), a, b, strict=True):
        np.testing.assert_allclose(found, 0.75 * first + 0.25 * second, rtol=1e-5, atol=1e-7)


def test_without_counts_those_of_the_own_rows_weight_the_mean():
    done(*TWO, "--rule", "weighted_mean", *OWN)
    a, b = network(0).get_weights(), network(1).get_weights()
    np.testing.assert_allclose(weights()[0], 0.6 * a[0] + 0.4 * b[0], rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize(
    "more",
    [
        (),
        ("--rule", "weight_matching,ties:keep=0.7", "--start", "start.keras"),
        ("--rule", "greedy_soup", "--calibration", "h.npz"),
    ],
)
def test_the_order_of_models_does_not_matter(more):
    network(5).save("start.keras")
    done(*TWO, *more)
    done("b.keras", "a.keras", "-o", "other.keras", *more)
    for found, other in zip(weights(), weights("other.keras"), strict=True):
        np.testing.assert_array_equal(found, other)


def test_the_order_of_models_with_their_rows_does_not_matter():
    done(*TWO, *OWN)
    done("b.keras", "a.keras", "--own", "b.npz", "--own", "a.npz", "-o", "other.keras")
    for found, other in zip(weights(), weights("other.keras"), strict=True):
        np.testing.assert_allclose(found, other, atol=1e-5)


@pytest.mark.parametrize(
    "rule", ["fisher", "regmean:alpha=0.9", "activation_matching,fisher", "weight_matching,regmean"]
)
def test_rules_that_need_sums_of_own_rows_have_them(rule):
    assert f"{rule}: 2 models merged" in done(*TWO, *OWN, "--rule", rule)


def test_what_comes_after_a_merge_mends_batch_norm():
    for seed, name in enumerate(("a.keras", "b.keras")):
        network(seed, batch_norm=True).save(name)
    said = done(*TWO, *OWN, "--rule", "weight_matching,sequential_regmean,bn_recalibration")
    assert "BatchNorm's moving statistics were computed anew (1 layers)." in said


def test_a_last_layer_is_fitted_to_labels_where_there_are_any():
    assert "head_refit trained the last layer" in done(*TWO, *OWN, "--rule", "plain_mean,head_refit")
    for name in ("a", "b"):
        np.savez(f"{name}.npz", x=rows(0)[0])
    Path("out.keras").unlink()
    said = refused(*TWO, *OWN, "--rule", "plain_mean,head_refit")
    assert "the rows of site 0 have no labels, and the rule needs them" in said


def test_calibration_rows_choose_among_models():
    said = done(*TWO, "--rule", "greedy_soup", "--calibration", "h.npz")
    assert "greedy_soup took" in said
    assert "coefficients learnt" in done(*TWO, "--rule", "coefficients:steps=2", "--calibration", "h.npz")


def test_ties_begin_at_the_common_start():
    start = network(5)
    start.save("start.keras")
    done(*TWO, "--rule", "ties:scale=0", "--start", "start.keras")
    for found, wanted in zip(weights(), start.get_weights(), strict=True):
        np.testing.assert_allclose(found, wanted, atol=1e-7)


@pytest.fixture
def labelled() -> Callable[[list[list[float]], int], None]:
    """Writes models that say the same of every row, and hold-out rows of one class."""

    def write(biases: list[list[float]], label: int) -> None:
        for index, bias in enumerate(biases):
            model = network(0)
            set_head(model, bias)
            model.save(f"{'abc'[index]}.keras")
        np.savez("h.npz", x=rows(2)[0], y=np.full(90, label))

    return write


def test_the_gate_hands_on_a_merge_that_is_as_good_as_the_best_model(labelled):
    labelled([[0, 9, 0], [0, 1, 0]], label=1)
    said = done(*TWO, "--rule", "plain_mean", "--holdout", "h.npz")
    assert "100.00% a.keras 100.00% b.keras 100.00% soft vote of them 100.00% merged by plain_mean" in said
    assert "Handed on: the merge by plain_mean" in said
    np.testing.assert_allclose(weights()[-1], [0, 5, 0], atol=1e-6)


def test_the_gate_hands_on_the_vote_where_the_merge_is_worse(labelled):
    # The mean of logits goes with the loudest model, the mean of probabilities with the majority.
    labelled([[0, 5, 0], [0, 5, 0], [99, 0, 0]], label=1)
    said = done(
        "a.keras", "b.keras", "c.keras", "-o", "out.keras", "--rule", "plain_mean", "--holdout", "h.npz"
    )
    assert (
        "Handed on: the vote of the solos, since the merge by plain_mean is more than 1 points below" in said
    )
    found = keras.models.load_model("out.keras").predict(rows(0)[0], verbose=0)  # pyright: ignore
    assert (found.argmax(axis=-1) == 1).all()


def test_the_gate_hands_on_the_best_model_where_the_vote_is_worse_too(labelled):
    labelled([[0, 5, 0], [99, 0, 0], [99, 0, 0]], label=1)
    said = done(
        "a.keras", "b.keras", "c.keras", "-o", "out.keras", "--rule", "plain_mean", "--holdout", "h.npz"
    )
    assert "Handed on: the best solo" in said
    np.testing.assert_array_equal(weights()[-1], [0, 5, 0])


def test_a_margin_of_one_hands_on_any_merge(labelled):
    labelled([[0, 5, 0], [99, 0, 0]], label=1)
    said = done(*TWO, "--rule", "plain_mean", "--holdout", "h.npz", "--margin", "1")
    assert "Handed on: the merge" in said


def recurrent(seed: int) -> keras.Model:
    keras.utils.set_random_seed(seed)
    return keras.Sequential([keras.Input((INPUTS, 1)), keras.layers.GRU(3), keras.layers.Dense(CLASSES)])


def test_layers_that_a_rule_cannot_treat_are_said_and_strict_refuses_them():
    for seed, name in enumerate(("a.keras", "b.keras")):
        recurrent(seed).save(name)
    assert "GRU" in refused(*TWO, "--strict")
    assert "GRU" in done(*TWO)


def test_strict_changes_nothing_where_every_layer_can_be_treated():
    done(*TWO, "--strict")
    done("a.keras", "b.keras", "-o", "other.keras")
    np.testing.assert_array_equal(weights()[0], weights("other.keras")[0])


def test_values_are_fitted_with_what_is_common_to_a_row():
    for index, name in enumerate(("a.keras", "b.keras")):
        set_head(model := network(index), [7, 7, 7])
        model.save(name)
    done(*TWO, *OWN, "--values")
    done("a.keras", "b.keras", "-o", "scores.keras", *OWN)
    x = rows(2)[0]
    values, scores = (
        keras.models.load_model(name).predict(x, verbose=0)  # pyright: ignore
        for name in ("out.keras", "scores.keras")
    )
    np.testing.assert_allclose(values, 7, atol=0.1)
    np.testing.assert_allclose(scores, 0, atol=0.1)


def test_the_list_of_rules_has_each_with_its_needs_and_numbers():
    said = done("--list-rules")
    assert all(rule.name in said for rule in TABLE)
    assert "keep=0.2" in said
    assert "no row leaves a site" in said


def test_the_help_has_examples():
    assert "fourfold merge" in merge("--help").output.split("Examples:")[1]
