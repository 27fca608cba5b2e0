"""What KFP is told: metrics, a confusion matrix and a curve in strict JSON (K4), a page, and all of it."""

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kfp import dsl

from fourfold.contract import exits
from fourfold.contract.records import Busy, Evaluation
from fourfold.contract.strict import from_json
from fourfold.evaluate import publish
from tests.evaluate.conftest import TEST_ROWS, scores
from tests.page.html import Document, needs_nothing_else, references_are_found


@dataclass
class Told:
    metrics: dict[str, Any]
    classification: dict[str, Any]
    html: str
    evaluation: Evaluation


@pytest.fixture
def published(store, prepared, tmp_path):
    def published(uri: str) -> Told:
        metrics, classification = dsl.Metrics(), dsl.ClassificationMetrics()
        page, evaluation = tmp_path / "made" / "page.html", tmp_path / "made" / "evaluation.json"
        fingerprint = prepared.manifest.fingerprint
        publish.run(str(store), fingerprint, "", uri, metrics, classification, str(page), str(evaluation))
        for metadata in (metrics.metadata, classification.metadata):
            # As KFP's executor writes them: whatever is no JSON would be refused by what reads it.
            json.loads(json.dumps(metadata), parse_constant=pytest.fail)
        record = json.loads(evaluation.read_bytes(), parse_constant=pytest.fail)
        return Told(
            metrics.metadata, classification.metadata, page.read_text(encoding="utf-8"),
            from_json(Evaluation, json.dumps(record)),
        )  # fmt: skip

    return published


def spoilt(labels: dict[str, np.ndarray], how: str) -> dict[str, np.ndarray]:
    """Scores of a model that went wrong after it was trained, in one place or in all."""
    member = scores(labels, 0.8, seed=0)
    rows: Any = slice(None) if how.startswith("all") else 0
    member["test"][rows, 3] = np.inf if how.endswith("infinite") else np.nan
    return member


SPOILT = ["one nan", "one infinite", "all nan", "all infinite"]


def test_kfp_gets_metrics_a_confusion_matrix_and_the_json(published, write, labels):
    told = published(write(scores(labels, 0.8, seed=0), scores(labels, 0.8, seed=1)))

    result = told.evaluation
    assert result.vote is not None
    assert told.metrics == {
        "accuracy": result.accuracy, "loss": result.loss, "auc": result.auc,
        "vote_accuracy": result.vote.accuracy,
    }  # fmt: skip
    matrix = told.classification["confusionMatrix"]
    assert [row["row"] for row in matrix["rows"]] == result.confusion
    assert [spec["displayName"] for spec in matrix["annotationSpecs"]] == result.class_names
    by_class = np.bincount(labels["test"], minlength=10)
    assert [sum(row["row"]) for row in matrix["rows"]] == (2 * by_class).tolist()


def test_kfp_gets_the_curve_point_by_point(published, write, labels):
    told = published(write(scores(labels, 0.8, seed=0)))

    points = told.classification["confidenceMetrics"]
    curve = [[p["falsePositiveRate"], p["recall"], p["confidenceThreshold"]] for p in points]
    assert curve == told.evaluation.roc
    assert len(curve) > 10
    assert all(math.isfinite(number) for point in curve for number in point)
    assert all(0 <= rate <= 1 for point in curve for rate in point[:2])


@pytest.mark.parametrize("how", SPOILT)
def test_scores_that_are_not_numbers_end_the_step_well_and_the_json_is_strict(published, write, labels, how):
    told = published(write(spoilt(labels, how)))

    assert told.metrics["loss"] == "nan"
    assert told.evaluation.loss is None
    assert isinstance(told.metrics["accuracy"], float)
    assert ("auc" in told.metrics) == how.startswith("one")
    assert ("confidenceMetrics" in told.classification) == how.startswith("one")
    assert "confusionMatrix" in told.classification
    assert Document(told.html).text.count("not a number") == 1
    assert Document(told.html).faults == []


