"""A compiled pipeline as Kubeflow runs it: a pod a task, as the service account that the overlay binds."""

import base64
import json
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fourfold.contract import exits, keys
from fourfold.contract.records import Trained
from fourfold.contract.strict import from_json
from fourfold.store import s3
from fourfold.store.objects import open_store
from fourfold_pipelines import compiled
from fourfold_pipelines.chosen import for_kubeflow
from tests.cluster.kubeflow_standin import Pipeline
from tests.conftest import OVERLAY, kubectl

pytestmark = pytest.mark.cluster
NAMESPACE = "kubeflow-fourfold-tests"
STORE = "s3://mlpipeline/fourfold"
PODS = {"cpu": "150m", "memory": "1500Mi", "deadline_seconds": 300,
        "node_selector": {"kubernetes.io/os": "linux"}}  # fmt: skip


@pytest.fixture(scope="module")
def profile(s3_server: s3.Settings, tmp_path_factory) -> Iterator[None]:
    """A namespace as Kubeflow Pipelines makes it, with the overlay kubeflow in it."""
    manifests = tmp_path_factory.mktemp("manifests") / "manifests"
    shutil.copytree(OVERLAY.parents[1], manifests)
    overlay = manifests / "overlays" / "kubeflow" / "kustomization.yaml"
    text = overlay.read_text()
    assert text.count("kubeflow-user-example-com") == 1
    text = text.replace("kubeflow-user-example-com", NAMESPACE)
    overlay.write_text(
        text.replace("http://minio-service.kubeflow:9000", "http://seaweedfs.fourfold.svc:8333")
    )
    kubectl("create", "namespace", NAMESPACE)
    kubectl("-n", NAMESPACE, "create", "serviceaccount", "pipeline-runner")
    kubectl("-n", NAMESPACE, "create", "secret", "generic", "mlpipeline-minio-artifact",
            f"--from-literal=accesskey={s3_server.access_key}",
            f"--from-literal=secretkey={s3_server.secret_key}")  # fmt: skip
    kubectl("apply", "--server-side", "-k", str(overlay.parent))
    yield
    kubectl("delete", "namespace", NAMESPACE, "--wait=false")


@pytest.fixture
def in_store(s3_server: s3.Settings, monkeypatch) -> None:
    """Lets this process read what the pods wrote."""
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", s3_server.endpoint)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", s3_server.access_key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", s3_server.secret_key)


@pytest.fixture(scope="module")
def train_yaml(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("compiled") / "train.yaml"
    compiled.write("train", for_kubeflow(json.dumps(PODS)), path)
    return path


@pytest.fixture
def start(profile, train_yaml, request) -> Callable[..., Pipeline]:
    """Starts runs of the compiled pipeline train, with prepared data."""
    made: list[Pipeline] = []

    def run(**parameters) -> Pipeline:
        name = f"fourfold-train-{abs(hash(request.node.name)) % 10**5:05d}{len(made)}"
        pipeline = Pipeline.start(train_yaml, NAMESPACE, name, store=STORE, **parameters)
        made.append(pipeline)
        pipeline.run("prepare")
        return pipeline

    return run


def wait_for_job(pipeline: Pipeline, pod: str, seconds: float = 180.0) -> str:
    """Waits until the run's TFJob trains; gives its name."""
    until = time.monotonic() + seconds
    while "epoch 1/" not in pipeline.log(pod):
        assert time.monotonic() < until, pipeline.log(pod)
        time.sleep(0.3)
    (job,) = pipeline.jobs()
    return job["metadata"]["name"]


def signal_step(pod: str, name: str) -> None:
    """Signals the step's own program; the shell around it and what waits for the shell end after it."""
    loop = (
        "for p in /proc/[0-9]*; do tr '\\0' ' ' <$p/cmdline | grep -q '^python3 -m kfp' && "
        f"kill -{name} ${{p#/proc/}}; done"
    )
    # The container ends with the program, and this command with it.
    command = ["kubectl", "-n", NAMESPACE, "exec", pod, "--", "sh", "-c", loop]
    subprocess.run(command, capture_output=True, timeout=60, check=False)


def wait_until_gone(pipeline: Pipeline, seconds: float = 30.0) -> None:
    until = time.monotonic() + seconds
    while pipeline.jobs():
        assert time.monotonic() < until, "the TFJob is still there"
        time.sleep(0.3)


def no_secret_in(text: str, server: s3.Settings) -> None:
    for secret in (server.access_key, server.secret_key):
        assert secret not in text
        assert base64.b64encode(secret.encode()).decode() not in text


def test_a_compiled_pipeline_runs_task_by_task(start, in_store, s3_server, train_yaml):
    pipeline = start(rows=400, holdout=100, epochs=2)
    log = pipeline.run("train")
    (job,) = pipeline.jobs()
    no_secret_in(train_yaml.read_text() + log + json.dumps(job), s3_server)

    assert "data_parallel: epoch 2/2" in log
    (owner,) = job["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"]) == ("ConfigMap", pipeline.name)
    worker = job["spec"]["tfReplicaSpecs"]["Worker"]["template"]["spec"]
    assert worker["containers"][0]["resources"] == pipeline.task_config("train")["resources"]
    assert worker["containers"][0]["resources"]["requests"] == {"cpu": "150m", "memory": "1500Mi"}
    assert worker["nodeSelector"] == {"kubernetes.io/os": "linux"}
    # The pods wrote below the artifact's URI themselves, in the bucket that the store is in.
    uri = pipeline.outputs["train"]["model"]
    trained = from_json(Trained, open_store(uri).read(keys.TRAINED))
    assert trained.training.output == uri
    assert open_store(uri).exists(keys.model(0))
    assert "does not exist" in log, "nothing was left at the local path, which Kubeflow takes for well"

    pipeline.run("evaluate")
    metadata = pipeline.outputs["evaluate metadata"]
    assert 0 < metadata["metrics"]["accuracy"] <= 1
    matrix = metadata["classification"]["confusionMatrix"]
    assert [each["displayName"] for each in matrix["annotationSpecs"]] == [str(digit) for digit in range(10)]
    page = pipeline.outputs["evaluate"]["page"]
    store, _, name = page.rpartition("/")
    assert open_store(store).read(name).startswith(b"<!doctype html>")

    log = pipeline.run("clean-up")
    assert f"deleted {job['metadata']['name']}" in log
    assert pipeline.jobs() == []
    assert "nothing: no TFJob was left" in pipeline.run("clean-up")


