"""What the overlays say of stores, pods and secrets, whom they bind, and what the network policy closes."""

import re

import pytest
import yaml

from fourfold.contract import pods
from fourfold_pipelines import reach
from tests.manifests.objects import (
    BASE,
    FILES,
    KUSTOMIZATIONS,
    MANIFESTS,
    OVERLAYS,
    ROOT,
    Object,
    built,
    containers,
    moved,
    of_kind,
    read,
    render,
    settings,
    templates,
    written,
)

OF_KUBEFLOW = {"default-editor", "pipeline-runner"}
"""Service accounts that Kubeflow makes where it runs pipelines."""
TEMPLATE = MANIFESTS / "base" / "secret.template.yaml"
SECRET_NAME = re.compile(r"SECRET|PASSWORD|TOKEN|ACCESS_KEY|CREDENTIAL", re.IGNORECASE)
every_overlay = pytest.mark.parametrize("overlay", OVERLAYS)


def kustomization(overlay: str) -> Object:
    return read(MANIFESTS / "overlays" / overlay / "kustomization.yaml")[0]


def test_there_are_three_overlays_and_each_says_what_it_is_for():
    assert OVERLAYS == ["gpu", "kind", "kubeflow"]
    for path in KUSTOMIZATIONS:
        if "overlays" in path.parts:
            assert path.read_text().startswith("# ")


@every_overlay
def test_every_overlay_names_a_namespace_and_the_base(overlay):
    assert kustomization(overlay)["namespace"]
    assert "../../base" in kustomization(overlay)["resources"]


def test_every_file_is_used_by_a_kustomization_or_is_printed_or_is_a_template():
    used = {(path.parent / name).resolve() for path in KUSTOMIZATIONS for name in read(path)[0]["resources"]}
    files = {path for path in FILES if path not in KUSTOMIZATIONS and path.parent.name != "runs"}
    assert files - used == {TEMPLATE}


# Pods and stores that the overlays name.


@every_overlay
def test_what_an_overlay_says_of_pods_can_be_read(overlay):
    said = settings(MANIFESTS / "overlays" / overlay / "kustomization.yaml")
    assert pods.read(said["FOURFOLD_PODS"]) != pods.Pods()


def test_what_the_base_says_of_pods_is_the_default():
    assert pods.read(settings(MANIFESTS / "base" / "kustomization.yaml")["FOURFOLD_PODS"]) == pods.Pods()


@every_overlay
def test_kustomize_makes_one_config_map_of_what_base_and_overlay_say(overlay):
    objects = render(MANIFESTS / "overlays" / overlay)
    (config,) = [
        item for item in of_kind(objects, "ConfigMap") if item["metadata"]["name"] == pods.Pods().config
    ]
    base = settings(MANIFESTS / "base" / "kustomization.yaml")
    own = settings(MANIFESTS / "overlays" / overlay / "kustomization.yaml")
    assert config["data"].keys() == base.keys()
    assert {key: " ".join(text.split()) for key, text in config["data"].items()} == {**base, **own}
    assert pods.read(config["data"]["FOURFOLD_PODS"]) == pods.read(own["FOURFOLD_PODS"])


def test_the_gpu_overlay_gives_every_worker_a_gpu_on_a_node_that_has_one():
    said = pods.read(settings(MANIFESTS / "overlays" / "gpu" / "kustomization.yaml")["FOURFOLD_PODS"])
    assert said.gpus == 1
    for _, template in templates([item for item in built(said) if item["kind"] == "TFJob"]):
        (container,) = containers(template)
        assert container["resources"]["limits"]["nvidia.com/gpu"] == "1"
        assert template["spec"]["nodeSelector"]
        assert template["spec"]["tolerations"][0]["key"] == "nvidia.com/gpu"


