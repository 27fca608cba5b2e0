"""The TFJob: names that Kubernetes takes, what the operator and a cluster's rules ask, nothing secret."""

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import assume, given, strategies as st

from fourfold.contract import plan as plans
from fourfold.contract.errors import InvalidInputError
from fourfold.contract.pods import Pods
from fourfold.contract.records import Training
from fourfold.contract.strict import from_json
from fourfold.train import tfjob

DNS_1035 = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?")
TRAINING = Training("data_parallel", 2, "s3://bucket/store", "f" * 32, "a" * 16, "s3://bucket/out", trace=[1])
PODS = Pods(namespace="team", gpus=1, node_selector={"zone": "a"}, tolerations=[{"key": "gpu"}])
ODD = [
    "",
    "-",
    "---",
    "2026-11-30",
    "Hybrid_A",
    "x.",
    "7",
    ".",
    "-a-",
    "ünïcode",
    "日本語",
    "K",
    "a\nb",
    "A" * 200,
]
RUNS = st.sampled_from(ODD) | st.text(max_size=200) | st.text("aA0-._ ", max_size=200)
SCENARIOS = st.sampled_from(plans.names())
EVERY_SCENARIO = pytest.mark.parametrize("scenario", plans.names())


def build(run: str = "run", attempt: int = 1, pods: Pods = PODS, **training: Any) -> dict[str, Any]:
    return tfjob.build(replace(TRAINING, **training), pods, run, attempt)


def name(*arguments: Any, **training: Any) -> str:
    return build(*arguments, **training)["metadata"]["name"]


def template(job: dict[str, Any]) -> dict[str, Any]:
    return job["spec"]["tfReplicaSpecs"]["Worker"]["template"]


def container(job: dict[str, Any]) -> dict[str, Any]:
    (only,) = template(job)["spec"]["containers"]
    return only


