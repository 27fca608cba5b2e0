"""Models that vote speak as one; how far apart they are is measured, and equal ones are told."""

import itertools
from pathlib import Path

import numpy as np
import pytest

from fourfold.contract import keys, plan as plans
from fourfold.contract.errors import DamagedObjectError
from fourfold.contract.records import Evaluation
from fourfold.contract.strict import from_json, to_json
from fourfold.evaluate.step import evaluate
from fourfold.model import measures
from tests.evaluate.conftest import TEST_ROWS, scores

VOTES, AVERAGES = (
    next(row.name for row in plans.SCENARIOS if row.model == "separate" and row.votes == votes)
    for votes in (True, False)
)


@pytest.fixture
def members(labels) -> list[dict[str, np.ndarray]]:
    return [scores(labels, right, seed) for seed, right in enumerate((0.4, 0.6, 0.8))]


def features(*seeds: int, steps: int = 3, rows: int = 4, n: int = 5) -> list[np.ndarray]:
    return [np.random.default_rng(seed).normal(size=(steps, rows, n)).astype(np.float32) for seed in seeds]


def test_the_vote_of_the_source_is_the_mean_of_soft_scores(measure, labels):
    """Three members' probabilities of one row: the second class wins."""
    given = np.asarray([[0.10, 0.70, 0.20], [0.15, 0.55, 0.30], [0.05, 0.80, 0.15]], np.float32)
    made = []
    for row in given:
        # The other seven classes get nothing.
        logits = np.full(10, -1e4, np.float32)
        logits[:3] = np.log(row)
        made.append({part: np.tile(logits, (len(y), 1)) for part, y in labels.items()})

    mean = measures.soft_vote([member["test"] for member in made])[0]
    result = measure(*made, scenario=VOTES)

    assert mean[:3] == pytest.approx([0.10, 0.683, 0.217], abs=5e-4)
    assert mean.sum() == pytest.approx(1)
    assert np.sum(result.confusion, axis=0).tolist() == [0, TEST_ROWS, *[0] * 8]
    assert result.accuracy == np.mean(labels["test"] == 1)


def test_where_the_models_vote_all_is_of_the_vote_and_each_is_beside_it(measure, members, labels):
    result = measure(*members, scenario=VOTES)

    voted = measures.soft_vote([member["test"] for member in members])
    assert result.vote is not None
    assert result.accuracy == result.vote.accuracy == np.mean(voted.argmax(axis=1) == labels["test"])
    assert result.loss == result.vote.loss == pytest.approx(measures.vote_loss(voted, labels["test"]))
    assert result.confusion == measures.confusion(voted, labels["test"], 10).tolist()
    assert np.sum(result.confusion) == TEST_ROWS
    assert [model.accuracy for model in result.models] == [
        np.mean(member["test"].argmax(axis=1) == labels["test"]) for member in members
    ]


def test_the_roc_of_a_vote_has_its_probabilities_as_thresholds(measure, members, labels):
    result = measure(*members, scenario=VOTES)

    voted = measures.soft_vote([member["test"] for member in members])
    for false_positive, true_positive, threshold in result.roc[1:-1:10]:
        taken = voted >= threshold * (1 - 1e-12)
        right = np.arange(10) == labels["test"][:, None]
        assert taken[right].mean() == pytest.approx(true_positive, abs=1e-3)
        assert taken[~right].mean() == pytest.approx(false_positive, abs=1e-3)
    each = [measure(member, scenario=VOTES).auc for member in members]
    assert result.auc is not None
    assert result.auc > np.mean(each)


def test_the_order_of_members_does_not_matter_to_their_vote(measure, members):
    first, *others = (measure(*order, scenario=VOTES) for order in itertools.permutations(members))

    for other in others:
        assert (other.accuracy, other.confusion) == (first.accuracy, first.confusion)
        assert other.loss == pytest.approx(first.loss)


def test_equal_members_vote_as_each(measure, members):
    alone, result = measure(members[1], scenario=VOTES), measure(*[members[1]] * 3, scenario=VOTES)

    assert (result.accuracy, result.confusion) == (alone.accuracy, alone.confusion)
    assert (result.loss, result.auc) == pytest.approx((alone.loss, alone.auc))


def test_one_member_speaks_for_itself_as_any_single_model(measure, members):
    alone = measure(members[0], scenario=VOTES, features=features(0), probed=[[0, 1, 2]])
    single = measure(members[0], scenario=AVERAGES)

    assert (alone.vote, alone.distances, alone.said) == (None, None, [])
    for field in ("accuracy", "loss", "confusion", "roc", "auc", "models"):
        assert getattr(alone, field) == getattr(single, field), field


