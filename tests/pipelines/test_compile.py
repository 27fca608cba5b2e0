"""What is compiled for Kubeflow: pinned, without a secret, with what the table of steps says, whole."""

import base64
import json
import re
from typing import Any

import pytest
from google.protobuf import json_format
from kfp.kubernetes import kubernetes_executor_config_pb2
from kfp.pipeline_spec import pipeline_spec_pb2
from kubernetes.utils.quantity import parse_quantity

from fourfold.contract import images, pods
from fourfold.contract.pods import IMAGE, with_task
from fourfold.train import tfjob
from fourfold_pipelines.compiled import PIPELINES
from fourfold_pipelines.steps import TABLE
from tests.pipelines.ir import (
    CHOICES,
    DIGEST,
    ENVIRONMENT,
    EVERY,
    LAUNCHERS,
    OWN_STORE,
    TRAINING,
    Compiled,
    compile_with,
    compiled,
    steps,
    walk,
)

every_file = pytest.mark.parametrize(("which", "choice"), EVERY)
every_pipeline = pytest.mark.parametrize("which", TRAINING)


@every_file
def test_every_step_of_the_pipeline_is_in_it_and_no_other(which, choice):
    found = compiled(which, choice)
    assert sorted(found.containers) == sorted(found.tasks) == sorted(found.kubernetes) == steps(which)


@every_file
def test_every_field_is_one_that_kfp_knows(which, choice):
    found = compiled(which, choice)
    strict: Any = {"ignore_unknown_fields": False}
    json_format.ParseDict(found.ir, pipeline_spec_pb2.PipelineSpec(), **strict)
    json_format.ParseDict(found.platform, pipeline_spec_pb2.PlatformSpec(), **strict)
    for executor in found.kubernetes.values():
        known = kubernetes_executor_config_pb2.KubernetesExecutorConfig()
        json_format.ParseDict(executor, known, **strict)


def test_the_check_of_fields_sees_one_that_is_unknown():
    ir = {**compiled("train").ir, "retries": 3}
    with pytest.raises(json_format.ParseError):
        json_format.ParseDict(ir, pipeline_spec_pb2.PipelineSpec(), ignore_unknown_fields=False)


# Images (K2).


@every_file
def test_every_image_has_a_tag_that_stays_or_a_digest_and_is_the_one_of_the_table(which, choice):
    found = compiled(which, choice)
    other = {
        "registry": {
            image: f"registry.example.org:5000/team/{image}" for image in (images.STEPS, images.WORKER)
        },
        "other images": {images.STEPS: DIGEST, images.WORKER: "lab/worker:7"},
    }.get(choice, {})
    for name, container in found.containers.items():
        image = container["image"]
        assert IMAGE.fullmatch(image)
        assert not image.endswith(":latest")
        assert image == other.get(TABLE[name].image, TABLE[name].image)
    in_record = {"gpus": "lab/own-worker:3"}.get(choice, other.get(images.WORKER, images.WORKER))
    assert found.pods.image == in_record


@pytest.mark.parametrize("image", [images.STEPS, images.WORKER])
def test_our_images_are_of_this_version_and_the_local_runner_does_not_warn_of_their_names(image):
    """It does where an image's name has no "python" in it."""
    repository, _, tag = image.rpartition(":")
    assert re.fullmatch(r"\d+\.\d+\.\d+", tag)
    assert "python" in repository


@every_file
def test_nothing_is_installed_in_a_pod(which, choice):
    assert not re.search(r"\bpip3?\b|packages_to_install|ensurepip", compiled(which, choice).text)


# Secrets (K9).


@every_file
def test_names_of_secrets_and_of_config_maps_are_constants(which, choice):
    """A name that is a parameter is not found inside a loop."""
    found = compiled(which, choice)
    for step, executor in found.kubernetes.items():
        for kind, name in (("secretAsEnv", "secretName"), ("configMapAsEnv", "configMapName")):
            for reference in executor.get(kind, []):
                parameter = reference[f"{name}Parameter"]
                assert set(parameter) == {"runtimeValue"}, step
                assert parameter["runtimeValue"]["constant"] == reference[name]
                assert "{{" not in reference[name]


@every_file
def test_steps_that_use_the_store_get_its_account_by_reference_and_no_other_step_does(which, choice):
    found = compiled(which, choice)
    account = {
        "own store": OWN_STORE,
        "no account": {"secret": ""},
    }.get(
        choice, {"secret": "mlpipeline-minio-artifact", "access_key": "accesskey", "secret_key": "secretkey"}
    )
    for step, executor in found.kubernetes.items():
        secrets = executor.get("secretAsEnv", [])
        if not account["secret"] or not TABLE[step].uses_store:
            assert secrets == []
            continue
        (secret,) = secrets
        assert secret["secretName"] == account["secret"]
        assert secret["keyToEnv"] == [
            {"secretKey": account["access_key"], "envVar": "AWS_ACCESS_KEY_ID"},
            {"secretKey": account["secret_key"], "envVar": "AWS_SECRET_ACCESS_KEY"},
        ]
    assert {name for name, step in TABLE.items() if not step.uses_store} == {"clean-up", "tabulate"}