def walk(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every value inside of one, with its path."""
    yield path, value
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield from walk(inner, f"{path}.{key}")


@given(RUNS, SCENARIOS, st.integers(1, 99), st.integers(1, 100))
def test_the_names_of_job_and_pods_are_dns_labels_whatever_the_run_is_called(run, scenario, attempt, workers):
    job = build(run, attempt, scenario=scenario, workers=workers)
    called = job["metadata"]["name"]
    last = job["spec"]["tfReplicaSpecs"]["Worker"]["replicas"] - 1
    for made in (called, *(f"{called}-worker-{index}" for index in {0, last})):
        assert DNS_1035.fullmatch(made)
        assert len(made) <= 63


@EVERY_SCENARIO
def test_the_longest_name_is_just_short_enough(scenario):
    called = name("A" * 200, 99, scenario=scenario, workers=100)
    assert len(f"{called}-worker-99") == 63
    assert DNS_1035.fullmatch(f"{called}-worker-99")


@EVERY_SCENARIO
def test_a_name_is_cut_without_a_double_dash(scenario):
    for cut in range(1, 60):
        called = name(f"{'a' * cut}-{'b' * 60}", scenario=scenario)
        assert DNS_1035.fullmatch(called)
        assert "--" not in called


@given(RUNS, RUNS, SCENARIOS)
def test_another_run_has_another_name_and_label(run, other, scenario):
    assume(run != other)
    assert name(run, scenario=scenario) != name(other, scenario=scenario)
    assert tfjob.label(run) != tfjob.label(other)


@pytest.mark.parametrize(
    ("run", "other"),
    [
        ("a" * 60 + "1", "a" * 60 + "2"),
        ("a" * 199 + "1", "a" * 199 + "2"),
        ("a" * 63, "a" * 64),
        ("Hybrid_A", "hybrid-a"),
        ("x.", "x"),
        ("x", "x-"),
        ("", "run"),
        ("7", "run-7"),
        ("a b", "a_b"),
        ("é", "è"),
    ],
)
def test_runs_that_look_alike_have_other_names_and_labels(run, other):
    assert name(run) != name(other)
    assert tfjob.label(run) != tfjob.label(other)


@given(RUNS)
def test_the_label_of_a_run_is_a_label_value(run):
    found = tfjob.label(run)
    assert LABEL_VALUE.fullmatch(found)
    assert 1 <= len(found) <= 63


@given(RUNS, SCENARIOS)
def test_all_labels_are_label_values(run, scenario):
    job = build(run, scenario=scenario)
    for labels in (job["metadata"]["labels"], template(job)["metadata"]["labels"]):
        assert labels[tfjob.RUN] == tfjob.label(run)
        assert labels[tfjob.SCENARIO] == scenario
        for value in labels.values():
            assert LABEL_VALUE.fullmatch(value)
            assert len(value) <= 63


@given(RUNS)
def test_a_label_is_its_own_label(run):
    assert tfjob.label(tfjob.label(run)) == tfjob.label(run)


def test_names_that_people_choose_stay_readable():
    assert tfjob.label("nightly-7") == "nightly-7"
    assert name("nightly-7").startswith("nightly-7-data-parallel-")
    assert name("2026-11-30").startswith("run-2026-11-30-data-parallel-")
    assert name("Hybrid_A").startswith("hybrid-a-data-parallel-")


@given(RUNS, SCENARIOS, st.integers(1, 99))
def test_the_same_arguments_give_the_same_job(run, scenario, attempt):
    assert build(run, attempt, scenario=scenario) == build(run, attempt, scenario=scenario)


def test_attempts_differ_in_the_name_alone():
    jobs = [build("a" * 100, attempt) for attempt in range(1, 100)]
    assert len({job["metadata"].pop("name") for job in jobs}) == 99
    assert all(job == jobs[0] for job in jobs)


@pytest.mark.parametrize(
    "change",
    [
        {"scenario": "solo"}, {"workers": 3}, {"store": "s3://bucket/other"}, {"fingerprint": "e" * 32},
        {"split": "b" * 16}, {"output": "s3://bucket/out2"}, {"epochs": 6}, {"batch": 99},
        {"optimizer": "sgd"}, {"learning_rate": 0.002}, {"seed": 1}, {"threads": 2}, {"finish_seconds": 5.0},
        {"trace": [2]}, {"code": "c" * 64},
    ],
    ids=str,
)  # fmt: skip
def test_another_training_is_another_job(change):
    digest = build()["metadata"]["annotations"][tfjob.SPEC]
    assert build(**change)["metadata"]["annotations"][tfjob.SPEC] != digest
    assert name(**change) != name()


@pytest.mark.parametrize(
    "change",
    [
        {"image": "a/worker:2"}, {"service_account": "other"}, {"config": "other"}, {"secret": "other"},
        {"access_key": "id"}, {"secret_key": "key"}, {"endpoint": "http://s3:1"}, {"cpu": "2"},
        {"memory": "3Gi"}, {"scratch": "5Gi"}, {"gpus": 2}, {"gpu_resource": "amd.com/gpu"},
        {"node_selector": {"zone": "b"}}, {"tolerations": []}, {"start_seconds": 1}, {"deadline_seconds": 9},
        {"ttl_seconds": 9}, {"affinity": {"nodeAffinity": {}}}, {"resources": {"limits": {"cpu": "3"}}},
    ],
    ids=str,
)  # fmt: skip
def test_other_pods_are_another_job(change):
    other = build(pods=replace(PODS, **change))
    assert other["metadata"]["annotations"][tfjob.SPEC] != build()["metadata"]["annotations"][tfjob.SPEC]
    assert other["metadata"]["name"] != name()


def test_the_workers_wait_for_their_peers_as_long_as_pods_may_take_to_start():
    """So a training's own limit, which is for processes of one machine, makes no other job."""
    job = build(pods=replace(PODS, start_seconds=77), start_seconds=1.0)
    assert json.loads(container(job)["args"][0])["start_seconds"] == 77.0
    assert job == build(pods=replace(PODS, start_seconds=77), start_seconds=2.0)


@EVERY_SCENARIO
def test_the_worker_is_told_the_training(scenario):
    container_ = container(build(scenario=scenario, code="c" * 64))
    assert container_["command"][-3:] == ["-m", "fourfold.worker", "--training"]
    told = from_json(Training, container_["args"][0])
    asked = replace(TRAINING, scenario=scenario, code="c" * 64)
    assert told == replace(asked, start_seconds=float(PODS.start_seconds))


@EVERY_SCENARIO
def test_limits_and_clean_up_stand_where_the_operator_reads_them(scenario):
    pods = replace(PODS, deadline_seconds=1234, ttl_seconds=567)
    job = build(pods=pods, scenario=scenario)
    keys = ("activeDeadlineSeconds", "ttlSecondsAfterFinished", "cleanPodPolicy")
    found = {path: value for path, value in walk(job) if path.rpartition(".")[2] in keys}
    assert found == {
        ".spec.runPolicy.activeDeadlineSeconds": 1234,
        ".spec.runPolicy.ttlSecondsAfterFinished": 567,
        ".spec.runPolicy.cleanPodPolicy": "Running",
        # Of each pod, read by its kubelet: the operator looks at the job's when something happens to a pod.
        ".spec.tfReplicaSpecs.Worker.template.spec.activeDeadlineSeconds": 1234,
    }


@EVERY_SCENARIO
def test_the_job_is_one_that_the_operator_takes(scenario):
    job = build(scenario=scenario, workers=3)
    assert (job["apiVersion"], job["kind"]) == ("kubeflow.org/v1", "TFJob")
    assert set(job["spec"]["tfReplicaSpecs"]) == {"Worker"}
    assert job["spec"]["successPolicy"] == "AllWorkers"
    worker = job["spec"]["tfReplicaSpecs"]["Worker"]
    assert worker["replicas"] == plans.plan(scenario, 3).processes
    assert worker["restartPolicy"] == "ExitCode"
    assert "restartPolicy" not in template(job)["spec"]
    assert container(job)["name"] == "tensorflow"
    assert container(job)["ports"] == [{"name": "tfjob-port", "containerPort": 2222}]


@EVERY_SCENARIO
def test_the_image_has_a_tag_and_is_not_pulled_where_it_is(scenario):
    found = container(build(scenario=scenario, pods=Pods()))
    assert re.fullmatch(r".+/[^:]+:(?!latest$)[^:]+", found["image"])
    assert found["imagePullPolicy"] == "IfNotPresent"


@EVERY_SCENARIO
def test_no_proxy_is_put_beside_the_worker(scenario):
    metadata = template(build(scenario=scenario))["metadata"]
    assert metadata["labels"]["sidecar.istio.io/inject"] == "false"
    assert metadata["annotations"]["sidecar.istio.io/inject"] == "false"


@EVERY_SCENARIO
def test_pods_pass_the_restricted_standard_and_write_only_in_two_places(scenario):
    spec = template(build(scenario=scenario))["spec"]
    pod, inside = spec["securityContext"], container(build(scenario=scenario))["securityContext"]
    assert pod["runAsNonRoot"] is True
    assert all(isinstance(pod[key], int) and pod[key] > 0 for key in ("runAsUser", "runAsGroup", "fsGroup"))
    assert pod["seccompProfile"] == {"type": "RuntimeDefault"}
    assert inside["allowPrivilegeEscalation"] is False
    assert inside["capabilities"] == {"drop": ["ALL"]}
    assert inside["readOnlyRootFilesystem"] is True
    assert not {"runAsUser", "runAsNonRoot", "privileged", "procMount"} & set(inside)
    assert not {"hostNetwork", "hostPID", "hostIPC", "initContainers", "hostAliases"} & set(spec)
    mount = container(build(scenario=scenario))["volumeMounts"]
    assert mount == [{"name": "tmp", "mountPath": "/tmp"}, {"name": "cache", "mountPath": "/cache"}]
    assert spec["volumes"] == [
        {"name": "tmp", "emptyDir": {"sizeLimit": PODS.scratch}},
        {"name": "cache", "emptyDir": {"sizeLimit": PODS.cache}},
    ]


def test_the_cache_stops_before_its_volume_is_full_and_may_be_shared():
    job = build(pods=Pods(cache="10Gi", cache_claim="batches"))
    variables = {variable["name"]: variable.get("value") for variable in container(job)["env"]}
    assert variables["FOURFOLD_CACHE"] == "/cache"
    assert int(variables["FOURFOLD_CACHE_BYTES"]) == 9 * 1024**3
    volume = {"name": "cache", "persistentVolumeClaim": {"claimName": "batches"}}
    assert template(job)["spec"]["volumes"][1] == volume


@EVERY_SCENARIO
def test_pods_have_no_token_for_the_cluster(scenario):
    spec = template(build(scenario=scenario))["spec"]
    assert spec["automountServiceAccountToken"] is False
    assert spec["serviceAccountName"] == PODS.service_account


@pytest.mark.parametrize("keys", [("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"), ("accesskey", "secretkey")])
def test_credentials_are_references_to_the_secret_and_never_values(monkeypatch, keys):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "marker-of-an-id")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "marker-of-a-secret")
    job = build(pods=Pods(secret="mine", access_key=keys[0], secret_key=keys[1]))
    variables = {variable.pop("name"): variable for variable in container(job)["env"]}
    for variable, key in zip(("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"), keys, strict=True):
        assert variables[variable] == {"valueFrom": {"secretKeyRef": {"name": "mine", "key": key}}}
    assert "marker" not in json.dumps(job)


