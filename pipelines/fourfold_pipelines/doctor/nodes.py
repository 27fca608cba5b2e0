"""Nodes: those that pods of a run may go to, and the images and GPUs that they say they have."""

from collections.abc import Iterator
from typing import Any

from fourfold.contract import images
from fourfold.contract.pods import Pods
from fourfold.train import tfjob
from fourfold_pipelines.doctor.asking import Asks, RefusedError
from fourfold_pipelines.doctor.findings import Finding, ok, skipped, warn, wrong

Node = dict[str, Any]
BUILD = (
    "build both with images/build, then load them into every node (kind load docker-image ...), or push "
    'them and say where: --registry when compiling, --pods \'{"image": "..."}\' for a run (a node that holds '
    "many images names the largest only: then all may be well)"
)


def check(asks: Asks, pods: Pods, steps_image: str = images.STEPS) -> Iterator[Finding]:
    """Images and GPUs, as far as nodes tell."""
    try:
        nodes = asks.get("/api/v1/nodes")["items"]
    except RefusedError as error:
        yield skipped(f"cannot see the nodes, so neither their images nor their GPUs: {error.message}")
        return
    chosen = [node for node in nodes if _takes(node, pods.node_selector, pods.tolerations)]
    if not chosen:
        selected = f" and labelled {pods.node_selector}" if pods.node_selector else ""
        yield warn(
            f"of {len(nodes)} nodes none is ready, open for pods{selected}",
            "see kubectl get nodes; which may be used say node_selector and tolerations in --pods",
        )
    else:
        yield _image(chosen, pods.image)
        yield _image([node for node in nodes if _takes(node, {}, [])] or chosen, steps_image)
    wanted = _gpus_wanted(pods)
    if wanted:
        yield _gpus(chosen, wanted, pods)


def _takes(node: Node, selector: dict[str, str], tolerations: list[dict[str, Any]]) -> bool:
    """Whether a pod may go to a node, as far as this does not depend on what runs there."""
    spec = node.get("spec") or {}
    conditions = {item["type"]: item["status"] for item in node["status"].get("conditions") or []}
    taints = [taint for taint in spec.get("taints") or [] if taint["effect"] != "PreferNoSchedule"]
    return (
        not spec.get("unschedulable")
        and conditions.get("Ready", "True") == "True"
        and selector.items() <= (node["metadata"].get("labels") or {}).items()
        and all(any(_tolerates(toleration, taint) for toleration in tolerations) for taint in taints)
    )


def _tolerates(toleration: dict[str, Any], taint: dict[str, Any]) -> bool:
    """As Kubernetes has it: what a toleration leaves out fits everything."""
    if toleration.get("effect") not in (None, "", taint["effect"]):
        return False
    if toleration.get("operator") == "Exists":
        return toleration.get("key") in (None, "", taint["key"])
    return toleration.get("key") == taint["key"] and toleration.get("value", "") == taint.get("value", "")


def _image(nodes: list[Node], image: str) -> Finding:
    having = [node for node in nodes if _has(node, image)]
    if len(having) == len(nodes):
        return ok(f"image {image} is on {len(having)} of {len(nodes)} nodes")
    first, slash, _ = image.partition("/")
    place = f"on {len(having)} of {len(nodes)} nodes" if having else "on no node"
    if slash and ("." in first or ":" in first or first == "localhost"):
        return ok(f"image {image} is {place}; nodes will fetch it from {first}")
    return warn(
        f"image {image} is {place}, and its name says no registry to fetch it from (but Docker Hub)", BUILD
    )


def _has(node: Node, image: str) -> bool:
    names = [name for item in node["status"].get("images") or [] for name in item.get("names") or []]
    return any(name in (image, f"docker.io/{image}", f"localhost/{image}") for name in names)


def _gpus_wanted(pods: Pods) -> int:
    """GPUs of each worker, whichever field says so."""
    asked = pods.resources or tfjob.resources(pods)
    said = [asked.get(part, {}).get(pods.gpu_resource, 0) for part in ("limits", "requests")]
    return max((int(value) for value in said if str(value).isdecimal()), default=0)


def _gpus(nodes: list[Node], wanted: int, pods: Pods) -> Finding:
    offered = [int((node["status"].get("allocatable") or {}).get(pods.gpu_resource, 0)) for node in nodes]
    most = max(offered, default=0)
    what = f"{wanted} {pods.gpu_resource} for each worker"
    if most >= wanted:
        return ok(f"{what}: {sum(offered)} on {sum(map(bool, offered))} nodes")
    selected = f" with {pods.node_selector}" if pods.node_selector else ""
    return wrong(
        f"{what} are wanted; of {len(nodes)} nodes{selected} that take such pods none has more than {most}",
        "is the GPU operator or device plugin installed, are the nodes tainted (tolerations in --pods)? Else "
        "ask for fewer (--gpus), or for other nodes (node_selector in --pods)",
    )
