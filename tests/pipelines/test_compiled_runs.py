"""Each compiled pipeline runs whole on this machine, from its file, and yields what Kubeflow can show."""

import json
import math
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fourfold.contract import merges, plan as plans
from fourfold.contract.records import Evaluation, Trained
from fourfold.contract.strict import from_json
from fourfold_pipelines.steps import TABLE
from tests.page.html import Document, needs_nothing_else
from tests.pipelines.ir import steps

PROGRAM = """
import sys
from pathlib import Path
from kfp import components, local
from fourfold_pipelines import compiled
from fourfold_pipelines.chosen import Chosen

which, folder = sys.argv[1], Path(sys.argv[2])
compiled.write(which, Chosen(in_kubeflow=True), folder / "pipeline.yaml")
loaded = components.load_component_from_file(str(folder / "pipeline.yaml"))
local.init(local.SubprocessRunner(use_venv=False), pipeline_root=str(folder / "root"))
loaded(store=str(folder / "store"), rows=200, holdout=100, epochs=1)
"""
TEST_ROWS = 2000
RULES = (*merges.RULES, *merges.AT_SITES)


class Ran:
    """A run of a pipeline: what it printed, and what its steps left."""

    def __init__(self, which: str, folder: Path):
        folder.mkdir()
        self.folder = folder
        with (folder / "printed").open("w") as printed:
            self._process = subprocess.Popen(
                [sys.executable, "-c", PROGRAM, which, str(folder)],
                cwd=folder, stdin=subprocess.DEVNULL, stdout=printed, stderr=printed,
            )  # fmt: skip

    def end(self) -> "Ran":
        try:
            code = self._process.wait(timeout=200)
        finally:
            self._process.kill()
        self.printed = (self.folder / "printed").read_text(encoding="utf-8")
        assert code == 0, self.printed
        (self.root,) = (self.folder / "root").iterdir()
        return self

    def places(self, step: str) -> list[Path]:
        """Folders with the outputs of a step, in the order of the loop's rounds."""
        return sorted(path for path in self.root.rglob(step) if (path / "executor_output.json").is_file())

    def told(self, step: str, output: str) -> list[dict[str, Any]]:
        """The metadata of an output, as the step told KFP, read as strictly as Go does."""
        found = []
        for place in self.places(step):
            text = (place / "executor_output.json").read_text()
            artifacts = json.loads(text, parse_constant=pytest.fail)["artifacts"]
            found += [artifact["metadata"] for artifact in artifacts[output]["artifacts"]]
        return found

    def evaluations(self) -> list[Evaluation]:
        return [
            from_json(Evaluation, (p / "evaluation").read_bytes(), str(p)) for p in self.places("evaluate")
        ]


@pytest.fixture(scope="module")
def ran(workers, tmp_path_factory) -> dict[str, Ran]:
    """Both pipelines, side by side."""
    folder = tmp_path_factory.mktemp("compiled-runs")
    started = {which: Ran(which, folder / which) for which in ("experiment", "train")}
    return {which: run.end() for which, run in started.items()}


every_run = pytest.mark.parametrize("which", ["train", "experiment"])
TRAINED = {"train": ["data_parallel"], "experiment": list(plans.names())}


@every_run
def test_every_step_ran_and_the_last_one_cleaned_up(ran, which):
    for step in steps(which):
        rounds = len(TRAINED[which]) if step in ("train", "evaluate") else 1
        assert len(ran[which].places(step)) == rounds, step
    said = ran[which].printed
    assert said.index("clean-up: started") > said.rindex(
        "report: done" if which == "experiment" else "evaluate: done"
    )
    assert "nothing to clean up: the workers were processes" in said
    assert "clean-up: done" in said
    assert set(steps("experiment")) | set(steps("merge-study")) == set(TABLE)


@every_run
def test_each_round_trained_its_own_scenario_on_the_same_data(ran, which):
    records = [
        from_json(Trained, (place / "model" / "trained.json").read_bytes())
        for place in ran[which].places("train")
    ]
    assert [record.training.scenario for record in records] == TRAINED[which]
    assert len({(r.training.fingerprint, r.training.split, r.training.seed) for r in records}) == 1
    assert [e.trained.training.scenario for e in ran[which].evaluations()] == TRAINED[which]


