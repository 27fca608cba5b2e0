"""The step on scores as workers leave them: measured, or refused by name."""

import json

import numpy as np
import pytest

from fourfold.contract import keys
from fourfold.contract.errors import DamagedObjectError, MissingObjectError
from fourfold.contract.records import Evaluation
from fourfold.contract.strict import from_json, to_json
from fourfold.evaluate.step import evaluate
from fourfold.model import measures
from tests.evaluate.conftest import TEST_ROWS, scores


def test_one_model_is_measured_on_the_test_rows(measure, labels):
    member = scores(labels, 0.8, seed=0)

    result = measure(member)

    assert result.test_rows == TEST_ROWS
    assert result.accuracy == np.mean(member["test"].argmax(axis=1) == labels["test"])
    assert result.loss == pytest.approx(measures.cross_entropy(member["test"], labels["test"]))
    assert result.models[0].accuracy == result.accuracy
    assert result.models[0].holdout_accuracy == np.mean(member["holdout"].argmax(axis=1) == labels["holdout"])
    assert result.models[0].weights_sha256 == "digest-0"
    assert result.vote is None
    assert np.sum(result.confusion) == TEST_ROWS
    assert result.class_names == [str(digit) for digit in range(10)]


def test_several_models_are_the_mean_of_each_and_a_vote(measure, labels):
    members = [scores(labels, right, seed) for seed, right in enumerate((0.4, 0.6, 0.8))]

    result = measure(*members)

    each = [np.mean(member["test"].argmax(axis=1) == labels["test"]) for member in members]
    assert [model.accuracy for model in result.models] == pytest.approx(each)
    assert result.accuracy == pytest.approx(np.mean(each))
    assert result.loss == pytest.approx(np.mean([model.loss for model in result.models]))
    voted = measures.soft_vote([member["test"] for member in members])
    assert result.vote is not None
    assert result.vote.accuracy == np.mean(voted.argmax(axis=1) == labels["test"])
    assert result.vote.loss == pytest.approx(measures.vote_loss(voted, labels["test"]))
    assert np.sum(result.confusion) == 3 * TEST_ROWS
    assert [model.weights_sha256 for model in result.models] == ["digest-0", "digest-1", "digest-2"]


@pytest.mark.parametrize("fault", ["cut", "another's", "missing"])
def test_scores_that_are_not_those_of_the_worker_are_refused_by_name(
    store, prepared, write, labels, tmp_path, fault
):
    uri = write(scores(labels, 0.8, seed=0), scores(labels, 0.8, seed=1))
    first, second = (tmp_path / "trained" / keys.scores(index) for index in (0, 1))
    if fault == "missing":
        second.unlink()
    else:
        second.write_bytes(second.read_bytes()[:-1] if fault == "cut" else first.read_bytes())

    with pytest.raises((DamagedObjectError, MissingObjectError), match=r"scores-1\.safetensors"):
        evaluate(str(store), prepared.manifest.fingerprint, uri)


@pytest.mark.parametrize("part", ["test", "holdout"])
@pytest.mark.parametrize("change", ["fewer rows", "fewer classes", "no part"])
def test_scores_of_other_rows_are_refused_by_name(measure, labels, part, change):
    member = scores(labels, 0.8, seed=0)
    if change == "no part":
        del member[part]
    else:
        member[part] = member[part][:-1] if change == "fewer rows" else member[part][:, :-1]

    with pytest.raises(DamagedObjectError, match=rf"scores-0\.safetensors .* no {part} scores of shape"):
        measure(member)


@pytest.mark.parametrize("content", [None, b"", b"{}", b'{"training": NaN}'])
def test_a_training_without_a_whole_record_is_refused(store, prepared, tmp_path, content):
    folder = tmp_path / "trained"
    folder.mkdir()
    if content is not None:
        (folder / keys.TRAINED).write_bytes(content)

    with pytest.raises((MissingObjectError, DamagedObjectError), match=r"trained\.json"):
        evaluate(str(store), prepared.manifest.fingerprint, str(folder))


def test_another_data_set_is_refused(store, write, labels):
    with pytest.raises(MissingObjectError, match="manifest.json"):
        evaluate(str(store), "0" * 32, write(scores(labels, 0.8, seed=0)))


def test_nan_logits_have_no_loss_and_the_json_stays_strict(measure, labels):
    broken, whole = scores(labels, 0.8, seed=0), scores(labels, 0.8, seed=1)
    broken["test"][7] = np.nan

    result = measure(broken, whole)

    assert result.loss is None
    assert result.models[0].loss is None
    assert result.models[1].loss is not None
    assert 0.7 < result.models[0].accuracy < 1
    assert result.vote is not None
    assert result.vote.loss is None
    assert result.vote.holdout_loss is not None
    assert np.sum(result.confusion) == 2 * TEST_ROWS - 1
    assert from_json(Evaluation, to_json(result)) == result
    json.loads(to_json(result), parse_constant=lambda word: pytest.fail(f"{word} is not JSON"))


def test_the_roc_is_of_all_models_together(measure, labels):
    members = [scores(labels, 0.5, seed=0), scores(labels, 0.9, seed=1)]

    result = measure(*members)

    logits, twice = np.concatenate([m["test"] for m in members]), np.tile(labels["test"], 2)
    points, area = measures.roc(logits, twice)
    assert (result.roc, result.auc) == (points.tolist(), area)
    alone = [measure(member).auc for member in members]
    assert result.auc is not None
    assert alone[0] < result.auc < alone[1]


def test_scores_without_a_finite_row_have_no_roc(measure, labels):
    member = scores(labels, 0.8, seed=0)
    member["test"][:] = np.nan

    result = measure(member)

    assert (result.roc, result.auc) == ([], None)
    assert result.accuracy == 0
    assert np.sum(result.confusion) == 0
    assert from_json(Evaluation, to_json(result)) == result


def test_an_evaluation_of_an_older_version_is_read(measure, labels):
    written = json.loads(to_json(measure(scores(labels, 0.8, seed=0))))
    for name in ("roc", "auc", "distances", "said"):
        del written[name]

    read = from_json(Evaluation, json.dumps(written))

    assert (read.roc, read.auc, read.distances, read.said) == ([], None, None, [])
