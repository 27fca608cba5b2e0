"""Every pod that manifests and code make: its image, its security, what it may write."""

import re
from typing import Any

import pytest
import yaml

from fourfold.contract import images
from fourfold.contract.pods import Pods
from fourfold.train import tfjob
from tests.conftest import NAMESPACE, kubectl
from tests.manifests.objects import (
    MANIFESTS,
    OBJECTS,
    OVERLAYS,
    ROOT,
    Object,
    built,
    containers,
    render,
    templates,
    written,
)

TAGGED = re.compile(r"(?P<name>[^\s@]+?):(?P<tag>[\w][\w.-]{0,127})(@sha256:[0-9a-f]{64})?")
ALL = [*templates(written()), *templates(built()), *templates(built(Pods(namespace=NAMESPACE, gpus=1)))]
"""Every pod template, with what it belongs to."""
every_template = pytest.mark.parametrize("template", [t for _, t in ALL], ids=[name for name, _ in ALL])
TEXTS = [
    path
    for folder in ("manifests", "images", ".ci", "components", "pipelines", "tests/cluster")
    for path in sorted((ROOT / folder).rglob("*"))
    if path.is_file() and path.suffix in ("", ".yaml", ".py", ".in", ".txt", ".md")
]


def test_the_pods_of_manifests_and_of_code_are_all_found():
    kinds = {name.split()[0] for name, _ in ALL}
    assert {"Deployment", "Job", "TFJob"} <= kinds
    texts = "".join(path.read_text() for path in OBJECTS)
    assert len(re.findall(r"^ *(?:- )?image: ", texts, re.MULTILINE)) == sum(
        len(containers(template)) for _, template in templates(written())
    )


# Images (C1, O2).


def check_image(image: str) -> None:
    """Fails for an image that is not pinned by a tag, or is ours and of another version."""
    found = TAGGED.fullmatch(image)
    assert found, f"{image} has no tag"
    assert found["tag"] != "latest", image
    if found["name"].startswith("fourfold/"):
        assert image in (images.WORKER, images.STEPS)


@every_template
def test_every_image_has_a_tag_and_is_pulled_only_where_it_is_missing(template):
    for container in containers(template):
        check_image(container["image"])
        assert container["imagePullPolicy"] == "IfNotPresent"


def test_the_names_of_our_images_carry_the_version_of_the_package():
    assert {image.partition(":")[2] for image in (images.WORKER, images.STEPS)} == {images.__version__}


@pytest.mark.parametrize("image", ["a", "a:latest", "host:5000/a", "a:", "fourfold/python-worker:0.0.0"])
def test_an_image_that_is_not_pinned_is_found(image):
    with pytest.raises(AssertionError):
        check_image(image)


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_no_file_names_an_image_that_cannot_be_pulled_or_that_moves(path):
    text = path.read_text()
    assert not re.search(r"\b(minio|bitnami)/(minio|mc)\b", text)
    assert not re.search(r"[\w/-]:latest\b", text)


def test_the_s3_server_is_one_version_wherever_it_is_named():
    named = re.compile(r"chrislusf/seaweedfs[\w.:@-]*")
    texts = [path.read_text() for path in [*TEXTS, ROOT / "README.md", ROOT / "CONTRIBUTING.md"]]
    assert len({image.rstrip(".") for text in texts for image in named.findall(text)}) == 1


# Pod security (C6): https://kubernetes.io/docs/concepts/security/pod-security-standards/, restricted.

VOLUMES = {
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "persistentVolumeClaim",
    "projected",
    "secret",
}