def test_the_service_accounts_and_names_that_pods_ask_for_are_made():
    accounts = {item["metadata"]["name"] for item in written("ServiceAccount")}
    for name, template in [*templates(built()), *templates(written())]:
        account = template["spec"].get("serviceAccountName")
        assert account in accounts or template["spec"]["automountServiceAccountToken"] is False, name
    assert pods.Pods().service_account in accounts
    assert pods.Pods().config == "fourfold" and settings(MANIFESTS / "base" / "kustomization.yaml")
    assert read(TEMPLATE)[0]["metadata"]["name"] == pods.Pods().secret
    assert set(read(TEMPLATE)[0]["stringData"]) == {pods.Pods().access_key, pods.Pods().secret_key}


def test_the_endpoint_of_the_kind_overlay_is_the_server_that_it_makes():
    said = settings(MANIFESTS / "overlays" / "kind" / "kustomization.yaml")["AWS_ENDPOINT_URL_S3"]
    check_endpoint(said, kustomization("kind")["namespace"], written())


def test_the_endpoint_is_still_that_server_in_what_kustomize_makes():
    objects = render(MANIFESTS / "overlays" / "kind")
    (config,) = [item for item in of_kind(objects, "ConfigMap") if item["metadata"]["name"] == "fourfold"]
    check_endpoint(config["data"]["AWS_ENDPOINT_URL_S3"], config["metadata"]["namespace"], objects)


def check_endpoint(endpoint: str, namespace: str, objects: list[Object]) -> None:
    """Fails unless an endpoint leads, name by name, to a port that a pod listens on."""
    found = reach.IN_CLUSTER.fullmatch(endpoint)
    assert found, f"{endpoint} is not the name of a service in a cluster"
    (service,) = [item for item in of_kind(objects, "Service") if item["metadata"]["name"] == found[1]]
    assert found[2] == namespace
    (port,) = [item for item in service["spec"]["ports"] if item["port"] == int(found[5])]
    wanted = service["spec"]["selector"].items()
    chosen = [
        template
        for _, template in templates(objects)
        if wanted <= template["metadata"].get("labels", {}).items()
    ]
    assert len(chosen) == 1
    (container,) = containers(chosen[0])
    (listening,) = [item for item in container["ports"] if item["name"] == port["targetPort"]]
    assert f"-s3.port={listening['containerPort']}" in container["args"]


# Whom rights are bound to, also in another namespace (C4).


@pytest.mark.parametrize("namespace", ["", "foo"])
@every_overlay
def test_every_subject_is_a_service_account_of_the_namespace(overlay, namespace, tmp_path):
    folder = moved(overlay, namespace, tmp_path) if namespace else MANIFESTS / "overlays" / overlay
    namespace = namespace or kustomization(overlay)["namespace"]
    objects = render(folder)
    bindings = of_kind(objects, "RoleBinding")
    assert bindings
    accounts = {item["metadata"]["name"] for item in of_kind(objects, "ServiceAccount")}
    roles = {item["metadata"]["name"] for item in of_kind(objects, "Role")}
    for binding in bindings:
        assert binding["roleRef"]["name"] in roles
        for subject in binding["subjects"]:
            assert subject["kind"] == "ServiceAccount"
            assert subject["namespace"] == namespace
            assert subject["name"] in (accounts | OF_KUBEFLOW if overlay == "kubeflow" else accounts)


@pytest.mark.parametrize("namespace", ["", "foo"])
@every_overlay
def test_every_object_is_in_the_namespace_of_the_overlay(overlay, namespace, tmp_path):
    folder = moved(overlay, namespace, tmp_path) if namespace else MANIFESTS / "overlays" / overlay
    namespace = namespace or kustomization(overlay)["namespace"]
    for item in render(folder):
        key = "name" if item["kind"] == "Namespace" else "namespace"
        assert item["metadata"][key] == namespace