@every_file
def test_the_environment_of_a_step_is_from_a_short_list(which, choice):
    found = compiled(which, choice)
    for container in found.containers.values():
        assert set(container) <= {"image", "command", "args", "resources", "env"}
        assert {entry["name"] for entry in container.get("env", [])} <= ENVIRONMENT
    for executor in found.kubernetes.values():
        references = [r for kind in ("secretAsEnv", "configMapAsEnv") for r in executor.get(kind, [])]
        variables = [pair["envVar"] for reference in references for pair in reference["keyToEnv"]]
        assert set(variables) <= ENVIRONMENT
        assert len(variables) == len(set(variables))
        assert set(executor) <= {"secretAsEnv", "configMapAsEnv", "imagePullPolicy", "nodeSelector"}


@every_pipeline
@pytest.mark.parametrize("options", [(), ("--pods", json.dumps(OWN_STORE))])
def test_no_secret_of_whoever_compiles_is_in_the_file(which, options, monkeypatch):
    markers = {name: f"marker-{name.lower()}-of-mine" for name in sorted(ENVIRONMENT)}
    for name, value in markers.items():
        monkeypatch.setenv(name, value)
    text = compile_with(which, *options).text
    for value in markers.values():
        assert value not in text
        # Base64 depends on where in the three bytes of a group a text begins.
        for start in range(3):
            encoded = base64.b64encode(value[start:].encode()).decode().rstrip("=")[:-1]
            assert encoded not in text
    assert "AWS_SECRET_ACCESS_KEY" in text


@every_pipeline
def test_an_endpoint_that_is_said_outright_is_a_variable_of_every_step_with_the_store(which):
    found = compile_with(which, "--pods", '{"endpoint": "http://s3.lab:9000"}')
    said = {"name": "AWS_ENDPOINT_URL_S3", "value": "http://s3.lab:9000"}
    for step, container in found.containers.items():
        assert container.get("env", []) == ([said] if TABLE[step].uses_store else [])


# What the table says.


@every_file
def test_resources_are_those_of_the_table(which, choice):
    found = compiled(which, choice)
    for step, container in found.containers.items():
        if step in LAUNCHERS:
            continue
        given = container["resources"]
        assert given["resourceCpuRequest"] == TABLE[step].cpu
        assert given["resourceMemoryRequest"] == given["resourceMemoryLimit"] == TABLE[step].memory
        assert not {"accelerator", "resourceCpuLimit"} & set(given)


@every_file
def test_retries_are_those_of_the_table_and_outlast_the_deadline_of_the_pods(which, choice):
    """Kubeflow counts the longest time from the first try, and ends what runs longer."""
    found = compiled(which, choice)
    for step, task in found.tasks.items():
        policy = task["retryPolicy"]
        assert policy["maxRetryCount"] == TABLE[step].retries
        longest = int(re.fullmatch(r"(\d+)s", policy["backoffMaxDuration"])[1])  # pyright: ignore
        assert longest >= (1 + TABLE[step].retries) * found.pods.deadline_seconds
        assert 0 < int(policy["backoffDuration"].removesuffix("s")) < 600
        assert policy["backoffFactor"] >= 1


@every_file
def test_caching_is_that_of_the_table_and_images_are_pulled_only_where_they_are_missing(which, choice):
    found = compiled(which, choice)
    for step, task in found.tasks.items():
        assert task["cachingOptions"] == ({"enableCache": True} if TABLE[step].cached else {})
        assert task["taskInfo"]["name"] == TABLE[step].title
        assert found.kubernetes[step]["imagePullPolicy"] == "IfNotPresent"


def test_what_must_be_done_in_every_run_is_never_taken_from_the_cache():
    """KFP cannot see that a file changed, our own cache can; and what is left is another's each time."""
    assert {name for name, step in TABLE.items() if not step.cached} == {"prepare", "clean-up"}


# What the pods that train are given stands on the task, where Kubeflow's users look, and in the record.


def on_task(found: Compiled) -> dict[str, Any]:
    """What Kubeflow makes of the task's resources: a container's, as it passes them on."""
    given = found.containers["train"].get("resources", {})
    requests = {"cpu": given.get("resourceCpuRequest"), "memory": given.get("resourceMemoryRequest")}
    limits = {"memory": given.get("resourceMemoryLimit")}
    if "accelerator" in given:
        limits[given["accelerator"]["resourceType"]] = given["accelerator"]["resourceCount"]
    said = {"requests": requests, "limits": limits}
    return {
        kind: {k: v for k, v in kinds.items() if v} for kind, kinds in said.items() if any(kinds.values())
    }


def in_numbers(resources: dict[str, Any]) -> dict[str, Any]:
    return {
        kind: {name: parse_quantity(quantity) for name, quantity in quantities.items()}
        for kind, quantities in resources.items()
    }