def test_certain_members_that_disagree_with_the_labels_have_no_loss_and_no_warning(measure, labels):
    wrong = {part: np.where(np.arange(10) == (y[:, None] + 1) % 10, 2e4, -2e4) for part, y in labels.items()}
    member = {part: logits.astype(np.float32) for part, logits in wrong.items()}

    result = measure(member, member, scenario=VOTES)

    assert (result.accuracy, result.loss) == (0, None)
    assert np.sum(result.confusion) == TEST_ROWS
    assert from_json(Evaluation, to_json(result)) == result


def test_distances_are_of_every_two_members_after_every_step(measure, members):
    taken, steps = features(0, 1, 2), [0, 20, 40]

    result = measure(*members, scenario=VOTES, features=taken, probed=[steps] * 3)

    assert result.distances is not None
    assert (result.distances.steps, result.distances.rows) == (steps, 4)
    assert result.distances.pairs == [[0, 1], [0, 2], [1, 2]]
    for time, values in enumerate(result.distances.values):
        for (left, right), value in zip(result.distances.pairs, values, strict=True):
            apart = np.linalg.norm(taken[left][time] - taken[right][time], axis=1)
            assert value == pytest.approx(apart.mean(), rel=1e-5)
            assert value > 0
    assert result.said == []
    assert from_json(Evaluation, to_json(result)) == result


def test_members_that_are_equal_throughout_are_told(measure, members):
    result = measure(*members, scenario=VOTES, features=features(0, 1, 0), probed=[[0, 1, 2]] * 3)

    assert result.said == [
        "Members 0 and 2 are equal (distance 0 throughout): their vote adds nothing; "
        "give them other --starts."
    ]
    result = measure(*members, scenario=VOTES, features=features(7, 7, 7), probed=[[0, 1, 2]] * 3)
    (sentence,) = result.said
    assert sentence.startswith("Members 0, 1 and 2 are equal")


def test_members_that_start_equal_and_part_are_not_told(measure, members):
    taken = features(0, 0, 1)
    taken[1] = taken[1].copy()
    taken[1][-1, 0, 0] += 1

    assert measure(*members, scenario=VOTES, features=taken, probed=[[0, 1, 2]] * 3).said == []


def test_models_that_do_not_vote_have_distances_and_no_word_on_their_vote(measure, members):
    result = measure(*members[:2], scenario=AVERAGES, features=features(0, 0), probed=[[0, 1, 2]] * 2)

    assert result.distances is not None
    assert result.distances.values == [[0], [0], [0]]
    assert result.said == []


def test_features_that_are_not_numbers_have_no_distance_and_it_is_said(measure, members):
    taken = features(0, 1, 2)
    taken[1][0, 0, 0] = np.nan

    result = measure(*members, scenario=VOTES, features=taken, probed=[[0, 1, 2]] * 3)

    assert result.distances is None
    assert result.said == ["Features of the models are not all numbers: how far apart they are is not known."]


def test_without_features_there_is_no_distance(measure, members):
    result = measure(*members, scenario=VOTES)

    assert (result.distances, result.said) == (None, [])


@pytest.mark.parametrize(
    ("taken", "probed", "said"),
    [
        (features(0, 1), [[0, 1, 2], [0, 1, 3]], r"probes-1.* after steps \[0, 1, 2\].* after \[0, 1, 3\]"),
        ([features(0)[0], None], [[0, 1, 2], []], r"probes-1.* should hold"),
        ([None, features(0)[0]], [[0, 1, 2]] * 2, r"probes-0.* should hold"),
        ([*features(0), *features(1, n=6)], [[0, 1, 2]] * 2, r"shapes \[\(3, 4, 5\), \(3, 4, 6\)\]"),
        ([*features(0), *features(1, rows=1)], [[0, 1, 2]] * 2, r"shapes \[\(3, 4, 5\), \(3, 1, 5\)\]"),
        (features(0, 1, steps=2), [[0, 1, 2]] * 2, r"probes-0.* no features for 3 steps"),
        (features(0, 1, rows=0), [[0, 1, 2]] * 2, r"probes-0.* no features"),
        (features(0, 1, steps=0), [[], []], r"probes-0.* no features for 0 steps"),
        ([each[0] for each in features(0, 1)], [[0, 1, 2, 3]] * 2, r"probes-0.* no features"),
    ],
)  # fmt: skip
def test_features_that_do_not_belong_together_are_refused_by_name(measure, members, taken, probed, said):
    with pytest.raises(DamagedObjectError, match=said):
        measure(*members[:2], scenario=VOTES, features=taken, probed=probed)


def test_features_that_are_not_those_of_the_worker_are_refused(store, prepared, write, members):
    uri = write(*members[:2], scenario=VOTES, features=features(0, 1), probed=[[0, 1, 2]] * 2)
    first, second = (Path(uri.removeprefix("file://")) / keys.probes(index) for index in (0, 1))
    second.write_bytes(first.read_bytes())

    with pytest.raises(DamagedObjectError, match=r"probes-1\.safetensors .* not what its worker wrote"):
        evaluate(str(store), prepared.manifest.fingerprint, uri)