def test_the_server_is_named_by_the_config_map_or_outright():
    def env(**pods: Any) -> dict[str, Any]:
        return {item["name"]: item for item in container(build(pods=Pods(**pods)))["env"]}

    of_config = {"configMapKeyRef": {"name": "place", "key": "AWS_ENDPOINT_URL_S3"}}
    assert env(config="place")["AWS_ENDPOINT_URL_S3"]["valueFrom"] == of_config
    assert env(config="place")["AWS_REGION"]["valueFrom"]["configMapKeyRef"]["optional"] is True
    outright = env(config="place", endpoint="http://s3:9000")["AWS_ENDPOINT_URL_S3"]
    assert outright == {"name": "AWS_ENDPOINT_URL_S3", "value": "http://s3:9000"}
    always = {"HOME", "FOURFOLD_CACHE", "FOURFOLD_CACHE_BYTES"}
    assert set(env(config="", secret="", endpoint="http://s3:9000")) == {*always, "AWS_ENDPOINT_URL_S3"}
    assert env()["HOME"]["value"] == "/tmp"


def test_size_and_place_arrive():
    pods = Pods(cpu="3", memory="7Gi", gpus=2, gpu_resource="amd.com/gpu", node_selector={"zone": "a"},
                tolerations=[{"key": "gpu", "operator": "Exists"}])  # fmt: skip
    job = build(pods=pods)
    assert container(job)["resources"] == {
        "requests": {"cpu": "3", "memory": "7Gi"},
        "limits": {"memory": "7Gi", "amd.com/gpu": "2"},
    }
    assert template(job)["spec"]["nodeSelector"] == {"zone": "a"}
    assert template(job)["spec"]["tolerations"] == [{"key": "gpu", "operator": "Exists"}]


