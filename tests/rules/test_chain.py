"""Chains of rules: read, checked, applied; what must hold of every rule and of several together."""

import functools
import re
from dataclasses import replace
from typing import Any

import keras
import numpy as np
import pytest

from fourfold.contract.errors import InvalidInputError
from fourfold.rules import bn_recalibration, chain
from fourfold.rules.state import State
from fourfold.rules.table import NEEDS, RULES
from tests.rules import models

layers = keras.layers
EQUAL = [
    "plain_mean", "weighted_mean", "fisher", "regmean", "regmean:alpha=0.5", "sequential_regmean",
    "task_arithmetic:scale=0.5", "ties:keep=1", "greedy_soup", "coefficients:steps=0",
    "weight_matching", "activation_matching", "repair", "bn_recalibration", "head_refit:steps=0",
    "weight_matching,plain_mean", "weight_matching,fisher,bn_recalibration", "weight_matching,regmean",
    "activation_matching,sequential_regmean,bn_recalibration", "activation_matching,weighted_mean,repair",
    "weight_matching,activation_matching,greedy_soup,repair,bn_recalibration",
]  # fmt: skip
"""Chains that bring equal members back; rules that train or cut changes do so with those turned off."""
SHUFFLED = [
    "plain_mean", "weighted_mean", "weight_matching,fisher", "weight_matching,regmean", "sequential_regmean",
    "activation_matching,sequential_regmean,bn_recalibration", "greedy_soup", "coefficients:steps=2",
    "task_arithmetic", "ties", "weight_matching,plain_mean,repair,head_refit:steps=2",
]  # fmt: skip


@functools.cache
def equal(kind: str) -> models.Case:
    """Equal members whose BatchNorm has the moving statistics of all sites' rows, which they label."""
    found = models.case(models.KINDS[kind], equal=True, count=2)
    settled = bn_recalibration.apply(State(tuple(found.members)), found.ground).base
    members = [replace(member, weights=settled) for member in found.members]
    for site in found.ground.sites.sites:  # pyright: ignore
        site.y = models.logits(found.model, settled, site.x).argmax(axis=1)
    return replace(found, members=members)


apart = functools.cache(lambda kind: models.case(models.KINDS[kind]))


def merged(text: str, found: models.Case, **known: Any) -> dict[str, np.ndarray]:
    state = chain.apply(chain.read(text), found.members, replace(found.ground, **known))
    assert state.merged is not None
    return dict(state.merged)


def scores(found: models.Case, values: Any) -> np.ndarray:
    """Logits, but for what is the same for all classes: that says nothing."""
    made = models.logits(found.model, values, found.x)
    return made - made.mean(axis=1, keepdims=True)


def test_every_rule_is_tried_with_equal_members_and_in_another_order():
    for chains in (EQUAL, SHUFFLED):
        tried = {link.rule.name for text in chains for link in chain.read(text)}
        assert chains is SHUFFLED or tried == set(RULES)
        assert tried == set(RULES)


@pytest.mark.parametrize("text", EQUAL)
@pytest.mark.parametrize("kind", ["cnn", "text"])
def test_equal_members_merge_to_themselves_up_to_rounding(kind, text):
    found = equal(kind)
    own = found.members[0].weights

    made = merged(text, found)

    expected = scores(found, own)
    np.testing.assert_allclose(scores(found, made), expected, rtol=2e-3, atol=2e-3 * expected.std())
    assert list(made) == list(own)
    for name, value in made.items():
        assert (value.dtype, value.shape) == (own[name].dtype, own[name].shape)
        # What fits a layer anew may share its slope and level otherwise among normalisation's arrays.
        if "sequential" not in text and "head_refit" not in text:
            np.testing.assert_allclose(value, own[name], rtol=2e-3, atol=2e-3, err_msg=name)


@pytest.mark.parametrize("text", SHUFFLED)
@pytest.mark.parametrize("rows", [(60, 60, 60), (10, 30, 20)])
def test_the_order_of_members_does_not_matter_to_the_last_bit(text, rows):
    found = apart("mlp")
    members = [replace(member, rows=count) for member, count in zip(found.members, rows, strict=True)]
    first = merged(text, replace(found, members=members))

    for order in ((2, 0, 1), (1, 0, 2)):
        other = merged(text, replace(found, members=[members[index] for index in order]))

        assert list(other) == list(first)
        for name, value in other.items():
            assert value.tobytes() == first[name].tobytes(), name


@pytest.mark.parametrize("text", EQUAL)
def test_members_are_left_as_they_are(text):
    found = apart("mlp")
    before = [{name: value.copy() for name, value in member.weights.items()} for member in found.members]

    merged(text, found)

    for member, own in zip(found.members, before, strict=True):
        for name, value in own.items():
            np.testing.assert_array_equal(member.weights[name], value)


