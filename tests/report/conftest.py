"""A run's records, made by hand, so that every number in them is known."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from fourfold.contract import plan as plans
from fourfold.contract.records import (
    CachedBatch,
    DatasetManifest,
    Epoch,
    Evaluation,
    Merged,
    ModelScore,
    Split,
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

    def without(self, scenario: str) -> "Run":
        kept = [e for e in self.evaluations if e.trained.training.scenario != scenario]
        return replace(self, evaluations=kept)


def evaluation(scenario: str, accuracies: list[float], holdout: list[float], rows: list[int]) -> Evaluation:
    """One scenario of two workers; each model's loss is 1 - its accuracy, its hold-out loss likewise."""
    plan = plans.plan(scenario, 2)
    seen = [sum(rows)] * 2 if plan.members == 1 else rows
    reports = [
        WorkerReport(
            worker,
            process=f"{4000 + worker}",
            model=plan.model_of(worker),
            rows=rows[worker] if plan.scenario.splits_data else sum(rows),
            epochs=[
                Epoch(
                    2.0 / (epoch + 1), 0.2 * (epoch + 1 + plan.model_of(worker)), 0.5 + worker, seen[worker]
                )
                for epoch in range(EPOCHS)
            ],
            digests=["old", f"{scenario}-digest-{plan.model_of(worker)}"],
            environment={"threads": "1", "cpu": "a CPU"},
            said=["A sentence of a worker."] if worker else [],
        )
        for worker in range(plan.workers)
    ]
    models = [
        ModelScore(a, 1 - a, h, 1 - h, f"{scenario}-digest-{index}")
        for index, (a, h) in enumerate(zip(accuracies, holdout, strict=True))
    ]
    return Evaluation(
        trained=Trained(
            Training(scenario, 2, "/store", "f" * 32, "s" * 16, "/out", epochs=EPOCHS),
            plan.workers, plan.stages, plan.members, 100 * len(plan.groups[0]), 20, reports,
        ),
        accuracy=sum(accuracies) / len(accuracies),
        loss=sum(1 - a for a in accuracies) / len(accuracies),
        models=models,
        vote=ModelScore(0.93, 0.3, 0.92, 0.31) if len(models) > 1 else None,
        confusion=[[5, 1], [2, 4]],
        class_names=["cat", "dog"],
        test_rows=12,
    )  # fmt: skip


@pytest.fixture(scope="session")
def run() -> Run:
    batch = CachedBatch(0, 100, 1000, {"x": "1" * 64, "y": "2" * 64}, [60, 40])
    manifest = DatasetManifest(
        1, "f" * 32, "some pictures", "a" * 64, "x / 255", "float32", [28, 28, 1], ["cat", "dog"], 100,
        {"train": [batch], "holdout": [replace(batch, rows=50, classes=[25, 25])],
         "test": [replace(batch, rows=12, classes=[6, 6])]},
    )  # fmt: skip
    return Run(
        evaluations=[
            # Not in the order of the table, and the better test accuracy is not the better hold-out accuracy.
            evaluation("solo", [0.90, 0.80], holdout=[0.70, 0.85], rows=[60, 40]),
            evaluation("sequential", [0.95], holdout=[0.94], rows=[60, 40]),
            evaluation("data_parallel", [0.94], holdout=[0.93], rows=[60, 40]),
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