def violations(template: Object) -> list[str]:
    """What the pod security standard ``restricted`` has against a pod."""
    spec = template["spec"]
    pod: dict[str, Any] = spec.get("securityContext", {})
    found = [f"{key} is set" for key in ("hostNetwork", "hostPID", "hostIPC") if spec.get(key)]
    found += [f"{key} is set" for key in ("sysctls", "windowsOptions", "seLinuxOptions") if pod.get(key)]
    for volume in spec.get("volumes", []):
        found += [f"volume of {key}" for key in volume.keys() - VOLUMES - {"name"}]
    for container in containers(template):
        own: dict[str, Any] = container.get("securityContext", {})
        has = {**pod, **own}
        drop, add = (set(own.get("capabilities", {}).get(key, [])) for key in ("drop", "add"))
        wrong = {
            "privileged": bool(has.get("privileged")),
            "procMount is set": "procMount" in has,
            "host ports": any("hostPort" in port for port in container.get("ports", [])),
            "may gain privileges": own.get("allowPrivilegeEscalation") is not False,
            "may run as root": has.get("runAsNonRoot") is not True or has.get("runAsUser") == 0,
            "seccomp": has.get("seccompProfile", {}).get("type") not in ("RuntimeDefault", "Localhost"),
            "keeps capabilities": "ALL" not in drop or not add <= {"NET_BIND_SERVICE"},
        }
        found += [f"{container['name']}: {what}" for what, is_wrong in wrong.items() if is_wrong]
    return found


@every_template
def test_every_pod_is_restricted(template):
    assert violations(template) == []


@every_template
def test_every_pod_has_a_user_that_is_a_number_above_zero(template):
    assert template["spec"]["securityContext"]["runAsUser"] == tfjob.USER > 0


@every_template
def test_every_root_is_read_only_and_only_empty_folders_can_be_written(template):
    volumes = {volume["name"]: volume for volume in template["spec"].get("volumes", [])}
    for container in containers(template):
        assert container["securityContext"]["readOnlyRootFilesystem"] is True
        for mount in container.get("volumeMounts", []):
            assert mount.get("readOnly") or volumes[mount["name"]].keys() & {"emptyDir", "configMap"}


@every_template
def test_only_pods_that_ask_the_api_server_have_a_token(template):
    spec = template["spec"]
    if spec.get("automountServiceAccountToken") is not False:
        assert spec["serviceAccountName"] in ("fourfold", "fourfold-account")


@every_template
def test_every_pod_says_what_memory_it_needs_and_may_take(template):
    for container in containers(template):
        assert "memory" in container["resources"]["limits"]
        assert {"cpu", "memory"} <= container["resources"]["requests"].keys()


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_kustomize_leaves_every_pod_restricted_and_pinned(overlay):
    for name, template in templates(render(MANIFESTS / "overlays" / overlay)):
        assert violations(template) == [], name
        for container in containers(template):
            check_image(container["image"])
            assert container["imagePullPolicy"] == "IfNotPresent"
            assert container["securityContext"]["readOnlyRootFilesystem"] is True


@pytest.mark.parametrize(
    "change",
    [
        {"hostNetwork": True},
        {"securityContext": {"runAsNonRoot": True}},
        {"volumes": [{"name": "host", "hostPath": {"path": "/"}}]},
    ],
    ids=str,
)
def test_a_pod_that_is_not_restricted_is_found(change):
    _, template = next(templates(built()))
    assert violations({**template, "spec": {**template["spec"], **change}})


def test_the_namespaces_of_our_own_take_restricted_pods_only():
    for item in written("Namespace"):
        assert item["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"


@pytest.mark.cluster
def test_a_real_cluster_lets_every_pod_into_a_restricted_namespace(s3_server, tmp_path):
    """Writes nothing: the pods are made dry."""
    pods = [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"try-{number}", "namespace": NAMESPACE},
            "spec": {"restartPolicy": "Never", **template["spec"]},
        }
        for number, (_, template) in enumerate(ALL)
    ]
    for pod in pods:
        pod["spec"]["restartPolicy"] = "Never"
    said = kubectl("create", "--dry-run=server", "-f", "-", stdin=yaml.safe_dump_all(pods))
    assert said.count("(server dry run)") == len(ALL)
