"""A run's records, made by hand, so that every number in them is known."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from fourfold.contract import plan as plans
from fourfold.contract.datasets import DatasetManifest, Part, Split
from fourfold.contract.merged import Merged
from fourfold.contract.records import (
    Busy,
    Distances,
    Epoch,
    Evaluation,
    Input,
    ModelScore,
    Round,
    Trained,
    Training,
    WorkerReport,
)
from fourfold.report import results

EPOCHS = 3


@dataclass(frozen=True)
class Run:
    """What the report step gathers; ``build`` makes ``results.json`` of it."""

    evaluations: list[Evaluation]
    merged: Merged
    manifest: DatasetManifest
    split: Split
    arguments: dict[str, Any] = field(default_factory=dict)

    def build(self) -> dict[str, Any]:
        return results.build(
            self.evaluations, self.merged, self.manifest, self.split, self.arguments, {"keras": "3.15.1"}, {}
        )

    def without(self, *names: str) -> "Run":
        return self.only(*(name for name in plans.names() if name not in names))

    def only(self, *names: str) -> "Run":
        kept = [e for e in self.evaluations if e.trained.training.scenario in names]
        return replace(self, evaluations=kept)


MEMBERS = 3


def report(plan: plans.Plan, worker: int, rows: list[int]) -> WorkerReport:
    """What a worker says; what only some rows of the table have, only theirs say."""
    row, model = plan.scenario, plan.model_of(worker)
    shard = rows[worker] if row.splits_data else sum(rows)
    seen = shard if row.model == "separate" else sum(rows)
    return WorkerReport(
        worker,
        process=f"{4000 + worker}",
        model=model,
        rows=shard,
        epochs=[
            Epoch(2.0 / (epoch + 1), 0.2 * (epoch + 1 + model), 0.5 + worker, seen) for epoch in range(EPOCHS)
        ],
        digests=["old", f"{row.name}-digest-{model}"],
        environment={"threads": "1", "cpu": "a CPU"},
        said=["A sentence of a worker."] if worker else [],
        cut=["pool"] if row.splits_model else [],
        inputs=[Input(0.2 + worker, 0, shard, 0, 1000 * shard), Input(0.1, shard - 10, 0, 10, 10_000)],
        rounds=[Round(5, 100, 2.0, 0.3), Round(5, 100, None, 0.1)] if row.in_rounds else [],
        distance=0.0 if row.copies_back else None,
        drift=1.5e-8 * worker if row.copies_back else None,
        bytes_per_step=1000.0 * (worker + 1) if row.exchanges else 0.0,
        merge_share=0.1 * (worker + 1) if row.exchanges else None,
        peak_memory=(400 + worker) * 10**6,
        busy=[Busy(0, 0.0, 0.002), Busy(1, 0.0015, 0.004)] if row.splits_model else [],
    )


def evaluation(scenario: str, accuracies: list[float], holdout: list[float], rows: list[int]) -> Evaluation:
    """One scenario of two workers; each model's loss is 1 - its accuracy, its hold-out loss likewise."""
    plan = plans.plan(scenario, 2, members=MEMBERS)
    models = [
        ModelScore(a, 1 - a, h, 1 - h, f"{scenario}-digest-{index}")
        for index, (a, h) in enumerate(zip(accuracies, holdout, strict=True))
    ]
    vote = ModelScore(0.93, 0.3, 0.92, 0.31) if len(models) > 1 else None
    apart = Distances([0, 10], [[0, 1], [0, 2], [1, 2]], [[1.0, 1.25, 1.5], [2.0, 2.25, 2.5]], 64)
    return Evaluation(
        trained=Trained(
            Training(scenario, 2, "/store", "f" * 32, "s" * 16, "/out", epochs=EPOCHS),
            plan.workers, plan.stages, plan.members, 100 * len(plan.groups[0]), 20,
            [report(plan, worker, rows) for worker in range(plan.workers)], plan.processes,
        ),
        accuracy=vote.accuracy if plan.scenario.votes and vote else sum(accuracies) / len(accuracies),
        loss=vote.loss if plan.scenario.votes and vote else sum(1 - a for a in accuracies) / len(accuracies),
        models=models,
        vote=vote,
        confusion=[[5, 1], [2, 4]],
        class_names=["cat", "dog"],
        test_rows=12,
        distances=apart if plan.scenario.starts_apart else None,
        said=["A sentence of the evaluation."] if plan.scenario.starts_apart else [],
    )  # fmt: skip


@pytest.fixture(scope="session")
def run() -> Run:
    part = Part(1, 100, 1000, [60, 40], "1" * 64)
    manifest = DatasetManifest(
        2, "f" * 32, "some pictures", "a" * 64, "x / 255", "float32", [28, 28, 1], ["cat", "dog"], 100,
        {"train": part, "holdout": replace(part, rows=50, classes=[25, 25]),
         "test": replace(part, rows=12, classes=[6, 6])},
    )  # fmt: skip
    return Run(
        evaluations=[
            # Not in the order of the table, and the better test accuracy is not the better hold-out accuracy.
            evaluation("solo", [0.90, 0.80], holdout=[0.70, 0.85], rows=[60, 40]),
            evaluation("sequential", [0.95], holdout=[0.94], rows=[60, 40]),
            evaluation("data_parallel", [0.94], holdout=[0.93], rows=[60, 40]),
            evaluation("federated", [0.89], holdout=[0.88], rows=[60, 40]),
            evaluation("hybrid", [0.91], holdout=[0.90], rows=[60, 40]),
            evaluation("pipeline", [0.92], holdout=[0.99], rows=[60, 40]),
            evaluation("ensemble", [0.87, 0.86, 0.88], holdout=[0.7, 0.95, 0.7], rows=[60, 40]),
        ],
        merged=Merged(
            2,
            {"plain_mean": ModelScore(0.6, 1.2, 0.61, 1.1, "p"),
             "weighted_mean": ModelScore(0.7, 1.0, 0.71, 0.9, "w")},
            ["A sentence of the merge."],
        ),
        manifest=manifest,
        split=Split("s" * 16, "sizes:60,40", 0, [60, 40], [[41, 19], [23, 17]], "b" * 64,
                    ["A sentence of the split"]),
        arguments={"seed": 7, "rows": 100, "batch": 100, "split": "sizes:60,40", "learning_rate": 0.001},
    )  # fmt: skip


@pytest.fixture
def change() -> Callable[..., Run]:
    """Changes one scenario's evaluation in a run."""

    def change(run: Run, scenario: str, **fields: Any) -> Run:
        return replace(run, evaluations=[
            replace(e, **fields) if e.trained.training.scenario == scenario else e for e in run.evaluations
        ])  # fmt: skip

    return change


@pytest.fixture
def change_reports(change) -> Callable[..., Run]:
    """Changes what the workers of one scenario say; a value is for all of them."""

    def change_reports(run: Run, scenario: str, **fields: Any) -> Run:
        (trained,) = [e.trained for e in run.evaluations if e.trained.training.scenario == scenario]
        reports = [replace(report, **fields) for report in trained.reports]
        return change(run, scenario, trained=replace(trained, reports=reports))

    return change_reports
