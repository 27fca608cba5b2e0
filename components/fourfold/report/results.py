"""Gathers a run's numbers into ``results.json``. Pure; fields are only ever added."""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from fourfold.contract import plan as plans
from fourfold.contract.caching import LIST
from fourfold.contract.datasets import DatasetManifest, Split
from fourfold.contract.merged import Merged, RuleTold
from fourfold.contract.records import (
    Epoch,
    Evaluation,
    ModelScore,
    WorkerReport,
)
from fourfold.page import lanes

SCHEMA = 1
ORDERED = {
    "batches": "Each epoch takes cached batches in a new order, the rows within one as they are.",
    "frozen": "Each epoch takes a worker's rows in the same order.",
    "reverse": "Each epoch takes a worker's rows in the same order, backwards.",
}
"""What the orders mean, besides that which deals rows."""
SOURCES = ("memory", "disk", "store")
"""Where rows came from."""
REFERENCES = {
    "best_solo": "best solo (chosen by hold-out rows)",
    "ensemble": "soft vote of the solos",
    "all_data": "one model on all rows (sequential)",
}
"""What merged models are held against."""


def build(
    evaluations: Sequence[Evaluation],
    merged: Merged,
    manifest: DatasetManifest,
    split: Split,
    arguments: Mapping[str, Any],
    versions: Mapping[str, str],
    images: Mapping[str, str],
) -> dict[str, Any]:
    """The results of a run.

    Args:
        evaluations: one a scenario.
        merged: what the merge step yielded.
        manifest: of the data set.
        split: of its rows.
        arguments: of the run, as given.
        versions: of the libraries that made it.
        images: of the steps, where they ran in containers.

    Returns:
        JSON values: ``schema``, ``manifest``, ``data``, ``scenarios``, ``merge``, ``references`` and what is
        known of merging. Numbers that are not finite are null.
    """
    by_name = {evaluation.trained.training.scenario: evaluation for evaluation in evaluations}
    ordered = {name: by_name[name] for name in plans.names() if name in by_name}
    return {
        "schema": SCHEMA,
        "manifest": {
            "seed": arguments.get("seed"),
            "rows": manifest.rows("train"),
            "batch": arguments.get("batch"),
            "data_fingerprint": manifest.fingerprint,
            "versions": dict(versions),
            "images": dict(images),
            "arguments": dict(arguments),
            "environment": _environment(ordered),
        },
        "data": {
            "source": manifest.source,
            "source_sha256": manifest.source_sha256,
            "rows": {part: manifest.rows(part) for part in manifest.parts},
            "class_names": manifest.class_names,
            "split": split.rule,
            "rows_a_worker": split.sizes,
            "classes_a_worker": split.classes,
            "said": split.said,
            "cached": {
                "dtype": manifest.dtype,
                "rows_per_batch": manifest.rows_per_batch,
                "batches": manifest.batches,
                "bytes": manifest.bytes,
            },
            "order": _order(ordered),
        },
        "scenarios": {name: _scenario(evaluation) for name, evaluation in ordered.items()},
        "merge": {rule: _accuracy_and_loss(score) for rule, score in merged.rules.items()},
        "merge_said": [*merged.causes, *merged.said],
        "merge_rules": {told.rule: _told(told) for told in merged.told},
        "merge_lines": [asdict(line) for line in merged.lines],
        "merge_slice": asdict(merged.slice) if merged.slice else None,
        "gate": asdict(merged.gate) if merged.gate else None,
        "references": _references(ordered),
    }


def _told(told: RuleTold) -> dict[str, Any]:
    """How a merge came about, without its name."""
    return {key: value for key, value in asdict(told).items() if key != "rule"}


def _environment(evaluations: Mapping[str, Evaluation]) -> dict[str, str]:
    """What the last bits of the digests depend on besides the arguments, as the first worker says."""
    return next((e.trained.reports[0].environment for e in evaluations.values()), {})