@every_file
def test_the_task_and_the_record_make_the_same_pods(which, choice):
    found = compiled(which, choice)
    selector = found.kubernetes["train"].get("nodeSelector", {}).get("labels", {})
    assert selector == found.pods.node_selector
    together = with_task(found.pods, resources=on_task(found), node_selector=selector)
    wanted = found.pods.resources or tfjob.resources(found.pods)
    assert in_numbers(together.resources) == in_numbers(wanted)
    assert together.tolerations == found.pods.tolerations
    assert together.affinity == found.pods.affinity


@every_pipeline
def test_what_is_asked_for_arrives(which):
    found = compiled(which, "gpus")
    assert found.containers["train"]["resources"]["accelerator"]["resourceCount"] == "3"
    assert found.containers["train"]["resources"]["accelerator"]["resourceType"] == "nvidia.com/gpu"
    assert on_task(found)["requests"] == {"cpu": "4", "memory": "16Gi"}
    assert found.kubernetes["train"]["nodeSelector"]["labels"] == {"pool": "gpu", "example.org/zone": "a"}
    assert found.pods.gpus == 3
    assert found.pods.tolerations[0]["tolerationSeconds"] == 30
    assert found.pods.affinity
    assert (found.pods.service_account, found.pods.deadline_seconds) == ("trainer", 7200)
    assert compiled(which, "raw resources").containers["train"].get("resources") is None
    for step, executor in found.kubernetes.items():
        assert ("nodeSelector" in executor) == (step in LAUNCHERS)


@pytest.mark.parametrize(
    "memory",
    [
        "2Gi", "1.5Gi", "512Mi", "900000Ki", "1Ti", "4G", "0.5G", "8M", "2000000000", "1.5k",
        "4000000k",
    ],
)  # fmt: skip
def test_memory_on_the_task_is_a_quantity_of_kubernetes_and_the_same(memory):
    said = on_task(compile_with("train", "--pods", json.dumps({"memory": memory})))
    for kind in ("requests", "limits"):
        assert pods.BYTES.fullmatch(said[kind]["memory"])
        assert parse_quantity(said[kind]["memory"]) == parse_quantity(memory)


@every_file
def test_what_launches_passes_on_resources_and_place_to_its_pods(which, choice):
    components = compiled(which, choice).ir["components"]
    launchers = [f"comp-{step}" for step in LAUNCHERS if step in steps(which)]
    for name in launchers:
        component = components[name]
        fields = [passed["field"] for passed in component["taskConfigPassthroughs"]]
        assert sorted(fields) == [
            "ENV", "KUBERNETES_AFFINITY", "KUBERNETES_NODE_SELECTOR", "KUBERNETES_TOLERATIONS", "RESOURCES"
        ]  # fmt: skip
        own = [p["field"] for p in component["taskConfigPassthroughs"] if p.get("applyToTask")]
        assert own == ["ENV"], "the launcher itself needs no GPU"
        kinds = component["inputDefinitions"]["parameters"]
        assert [key for key, p in kinds.items() if p["parameterType"] == "TASK_CONFIG"] == ["task"]
    others = [component for name, component in components.items() if name not in launchers]
    assert not any("taskConfigPassthroughs" in component for component in others)


# The end of a run.


@every_file
def test_the_last_step_runs_after_all_others_whatever_happened(which, choice):
    found = compiled(which, choice)
    tasks = found.ir["root"]["dag"]["tasks"]
    (last,) = (task for task in tasks.values() if "triggerPolicy" in task)
    assert last is found.tasks["clean-up"]
    assert last["triggerPolicy"] == {"strategy": "ALL_UPSTREAM_TASKS_COMPLETED"}
    assert set(tasks) == {"clean-up", *last["dependentTasks"]}
    assert len(last["dependentTasks"]) == 1
    assert found.constant("clean-up", "keep_failed") is (choice == "own store")
    assert found.constant("clean-up", "pods") == found.constant("train", "pods")
    # Where outputs of the part before were inputs, they would be missing after a failure.
    assert not any("taskOutput" in path for path, _ in walk(last))


@every_file
def test_the_file_is_named_in_kubeflow_as_was_asked(which, choice):
    info = compiled(which, choice).ir["pipelineInfo"]
    assert info["name"] == ("nightly" if choice == "other name" else PIPELINES[which][0])
    assert info["displayName"]
    assert info["description"]


@every_file
def test_names_fit_what_servers_take(which, choice):
    found = compiled(which, choice)
    names = [found.ir["pipelineInfo"]["name"], *(name for dag in found.dags for name in dag["tasks"])]
    for name in names:
        assert re.fullmatch(r"[a-z0-9]([a-z0-9-]{0,98}[a-z0-9])?", name), name


@pytest.mark.parametrize(("which", "choice"), [("experiment", "usual"), ("train", "gpus")])
def test_compiling_again_gives_the_same_text(which, choice):
    assert compile_with(which, *CHOICES[choice]).text == compiled(which, choice).text
