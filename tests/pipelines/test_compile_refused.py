"""What Kubeflow would refuse, or fail on later, is refused at compile time, in words (K2, K11)."""

import re
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner
from hypothesis import given, strategies as st

from fourfold.contract.errors import InvalidInputError
from fourfold_pipelines.chosen import check_name, for_kubeflow
from fourfold_pipelines.cli import main
from fourfold_pipelines.compiled import PIPELINES, write


def refused(folder: Path, *arguments: str) -> str:
    """The message of a command that ends with an error for users, having written nothing."""
    out = folder / "out"
    done = CliRunner().invoke(main, ["compile", "-o", str(out), *arguments], prog_name="fourfold")
    assert done.exit_code != 0
    assert isinstance(done.exception, SystemExit), done.exception
    assert "Traceback" not in done.output
    assert [path for path in folder.rglob("*") if path.is_file()] == []
    return " ".join(done.output.split())


@pytest.mark.parametrize(
    "name", ["Hybrid_MNIST", "-x", "x-", "a.b", "a b", "ä", "a\n", " ", "a" * 101, "0" * 1000]
)
def test_a_name_that_kubeflow_refuses_or_changes_is_refused(tmp_path, name):
    said = refused(tmp_path, "train", f"--name={name}")
    assert f"{name!r} cannot be a pipeline's name: it has a-z, 0-9 and '-'" in said
    assert f"at most 100 characters; this one has {len(name)}" in said


@pytest.mark.parametrize("which", PIPELINES)
@pytest.mark.parametrize("name", ["7", "a" * 100])
def test_a_name_that_kubeflow_takes_is_taken(tmp_path, which, name):
    done = CliRunner().invoke(main, ["compile", which, "-o", str(tmp_path), "--name", name])
    assert done.exit_code == 0, done.output
    (ir, _) = yaml.safe_load_all((tmp_path / f"{which}.yaml").read_text())
    assert ir["pipelineInfo"]["name"] == name


@given(st.text(max_size=110) | st.text("ab0-_A", max_size=110))
def test_what_is_taken_for_a_name_is_what_the_api_of_kubeflow_takes(name):
    fits = len(name) <= 100 and re.match(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?\Z", name)
    if fits:
        check_name(name)
    else:
        with pytest.raises(InvalidInputError, match="cannot be a pipeline's name"):
            check_name(name)


def test_the_usual_names_are_taken():
    for usual, _ in PIPELINES.values():
        check_name(usual)


BAD_IMAGES = ["worker", "lab/worker", "worker:latest", "host:5000/worker", "a b:1", "w@sha256:12", ":1"]


@pytest.mark.parametrize("option", ["--steps-image", "--worker-image"])
@pytest.mark.parametrize("image", BAD_IMAGES)
@pytest.mark.parametrize("which", PIPELINES)
def test_an_image_whose_content_may_change_is_refused(tmp_path, which, option, image):
    said = refused(tmp_path, which, option, image)
    assert f"{image!r} cannot be the image of a step" in said
    assert "with a tag that stays what it is (not `latest`), or with a digest" in said


def test_an_image_is_refused_also_where_the_pods_have_another(tmp_path):
    said = refused(tmp_path, "--worker-image", "lab/worker", "--pods", '{"image": "lab/other:1"}')
    assert "'lab/worker' cannot be the image of a step" in said


@pytest.mark.parametrize("image", ["worker", "worker:latest"])
def test_an_image_of_the_pods_is_refused_likewise(tmp_path, image):
    assert "pods.image must be an image" in refused(tmp_path, "--pods", f'{{"image": "{image}"}}')


@pytest.mark.parametrize("store", ["/data", "store", "file:///data", "gs://bucket/a", "s3:/b", "s3/b"])
def test_a_store_that_steps_in_kubeflow_cannot_reach_is_refused(tmp_path, store):
    said = refused(tmp_path, "--store", store)
    assert f"steps in Kubeflow cannot reach the store {store!r}: give s3://bucket/prefix" in said


@pytest.mark.parametrize("arguments", [["nightly"], ["train", "Experiment"], [""]])
def test_a_pipeline_that_there_is_not_is_refused_with_those_that_there_are(tmp_path, arguments):
    said = refused(tmp_path, *arguments)
    assert f"there is no pipeline {arguments[-1]!r}: use experiment or train" in said


@pytest.mark.parametrize(("arguments", "count"), [([], 3), (["train", "experiment"], 2)])
def test_one_name_for_several_pipelines_is_refused(tmp_path, arguments, count):
    said = refused(tmp_path, *arguments, "--name", "nightly")
    assert f"--name names one pipeline, {count} would be written: say which one" in said


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"gpu": 1}', "no field 'gpu' (did you mean 'gpus'?)"),
        ('{"gpus": 1.5}', "gpus: expected int, got 1.5"),
        ("gpus=1", "is not a JSON object"),
        ('{"memory": "2gb"}', "pods.memory must be a quantity"),
        ('{"resources": {"limit": {}}}', "pods.resources has requests and limits"),
        ("[]", "is not a JSON object"),
    ],
)
def test_what_pods_cannot_be_given_is_refused(tmp_path, text, said):
    assert said in refused(tmp_path, "--pods", text)


@pytest.mark.parametrize("gpus", ["-1", "1.5", "x"])
def test_a_number_of_gpus_that_is_none_is_refused(tmp_path, gpus):
    assert "'--gpus'" in refused(tmp_path, "--gpus", gpus)


def test_a_pipeline_that_is_asked_for_twice_is_written_once(tmp_path):
    done = CliRunner().invoke(main, ["compile", "train", "train", "-o", str(tmp_path), "--name", "nightly"])
    assert done.exit_code == 0
    assert done.output.count("wrote") == 1


def test_without_a_name_all_are_written(tmp_path):
    done = CliRunner().invoke(main, ["compile", "-o", str(tmp_path)])
    assert done.exit_code == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"{name}.yaml" for name in sorted(PIPELINES)]


def test_a_file_that_cannot_be_replaced_is_named(tmp_path):
    (tmp_path / "train.yaml").mkdir()
    done = CliRunner().invoke(main, ["compile", "train", "-o", str(tmp_path)])
    assert done.exit_code != 0
    assert f"cannot write {tmp_path / 'train.yaml'}" in done.output


def test_nothing_is_left_beside_a_file_that_cannot_be_replaced(tmp_path):
    (tmp_path / "train.yaml").mkdir()
    CliRunner().invoke(main, ["compile", "train", "-o", str(tmp_path)])
    assert [path.name for path in tmp_path.iterdir()] == ["train.yaml"]


def test_an_earlier_file_stays_whole_when_what_replaces_it_cannot_be_built(tmp_path):
    write("train", for_kubeflow(), tmp_path / "train.yaml")
    before = (tmp_path / "train.yaml").read_bytes()
    with pytest.raises(InvalidInputError):
        write("train", for_kubeflow(steps_image="latest"), tmp_path / "train.yaml")
    assert (tmp_path / "train.yaml").read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["train.yaml"]
