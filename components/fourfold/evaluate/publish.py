"""Runs the step and hands its result to KFP: metrics where its pages show them, and all of it as JSON."""

from pathlib import Path
from typing import Any

from fourfold.contract import events
from fourfold.contract.records import Evaluation, to_json
from fourfold.evaluate.step import evaluate


def run(
    store: str,
    fingerprint: str,
    code: str,
    model: str,
    metrics: Any,
    classification: Any,
    evaluation_path: str,
) -> None:
    """The component's body; arguments as in ``component``."""
    with events.step("evaluate", code):
        evaluation = evaluate(store, fingerprint, model)
        log_metrics(evaluation, metrics)
        classification.log_confusion_matrix(evaluation.class_names, evaluation.confusion)
        path = Path(evaluation_path)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(to_json(evaluation))
        scenario = evaluation.trained.training.scenario
        events.say(
            "evaluated",
            message=f"{scenario}: {evaluation.accuracy:.2%} of {evaluation.test_rows:,} test rows right",
            scenario=scenario,
            accuracy=evaluation.accuracy,
            loss=evaluation.loss,
        )


def log_metrics(evaluation: Evaluation, metrics: Any) -> None:
    """Logs numbers that KFP can take; one that is not finite is logged as a word, since JSON has none for it.

    Args:
        evaluation: what was measured.
        metrics: a ``dsl.Metrics``.
    """
    metrics.log_metric("accuracy", evaluation.accuracy)
    if evaluation.loss is None:
        metrics.metadata["loss"] = "nan"
    else:
        metrics.log_metric("loss", evaluation.loss)
    if evaluation.vote is not None:
        metrics.log_metric("vote_accuracy", evaluation.vote.accuracy)