def test_a_chain_is_read_with_its_numbers():
    links = chain.read(" weight_matching:tries=2, regmean:alpha=0.9:ridge=1e-3 ,bn_recalibration")

    assert [link.rule.name for link in links] == ["weight_matching", "regmean", "bn_recalibration"]
    assert [link.numbers for link in links] == [{"tries": 2}, {"alpha": 0.9, "ridge": 1e-3}, {}]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("plain_meen", "unknown rule 'plain_meen': use one of plain_mean, .*; did you mean 'plain_mean'?"),
        ("weight_matching,regmeen", "unknown rule 'regmeen'.*did you mean 'regmean'?"),
        ("xyz", "unknown rule 'xyz': use one of .*head_refit$"),
        ("", "unknown rule ''"),
        ("plain_mean,", "unknown rule ''"),
        ("regmean,weight_matching", "align members first .weight_matching, activation_matching., then merge"),
        ("repair,plain_mean", "'repair,plain_mean': align members first"),
        ("bn_recalibration,weight_matching", "then what comes after .repair, bn_recalibration, head_refit."),
        ("plain_mean,fisher", "'plain_mean,fisher' merges 2 times: one rule of a chain merges"),
        ("ties,ties,ties", "merges 3 times"),
        ("ties:kep=0.3", "rule ties has no number 'kep'; it has: keep=0.2, scale=1"),
        ("plain_mean:ridge=1", "rule plain_mean has no number 'ridge'; it has: none"),
        ("fisher:", "rule fisher has no number ''; it has: floor=1e-08"),
        ("regmean:ridge=-1", "rule regmean: ridge must be a number from 0 on, got '-1'"),
        ("regmean:ridge=nan", "ridge must be a number from 0 on, got 'nan'"),
        ("regmean:ridge=inf", "ridge must be a number from 0 on, got 'inf'"),
        ("regmean:ridge=much", "ridge must be a number from 0 on, got 'much'"),
        ("regmean:ridge", "ridge must be a number from 0 on, got ''"),
        ("repair:rows=0", "rule repair: rows must be a number from 1 on, got '0'"),
        ("sequential_regmean:images=0.5", "images must be a number from 1 on, got '0.5'"),
        ("ties:keep=1.5", "rule ties: keep must be a number from 0 to 1, got '1.5'"),
        ("regmean:alpha=2", "rule regmean: alpha must be a number from 0 to 1, got '2'"),
    ],
)
def test_a_chain_that_makes_no_sense_is_refused_and_said(text, said):
    with pytest.raises(InvalidInputError, match=said):
        chain.read(text)


@pytest.mark.parametrize("name", RULES)
def test_a_rule_whose_needs_are_missing_says_what_it_needs(name):
    found = apart("mlp")
    bare = [replace(member, statistics={}) for member in found.members]
    nothing = replace(found.ground, sites=None, calibration=None, start=None)
    needs = RULES[name].needs

    lacking = chain.missing(chain.read(name), bare, nothing)

    assert lacking == ("" if needs in ("nothing", "row counts") else f"{name} needs {NEEDS[needs]}")
    assert chain.missing(chain.read(name), found.members, found.ground) == ""
    if lacking:
        with pytest.raises(InvalidInputError, match=re.escape(lacking)):
            chain.apply(chain.read(name), bare, nothing)


@pytest.mark.parametrize(("name", "kind"), [("fisher", "gram"), ("regmean", "fisher")])
def test_statistics_of_another_kind_or_of_some_members_only_are_not_enough(name, kind):
    found = apart("mlp")
    other = [
        replace(member, statistics={k: v for k, v in member.statistics.items() if k.startswith(kind)})
        for member in found.members
    ]
    two = [*found.members[:2], replace(found.members[2], statistics={})]

    for members in (other, two):
        assert chain.missing(chain.read(name), members, found.ground) == f"{name} needs {NEEDS['statistics']}"


def test_labels_that_a_site_does_not_have_are_said():
    found = apart("mlp")
    sites = models.together(found.model, [found.x] * 3)

    with pytest.raises(InvalidInputError, match="the rows of site 0 have no labels, and the rule needs them"):
        merged("plain_mean,head_refit", found, sites=sites)


