"""The step on scores as workers leave them: measured, or refused by name; and what KFP is told."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from kfp import dsl

from fourfold.contract import exits, keys
from fourfold.contract.errors import DamagedObjectError, MissingObjectError
from fourfold.contract.records import Epoch, Evaluation, Trained, Training, WorkerReport, from_json, to_json
from fourfold.evaluate import publish
from fourfold.evaluate.step import evaluate
from fourfold.model import measures
from fourfold.prepare.step import Prepared, prepare
from fourfold.store import cache
from fourfold.store.formats import arrays_to_bytes, sha256
from fourfold.store.objects import open_store

TEST_ROWS, HOLDOUT_ROWS = 2000, 20


@pytest.fixture(scope="module")
def store(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("evaluate-store")


@pytest.fixture(scope="module")
def prepared(store) -> Prepared:
    return prepare(str(store), rows=50, holdout=HOLDOUT_ROWS)


@pytest.fixture(scope="module")
def labels(store, prepared) -> dict[str, np.ndarray]:
    source = open_store(str(store))
    return {part: cache.read_rows(source, prepared.manifest, part)[1] for part in ("test", "holdout")}


def scores(labels: dict[str, np.ndarray], right: float, seed: int) -> dict[str, np.ndarray]:
    """Random logits in which about a share ``right`` of the rows is raised at the right class."""
    rng = np.random.default_rng(seed)
    made = {}
    for part, y in labels.items():
        logits = rng.normal(size=(len(y), 10)).astype(np.float32)
        logits[np.arange(len(y)), y] += 9 * (rng.random(len(y)) < right)
        made[part] = logits
    return made


Write = Callable[..., str]


@pytest.fixture
def write(store, prepared, tmp_path) -> Write:
    """Writes what the train step would have left: the record and each model's scores."""

    def write(*members: dict[str, np.ndarray], scenario: str = "solo") -> str:
        target, reports = open_store(str(tmp_path / "trained")), []
        asked = Training(
            scenario, len(members), str(store), prepared.manifest.fingerprint, prepared.split.id, ""
        )
        for index, member in enumerate(members):
            data = arrays_to_bytes(member)
            target.write(keys.scores(index), data)
            epochs = [Epoch(1.0, 0.5, 0.1, 25)]
            reports.append(
                WorkerReport(index, str(index), index, 25, epochs, ["old", f"digest-{index}"],
                             objects={keys.scores(index): sha256(data)})
            )  # fmt: skip
        count = len(members)
        target.write(keys.TRAINED, to_json(Trained(asked, count, 1, count, 100, 1, reports)))
        return target.uri

    return write


@pytest.fixture
def measure(store, prepared, write) -> Callable[..., Evaluation]:
    def measure(*members: dict[str, np.ndarray]) -> Evaluation:
        return evaluate(str(store), prepared.manifest.fingerprint, write(*members))

    return measure


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


def published(store, prepared, uri, tmp_path) -> tuple[dsl.Metrics, dsl.ClassificationMetrics, Path]:
    metrics, classification = dsl.Metrics(), dsl.ClassificationMetrics()
    path = tmp_path / "made" / "evaluation.json"
    publish.run(str(store), prepared.manifest.fingerprint, "", uri, metrics, classification, str(path))
    return metrics, classification, path


def test_kfp_gets_metrics_a_confusion_matrix_and_the_json(store, prepared, write, labels, tmp_path):
    uri = write(scores(labels, 0.8, seed=0), scores(labels, 0.8, seed=1))

    metrics, classification, path = published(store, prepared, uri, tmp_path)

    result = from_json(Evaluation, path.read_bytes())
    assert result.vote is not None
    assert metrics.metadata == {
        "accuracy": result.accuracy, "loss": result.loss, "vote_accuracy": result.vote.accuracy
    }  # fmt: skip
    table = [row["row"] for row in classification.metadata["confusionMatrix"]["rows"]]
    assert table == result.confusion


def test_a_loss_that_is_not_a_number_is_logged_as_the_word(store, prepared, write, labels, tmp_path):
    """KFP's executor output is JSON, which has no NaN (K4); the step ends well all the same."""
    broken = scores(labels, 0.8, seed=0)
    broken["test"][0, 3] = np.nan

    metrics, classification, path = published(store, prepared, write(broken), tmp_path)

    assert metrics.metadata["loss"] == "nan"
    assert isinstance(metrics.metadata["accuracy"], float)
    for metadata in (metrics.metadata, classification.metadata):
        json.dumps(metadata, allow_nan=False)
    assert from_json(Evaluation, path.read_bytes()).loss is None


def test_a_user_reads_the_cause_alone_when_the_step_fails(store, prepared, tmp_path, capsys):
    with pytest.raises(SystemExit) as caught:
        published(store, prepared, str(tmp_path / "nothing"), tmp_path)

    assert caught.value.code == exits.INVALID_INPUT
    assert "evaluate failed: there is no trained.json" in capsys.readouterr().out