def _scenario(evaluation: Evaluation) -> dict[str, Any]:
    trained, reports = evaluation.trained, evaluation.trained.reports
    chiefs = trained.chiefs
    staged = plans.scenario(trained.training.scenario).splits_model
    return {
        "accuracy": evaluation.accuracy,
        "loss": evaluation.loss,
        "epochs": [_epoch(_over_models(chiefs, index)) for index in range(trained.training.epochs)],
        "workers": trained.pods,
        "stages": trained.stages,
        "members": trained.members,
        "cut": reports[0].cut,
        "micro_batches": trained.training.micro_batches if staged else None,
        "global_batch": trained.global_batch,
        "updates_per_epoch": trained.updates_per_epoch,
        "models": [
            {
                **_accuracy_and_loss(score),
                "holdout_accuracy": score.holdout_accuracy,
                "holdout_loss": score.holdout_loss,
                "weights_sha256": score.weights_sha256,
                "rows": sum(report.rows for report in reports if report.model == index),
                "epochs": [_epoch(epoch) for epoch in chiefs[index].epochs],
            }
            for index, score in enumerate(evaluation.models)
        ],
        "vote": _accuracy_and_loss(evaluation.vote) if evaluation.vote else None,
        "weights_sha256": [score.weights_sha256 for score in evaluation.models],
        "processes": _once(p for report in reports for p in (report.process, *report.stage_processes)),
        "confusion": evaluation.confusion,
        "rounds": [asdict(each) for each in chiefs[0].rounds],
        "distances": asdict(evaluation.distances) if evaluation.distances else None,
        "distance": _largest(report.distance for report in reports),
        "drift": _largest(report.drift for report in reports),
        "bytes_per_step": max(report.bytes_per_step for report in reports),
        "merge_share": _largest(report.merge_share for report in reports),
        "peak_memory": [report.peak_memory for report in reports],
        "busy": [asdict(busy) for busy in chiefs[0].busy],
        "overlap": _overlap(chiefs[0]),
        "resumed": chiefs[0].resumed,
        "inputs": _inputs(reports),
        "window": max(report.window for report in reports),
        "said": evaluation.told,
    }


def _order(evaluations: Mapping[str, Evaluation]) -> str:
    """In which order epochs took the rows, in a sentence."""
    told = [evaluation.trained for evaluation in evaluations.values()]
    order = told[0].training.caching.order if told else "rows"
    windows = {report.window for trained in told for report in trained.reports}
    if order == "rows":
        exact = "an exact permutation"
        among = f"among {min(windows - {0})} cached batches at a time or more" if windows - {0} else exact
        both = f"; {among} where they do not fit into memory" if windows - {0} and 0 in windows else ""
        return (
            f"Each epoch deals a worker's rows anew, {exact if 0 in windows or not windows else among}{both}."
        )
    return ORDERED.get(order, f"Each epoch takes a worker's rows in the order of {order.removeprefix(LIST)}.")


def _inputs(reports: Sequence[WorkerReport]) -> list[dict[str, float]]:
    """What all workers read in each epoch; the wait is that of the worker that waited longest."""
    found = []
    for each in zip(*(report.inputs for report in reports), strict=False):
        rows = {name: sum(getattr(one, name) for one in each) for name in SOURCES}
        fetched = sum(one.fetched for one in each)
        found.append({"waited": max(one.waited for one in each), **rows, "fetched": fetched})
    return found


def _once(names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(names))


def _largest(values: Iterable[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)


def _overlap(chief: WorkerReport) -> dict[str, float] | None:
    """How long stages were at work, and how long at once; None where it was not measured."""
    if not chief.busy:
        return None
    found = lanes.overlap((busy.stage, busy.begin, busy.end) for busy in chief.busy)
    return {**asdict(found), "share": found.share}


def _over_models(chiefs: Sequence[WorkerReport], index: int) -> Epoch:
    """One epoch over all models: means over rows, the time of the process that took longest.

    A process trains its models one after another.
    """
    epochs = [chief.epochs[index] for chief in chiefs]
    rows = sum(epoch.rows for epoch in epochs)
    seconds: dict[str, float] = defaultdict(float)
    for chief in chiefs:
        seconds[chief.process] += chief.epochs[index].seconds
    return Epoch(
        loss=sum(epoch.loss * epoch.rows for epoch in epochs) / rows,
        accuracy=sum(epoch.accuracy * epoch.rows for epoch in epochs) / rows,
        seconds=max(seconds.values()),
        rows=rows,
    )


def _epoch(epoch: Epoch) -> dict[str, float]:
    return {"loss": epoch.loss, "accuracy": epoch.accuracy, "seconds": epoch.seconds, "rows": epoch.rows}


def _accuracy_and_loss(score: ModelScore) -> dict[str, float | None]:
    return {"accuracy": score.accuracy, "loss": score.loss}


def _references(evaluations: Mapping[str, Evaluation]) -> dict[str, Any]:
    """What a merged model is to be held against. The best solo is chosen by the hold-out rows."""
    apart = next(
        (
            e
            for name, e in evaluations.items()
            if plans.scenario(name).merges_after_training and len(e.models) > 1
        ),
        None,
    )
    whole = next((e for name, e in evaluations.items() if _is_whole(plans.scenario(name))), None)
    best = max(apart.models, key=_on_holdout) if apart else None
    return {
        "best_solo": _accuracy_and_loss(best) if best else None,
        "ensemble": _accuracy_and_loss(apart.vote) if apart and apart.vote else None,
        "all_data": _accuracy_and_loss(whole.models[0]) if whole else None,
    }


def _is_whole(row: plans.Scenario) -> bool:
    """True for one model in one piece, which sees all rows."""
    return row.model == "one" and not row.splits_model


def _on_holdout(score: ModelScore) -> tuple[float, float]:
    """The more the better; a loss that is not a number is worse than any."""
    return score.holdout_accuracy, -math.inf if score.holdout_loss is None else -score.holdout_loss
