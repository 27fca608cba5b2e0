"""Runs the step and hands its result to KFP: metrics where its pages show them, and all of it as JSON."""

from typing import Any

from fourfold.contract import events
from fourfold.contract.again import again
from fourfold.contract.records import Evaluation
from fourfold.contract.strict import to_json
from fourfold.evaluate.step import evaluate
from fourfold.store.folder import write_file


def run(
    store: str,
    fingerprint: str,
    code: str,
    model: str,
    metrics: Any,
    classification: Any,
    page_path: str,
    evaluation_path: str,
) -> None:
    """The component's body; arguments as in ``component``."""
    with events.step("evaluate", code):
        # Drawing takes a library that takes a while to import; whoever only logs does without.
        from fourfold.evaluate import page

        evaluation = again(lambda: evaluate(store, fingerprint, model))
        log_metrics(evaluation, metrics)
        log_classification(evaluation, classification)
        write_file(page_path, page.render(evaluation).encode())
        write_file(evaluation_path, to_json(evaluation))
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
    if evaluation.auc is not None:
        metrics.log_metric("auc", evaluation.auc)
    if evaluation.vote is not None:
        metrics.log_metric("vote_accuracy", evaluation.vote.accuracy)


def log_classification(evaluation: Evaluation, classification: Any) -> None:
    """Logs the confusion matrix, and the ROC curve where there is one.

    Args:
        evaluation: what was measured.
        classification: a ``dsl.ClassificationMetrics``.
    """
    classification.log_confusion_matrix(evaluation.class_names, evaluation.confusion)
    if evaluation.roc:
        false_positive, true_positive, thresholds = zip(*evaluation.roc, strict=True)
        classification.log_roc_curve(list(false_positive), list(true_positive), list(thresholds))
