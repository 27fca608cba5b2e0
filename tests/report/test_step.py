"""The step reads what the other steps left in the store and in files, and writes three files."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fourfold.contract import images, keys, pods
from fourfold.contract.strict import to_json
from fourfold.prepare.step import prepare
from fourfold.report import publish, summary


@pytest.fixture
def left(run, tmp_path) -> dict[str, Any]:
    """What the other steps left, as the arguments of ``publish.run``."""
    prepared = prepare(str(tmp_path / "store"), rows=50, holdout=20)
    (tmp_path / "merged").mkdir()
    (tmp_path / "merged" / keys.MERGED).write_bytes(to_json(run.merged))
    evaluations = []
    for index, evaluation in enumerate(run.evaluations):
        path = tmp_path / f"evaluation-{index}.json"
        path.write_bytes(to_json(replace(evaluation, class_names=prepared.manifest.class_names)))
        evaluations.append(str(path))
    return {
        "store": str(tmp_path / "store"),
        "fingerprint": prepared.manifest.fingerprint,
        "split_id": prepared.split.id,
        "arguments": run.arguments,
        "pods": pods.HERE,
        "code": images.code(),
        "evaluations": evaluations,
        "merged": str(tmp_path / "merged"),
        "page_path": str(tmp_path / "new" / "page.html"),
        "summary_path": str(tmp_path / "new" / "summary.md"),
        "results_path": str(tmp_path / "new" / "results.json"),
    }


def test_page_and_results_are_written(left, run):
    publish.run(**left)

    results = json.loads(Path(left["results_path"]).read_text(), parse_constant=pytest.fail)
    assert results["manifest"]["data_fingerprint"] == left["fingerprint"]
    assert results["manifest"]["rows"] == 50
    assert results["manifest"]["arguments"] == run.arguments
    assert {"python", "keras", "numpy", "fourfold"} <= set(results["manifest"]["versions"])
    assert results["manifest"]["images"] == {"code": images.code()}
    assert set(results["merge"]) == {"plain_mean", "weighted_mean"}
    page = Path(left["page_path"]).read_text(encoding="utf-8")
    assert left["fingerprint"] in page
    assert "MNIST sample" in page
    assert Path(left["summary_path"]).read_text(encoding="utf-8") == summary.write(results)


def test_the_image_that_the_pods_ran_in_is_in_the_results(left):
    publish.run(**{**left, "pods": '{"image": "a.registry/worker:7"}'})

    results = json.loads(Path(left["results_path"]).read_text())
    assert results["manifest"]["images"] == {"code": images.code(), "worker": "a.registry/worker:7"}


@pytest.mark.parametrize(
    ("argument", "value", "said"),
    [
        ("code", "0" * 64, "the run was started with code 000000000000"),
        ("split_id", "0" * 16, "splits/0000000000000000.json"),
        ("fingerprint", "0" * 32, "datasets/00000000"),
        ("merged", "/nowhere", "merged.json"),
    ],
)
def test_what_is_missing_is_named_and_nothing_is_written(left, capsys, argument, value, said):
    with pytest.raises(SystemExit):
        publish.run(**{**left, argument: value})

    assert said in capsys.readouterr().out
    assert not (Path(left["page_path"]).parent).exists()


def test_an_evaluation_that_is_none_is_named(left, capsys):
    Path(left["evaluations"][1]).write_text('{"accuracy": NaN}')

    with pytest.raises(SystemExit):
        publish.run(**left)

    assert "evaluation-1.json is not a Evaluation" in capsys.readouterr().out