@every_overlay
def test_the_launcher_is_bound_to_its_role(overlay):
    bound = {
        subject["name"]
        for binding in of_kind(render(MANIFESTS / "overlays" / overlay), "RoleBinding")
        if binding["roleRef"]["name"] == "fourfold"
        for subject in binding["subjects"]
    }
    assert bound == {"fourfold"} | (OF_KUBEFLOW if overlay == "kubeflow" else set())


# The network policy.


def check_policy(objects: list[Object]) -> None:
    (policy,) = of_kind(objects, "NetworkPolicy")
    assert policy["spec"]["policyTypes"] == ["Ingress"]
    assert not policy["spec"].get("ingress")
    wanted = policy["spec"]["podSelector"]
    assert list(wanted) == ["matchLabels"]
    workers = [item for item in built() if item["kind"] == "TFJob"]
    assert workers
    for name, template in templates(workers):
        assert wanted["matchLabels"].items() <= template["metadata"]["labels"].items(), name
    for name, template in templates([*objects, *(item for item in built() if item["kind"] != "TFJob")]):
        assert not wanted["matchLabels"].items() <= template["metadata"]["labels"].items(), name


def test_the_policy_of_the_base_closes_the_workers_pods_and_opens_nothing():
    check_policy([item for path in BASE for item in read(path)])


@every_overlay
def test_kustomize_leaves_the_policy_as_it_is(overlay):
    check_policy(render(MANIFESTS / "overlays" / overlay))


# Secrets.


def named_values(objects: list[Object]) -> list[tuple[str, str]]:
    """Names and values that stand in ConfigMaps and in the environment of pods."""
    found = [pair for item in of_kind(objects, "ConfigMap") for pair in item.get("data", {}).items()]
    for _, template in templates(objects):
        for container in containers(template):
            found += [(item["name"], item.get("value", "")) for item in container.get("env", [])]
    return found


def check_no_secret(objects: list[Object]) -> None:
    for item in of_kind(objects, "Secret"):
        values = [*item.get("data", {}).values(), *item.get("stringData", {}).values()]
        assert not any(values), item["metadata"]["name"]
    assert not [name for name, value in named_values(objects) if value and SECRET_NAME.search(name)]


def test_no_file_and_nothing_built_holds_a_secret():
    check_no_secret([*written(), *built()])


def test_the_only_secret_that_is_written_is_an_empty_template_that_no_kustomization_takes():
    assert [path for path in FILES if of_kind(read(path), "Secret")] == [TEMPLATE]
    assert read(TEMPLATE)[0]["stringData"] == {"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": ""}
    for path in KUSTOMIZATIONS:
        assert TEMPLATE.name not in path.read_text().replace("# build", "").split("resources:", 1)[1]


def test_no_kustomization_makes_a_secret():
    for path in KUSTOMIZATIONS:
        assert "secretGenerator" not in read(path)[0]
        assert not [name for name, value in settings(path).items() if value and SECRET_NAME.search(name)]


@every_overlay
def test_no_secret_is_in_what_kustomize_makes(overlay):
    objects = render(MANIFESTS / "overlays" / overlay)
    assert not of_kind(objects, "Secret")
    check_no_secret(objects)


@pytest.mark.parametrize(
    "text",
    [
        "{kind: Secret, metadata: {name: a}, stringData: {user: root}}",
        "{kind: Secret, metadata: {name: a}, data: {user: cm9vdA==}}",
        "{kind: ConfigMap, metadata: {name: a}, data: {DB_PASSWORD: x}}",
        "{kind: Pod, metadata: {name: a}, spec: {containers: [{env: [{name: API_TOKEN, value: x}]}]}}",
    ],
)
def test_a_secret_is_found(text):
    with pytest.raises(AssertionError):
        check_no_secret([yaml.safe_load(text)])


def test_no_python_file_of_the_manifests_holds_a_key():
    for path in (MANIFESTS).rglob("*.py"):
        assert not re.search(r"['\"][A-Za-z0-9+/]{20,}['\"]", path.read_text()), path.relative_to(ROOT)