def test_a_step_that_is_terminated_deletes_its_job_first_of_all(start):
    pipeline = start(rows=2000, holdout=100, epochs=500, scenario="sequential")
    pod = pipeline.begin("train")
    job = wait_for_job(pipeline, pod)
    # Kubeflow signals the shell around the program too, whose end leaves it a fraction of a second, so a
    # deletion may not get through. Then the last step deletes the job, as the next test shows.
    signal_step(pod, "TERM")

    code, log = pipeline.end("train", pod)
    assert code == exits.TERMINATED, log
    assert f"told to end: TFJob {job} is deleted" in log
    wait_until_gone(pipeline)


def test_the_last_step_deletes_what_a_killed_one_left_and_nothing_else(start):
    first = start(rows=2000, holdout=100, epochs=500, scenario="sequential")
    second = start(rows=2000, holdout=100, epochs=500, scenario="sequential", seed=1)
    pods = {pipeline.name: pipeline.begin("train") for pipeline in (first, second)}
    for pipeline in (first, second):
        wait_for_job(pipeline, pods[pipeline.name])
    signal_step(pods[first.name], "KILL")
    code, _ = first.end("train", pods[first.name])
    assert code != 0
    (left,) = first.jobs()

    assert f"deleted {left['metadata']['name']}" in first.run("clean-up")
    assert first.jobs() == []
    assert len(second.jobs()) == 1, "another run's job stays"
    signal_step(pods[second.name], "KILL")
    second.run("clean-up")
    assert second.jobs() == []


def test_a_step_that_is_started_again_goes_on_with_its_job(start, in_store):
    pipeline = start(rows=2000, holdout=100, epochs=30, scenario="sequential")
    pod = pipeline.begin("train")
    job = wait_for_job(pipeline, pod)
    # Evicted: the pod goes at once, and the workflow starts another one on its own.
    kubectl("-n", NAMESPACE, "delete", "pod", pod, "--grace-period=0", "--force")

    log = pipeline.run("train")
    assert f"goes on with TFJob {job}" in log
    assert [each["metadata"]["name"] for each in pipeline.jobs()] == [job]
    assert open_store(pipeline.outputs["train"]["model"]).exists(keys.TRAINED)
    pipeline.run("clean-up")


def test_a_training_that_diverged_is_not_trained_again(start):
    pipeline = start(
        rows=400, holdout=100, epochs=2, scenario="sequential", optimizer="sgd", learning_rate=1e9
    )
    code, log = pipeline.end("train", pipeline.begin("train"))
    assert (code, "diverged" in log) == (3, True), log
    (job,) = pipeline.jobs()

    code, log = pipeline.end("train", pipeline.begin("train"))
    assert code == 3
    assert f"TFJob {job['metadata']['name']} of this run has failed already and would again" in log
    assert len(pipeline.jobs()) == 1
    pipeline.run("clean-up")
    assert pipeline.jobs() == []