@pytest.mark.parametrize(
    "last", [layers.LSTM(4), layers.Reshape((4, 1)), keras.Sequential([layers.Dense(4), layers.ReLU()])]
)
def test_a_model_whose_outputs_no_dense_layer_makes_has_no_head_to_refit(last):
    hidden = (
        [layers.Dense(4)] if not isinstance(last, layers.LSTM) else [layers.Dense(4), layers.Reshape((2, 2))]
    )
    model = keras.Sequential([keras.Input((5,)), *hidden, last])
    ground = models.ground(model, sites=models.together(model, [models.rows(model, 1)]))

    assert ground.head is None
    assert chain.missing(chain.read("head_refit"), [], ground).startswith("head_refit needs a model whose")


@pytest.mark.parametrize("kind", models.KINDS)
def test_the_head_is_the_dense_layer_that_makes_the_outputs(kind):
    found = models.ground(models.KINDS[kind]())
    inner = models.ground(keras.Sequential([keras.Input((5,)), keras.Sequential([layers.Dense(4)])]))

    assert found.head == found.order[-1]
    assert inner.head == "0:Sequential/0:Dense"


def test_a_chain_without_a_rule_that_merges_takes_the_mean_and_says_so():
    found = apart("mlp")

    state = chain.apply(chain.read("weight_matching"), found.members, found.ground)

    assert "No rule of the chain merges: the plain mean was taken." in state.said
    for name, value in merged("weight_matching,plain_mean", found).items():
        np.testing.assert_array_equal(state.base[name], value)


def test_members_that_cannot_be_merged_are_refused_by_name():
    found = apart("mlp")
    first, second, third = found.members
    nan = {**second.weights, "0:Dense/bias": np.full(8, np.nan, np.float32)}
    longer = models.member(keras.Sequential([*models.mlp().layers, layers.Dense(4)]), 1, site=5)
    wider = models.member(keras.Sequential([*models.mlp().layers[:-1], layers.Dense(9)]), 1, site=6)
    uncounted = [replace(member, rows=0) for member in found.members]

    for members, text, said in (
        ([], "plain_mean", "there is no model to merge"),
        ([first, replace(second, weights=nan), third], "plain_mean", "model 1: 0:Dense/bias holds NaN"),
        ([first, longer], "plain_mean", "model 5 has not the structure of model 0"),
        ([first, wider], "weight_matching", "model 6 has not the structure of model 0"),
        (uncounted, "weighted_mean", "no member was trained on any row"),
        ([first, replace(second, rows=-1)], "weighted_mean", "model 1 was trained on -1 rows"),
    ):
        with pytest.raises(InvalidInputError, match=said):
            chain.apply(chain.read(text), members, found.ground)


@functools.cache
def recurrent() -> models.Case:
    stack = [layers.Dense(6), layers.BatchNormalization(), layers.LSTM(5), layers.Dense(4)]
    return models.case(lambda: keras.Sequential([keras.Input((7, 3)), *stack]), count=2)


@pytest.mark.parametrize(
    "text", ["regmean", "sequential_regmean", "weight_matching,plain_mean", "activation_matching,plain_mean"]
)
def test_a_layer_that_a_rule_cannot_treat_is_said_and_refused_where_strict(text):
    found = recurrent()

    state = chain.apply(chain.read(text), found.members, found.ground)
    assert any("lstm" in sentence for sentence in state.said)

    with pytest.raises(InvalidInputError, match=r"layers that cannot be treated: .*lstm"):
        chain.apply(chain.read(text), found.members, replace(found.ground, strict=True))


@pytest.mark.parametrize("text", ["plain_mean", "fisher", "plain_mean,bn_recalibration"])
def test_strict_does_not_refuse_rules_that_can_treat_every_layer(text):
    found = recurrent()

    chain.apply(chain.read(text), found.members, replace(found.ground, strict=True))


def test_whole_numbers_keep_their_dtype_and_come_from_the_member_with_the_most_rows():
    """Dropout's seeds are no variables that a file holds, so they are none of a member's."""

    class Counted(layers.Layer):
        def build(self, shape):
            self.count = self.add_weight(shape=(2,), dtype="int64", trainable=False, name="count")

        def call(self, x):
            return x

    stack = [layers.Dense(4), Counted(), layers.Dropout(0.5), layers.Dense(4)]
    found = models.case(lambda: keras.Sequential([keras.Input((5,)), *stack]))
    members = [
        replace(
            member, rows=rows, weights={**member.weights, "1:Counted/count": np.full(2, (1 << 60) + rows)}
        )
        for member, rows in zip(found.members, (5, 9, 7), strict=True)
    ]

    for text in (*SHUFFLED, "plain_mean,bn_recalibration"):
        made = merged(text, replace(found, members=members))

        assert made["1:Counted/count"].dtype == np.int64
        assert made["1:Counted/count"].tolist() == [(1 << 60) + 9] * 2
        assert not any("seed" in name for name in made)