def test_resources_as_of_a_container_go_before_cpu_memory_and_gpus():
    given_ = {"requests": {"cpu": "3"}, "limits": {"example.org/chip": "2", "memory": "1Gi"}}
    job = build(pods=Pods(cpu="9", memory="9Gi", gpus=9, resources=given_))
    assert container(job)["resources"] == given_
    assert "nvidia" not in json.dumps(job)


def test_affinity_is_the_pods_own():
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": []}}
    assert template(build(pods=Pods(affinity=affinity)))["spec"]["affinity"] == affinity
    assert "affinity" not in template(build(pods=Pods()))["spec"]


@given(st.integers(0, 8), st.sampled_from(["nvidia.com/gpu", "amd.com/gpu"]))
def test_what_is_usual_written_out_as_resources_makes_the_same_container(gpus, kind):
    pods = Pods(cpu="3", memory="7Gi", gpus=gpus, gpu_resource=kind)
    written = Pods(resources=tfjob.resources(pods))
    assert container(build(pods=written)) == container(build(pods=pods))


def test_without_gpus_none_is_asked_for():
    assert "gpu" not in json.dumps(build(pods=Pods()))
    assert not {"nodeSelector", "tolerations"} & set(template(build(pods=Pods()))["spec"])


def test_namespace_and_owner_are_the_jobs():
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "launcher", "uid": "u"}
    job = tfjob.build(TRAINING, PODS, "run", owner=owner)
    assert job["metadata"]["namespace"] == "team"
    assert job["metadata"]["ownerReferences"] == [owner]
    assert not {"namespace", "ownerReferences"} & set(build(pods=Pods())["metadata"])


FOLDERS = ["/data/store", "store", "file:///data", "gs://bucket/a", "", "s3:/b", "./s3", "s3/b"]


@pytest.mark.parametrize("field", ["store", "output"])
@pytest.mark.parametrize("uri", [*FOLDERS, "s3"])
def test_what_pods_cannot_reach_is_refused_with_what_to_do(field, uri):
    with pytest.raises(InvalidInputError) as caught:
        build(**{field: uri})
    assert f"pods of a cluster cannot reach the {field} {uri!r}" in str(caught.value)
    assert "s3://bucket/prefix" in str(caught.value)


@pytest.mark.parametrize("uri", ["s3://bucket", "S3://bucket/a", "minio://bucket/a"])
def test_what_pods_can_reach_is_taken(uri):
    assert build(store=uri, output=uri)


@EVERY_SCENARIO
def test_more_workers_than_names_are_refused(scenario):
    if (fixed := plans.plan(scenario, 101).processes) < 101:
        job = build(scenario=scenario, workers=101)
        assert job["spec"]["tfReplicaSpecs"]["Worker"]["replicas"] == fixed
        return
    with pytest.raises(InvalidInputError, match="100 workers here, 101 were asked for"):
        build(scenario=scenario, workers=101)