def test_a_hold_out_loss_that_is_not_a_number_is_said_on_the_page_and_changes_no_metric(
    published, write, labels
):
    member = scores(labels, 0.8, seed=0)
    member["holdout"][0, 0] = np.nan

    told = published(write(member))

    assert told.metrics["loss"] == told.evaluation.loss
    assert "not a number" in Document(told.html).text


@pytest.mark.parametrize("members", [1, 3])
def test_the_page_needs_nothing_else_and_shows_what_was_measured(published, write, labels, members):
    told = published(write(*(scores(labels, 0.8, seed) for seed in range(members))))

    needs_nothing_else(told.html)
    references_are_found(told.html)
    document, result = Document(told.html), told.evaluation
    assert document.faults == []
    assert len(document.all("svg")) == 1
    assert f"solo: {100 * result.accuracy:.2f} % of {TEST_ROWS:,} test rows right" in document.text
    for model in result.models:
        assert f"{100 * model.accuracy:.2f} % {model.loss:.4f}" in document.text
    assert ("their soft vote" in document.text) == (members > 1)
    for row in result.confusion:
        assert " ".join(f"{rows:,}" for rows in row) in document.text


def test_the_page_of_models_that_vote_shows_how_far_apart_they_are_and_what_was_said(
    published, write, labels
):
    same = np.ones((2, 4, 3), np.float32)
    uri = write(
        *(scores(labels, 0.8, seed) for seed in range(2)), scenario="ensemble", features=[same, same],
        probed=[[0, 20]] * 2, said=["A <b>sentence</b> of a worker."],
    )  # fmt: skip

    told = published(uri)

    needs_nothing_else(told.html)
    references_are_found(told.html)
    document = Document(told.html)
    assert document.faults == []
    assert [svg["aria-label"] for svg in document.all("svg")][1:] == [
        "Distance between the models of ensemble by step"
    ]
    assert "0 and 1" in document.text
    assert "a mean over 4 rows" in document.text
    assert "Members 0 and 1 are equal" in document.text
    assert "A <b>sentence</b> of a worker." in document.text
    assert "ensemble is the vote of its models" in document.text
    assert told.metrics["accuracy"] == told.metrics["vote_accuracy"]


@pytest.mark.parametrize(
    ("second", "said"),
    [((0.001, 0.004), "at once for 25.0 % of the time"), ((0.002, 0.004), "no speed-up is claimed")],
)
def test_the_page_of_a_model_in_stages_shows_them_at_work(published, write, labels, second, said):
    busy = [Busy(0, 0.0, 0.002), Busy(1, *second)]

    told = published(write(scores(labels, 0.8, seed=0), scenario="pipeline", busy=busy))

    document = Document(told.html)
    assert document.faults == []
    assert [svg["aria-label"] for svg in document.all("svg")][1:] == [
        "Stages of pipeline at work during one step"
    ]
    assert {"stage 0", "stage 1"} <= set(document.texts)
    assert said in document.text


def test_every_column_and_row_of_the_pages_tables_has_a_scope(published, write, labels):
    told = published(write(scores(labels, 0.8, seed=0)))

    headings = Document(told.html).all("th")
    assert headings
    assert {heading.get("scope") for heading in headings} == {"col", "row"}


def test_a_user_reads_the_cause_alone_when_the_step_fails(published, tmp_path, capsys):
    with pytest.raises(SystemExit) as caught:
        published(str(tmp_path / "nothing"))

    assert caught.value.code == exits.INVALID_INPUT
    said = capsys.readouterr().out
    assert "evaluate failed: there is no trained.json" in said
    assert "run again without caching" in said
    assert not Path(tmp_path / "made").exists()


def test_an_evaluation_is_the_same_again(published, write, labels):
    uri = write(scores(labels, 0.8, seed=0))

    assert published(uri) == published(uri)