@every_run
def test_all_that_steps_tell_kfp_is_strict_json_with_finite_numbers(ran, which):
    for path in ran[which].root.rglob("executor_output.json"):
        found = json.loads(path.read_text(), parse_constant=pytest.fail)
        for artifacts in found.get("artifacts", {}).values():
            for artifact in artifacts["artifacts"]:
                json.dumps(artifact["metadata"], allow_nan=False)


@every_run
def test_metrics_are_those_of_the_evaluation(ran, which):
    for metrics, evaluation in zip(
        ran[which].told("evaluate", "metrics"), ran[which].evaluations(), strict=True
    ):
        assert all(math.isfinite(value) for value in metrics.values())
        assert (metrics["accuracy"], metrics["loss"]) == (evaluation.accuracy, evaluation.loss)
        assert metrics["auc"] == evaluation.auc
        assert ("vote_accuracy" in metrics) == (len(evaluation.models) > 1)


@every_run
def test_the_confusion_matrix_has_the_names_of_the_classes_and_counts_every_row(ran, which):
    for told, evaluation in zip(
        ran[which].told("evaluate", "classification"), ran[which].evaluations(), strict=True
    ):
        matrix = told["confusionMatrix"]
        assert [spec["displayName"] for spec in matrix["annotationSpecs"]] == evaluation.class_names
        rows = [row["row"] for row in matrix["rows"]]
        assert rows == evaluation.confusion
        speak = 1 if plans.scenario(evaluation.trained.training.scenario).votes else len(evaluation.models)
        assert sum(map(sum, rows)) == speak * evaluation.test_rows
        assert evaluation.test_rows == TEST_ROWS


@every_run
def test_the_roc_curve_is_finite_and_goes_up_from_nothing_to_everything(ran, which):
    for told in ran[which].told("evaluate", "classification"):
        points = told["confidenceMetrics"]
        curve = [(p["falsePositiveRate"], p["recall"], -p["confidenceThreshold"]) for p in points]
        assert all(math.isfinite(number) for point in curve for number in point)
        assert curve[0][:2] == (0, 0)
        assert curve[-1][:2] == (1, 1)
        for before, after in zip(curve, curve[1:], strict=False):
            assert all(a <= b for a, b in zip(before, after, strict=True))


@every_run
def test_pages_need_nothing_else(ran, which):
    pages = [place / "page" for place in (*ran[which].places("evaluate"), *ran[which].places("report"))]
    assert len(pages) == len(TRAINED[which]) + (which == "experiment")
    for page in pages:
        html = page.read_text(encoding="utf-8")
        needs_nothing_else(html)
        assert Document(html).faults == []
        assert "<svg" in html


def test_the_summary_is_a_table_with_every_scenario_and_every_rule(ran):
    (place,) = ran["experiment"].places("report")
    results = json.loads((place / "results").read_text(), parse_constant=pytest.fail)
    text = (place / "summary").read_text(encoding="utf-8")
    assert text.startswith("# Every way to split: MNIST sample\n")
    for name in plans.names():
        accuracy = 100 * results["scenarios"][name]["accuracy"]
        assert re.search(rf"^\| {name} \| {accuracy:.2f} % \|", text, re.MULTILINE), name
    for rule in RULES:
        assert re.search(rf"^\| {rule} \| {100 * results['merge'][rule]['accuracy']:.2f} % \|", text, re.M)
    assert "<" not in text


def test_the_results_say_with_which_arguments_the_pipeline_ran(ran):
    (place,) = ran["experiment"].places("report")
    said = json.loads((place / "results").read_text())["manifest"]["arguments"]
    assert said == {
        "data": "sample", "rows": 200, "holdout": 100, "split": "contiguous", "workers": 2, "epochs": 1,
        "batch": 100, "optimizer": "adam", "learning_rate": 0.001, "seed": 0, "members": 3, "stages": 2,
        "micro_batches": 4, "local_steps": 0, "ways": "{}", "cache": "{}",
        "scenarios": list(plans.names()),
    }  # fmt: skip


def test_merged_models_and_their_accuracies_are_there(ran):
    (place,) = ran["experiment"].places("merge")
    names = sorted(map(merges.file_name, RULES))
    assert sorted(path.stem for path in (place / "merged").glob("*.keras")) == sorted(["handed-on", *names])
    (metrics,) = ran["experiment"].told("merge", "metrics")
    assert set(metrics) == {f"{name}_accuracy" for name in names}
