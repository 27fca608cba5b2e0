"""A cluster as such: its version, whether a namespace is there, and whether it takes what a run creates."""

from collections.abc import Iterator
from typing import Any

from fourfold.contract.pods import Pods
from fourfold.contract.records import Training
from fourfold.train import tfjob
from fourfold_pipelines.doctor import tested
from fourfold_pipelines.doctor.asking import Asks, RefusedError
from fourfold_pipelines.doctor.findings import Finding, ok, skipped, wrong


def version(asks: Asks) -> Iterator[Finding]:
    """The cluster's own version."""
    try:
        found = str(asks.get("/version").get("gitVersion") or "of unknown version")
    except RefusedError as error:
        yield skipped(f"cannot ask for Kubernetes' version: {error}")
    else:
        yield tested.check("Kubernetes", found)


def has(asks: Asks, namespace: str) -> bool:
    """Whether there is a namespace, as far as we may ask; where there is none nothing in it can be."""
    try:
        asks.get(f"/api/v1/namespaces/{namespace}")
    except RefusedError as error:
        return error.status != 404
    return True


def admission(asks: Asks, namespace: str, pods: Pods) -> Iterator[Finding]:
    """Whether a TFJob like those of a run would be taken, and a pod of it; nothing is created.

    A quota, a limit or a security policy mostly refuses pods, which only the operator's events tell later.
    """
    training = Training("data_parallel", 2, "s3://none/none", "0" * 16, "0" * 16, "s3://none/none")
    job = tfjob.build(training, pods, "doctor")
    job["metadata"].pop("namespace", None)
    path = f"/apis/{tfjob.GROUP}/{tfjob.VERSION}/namespaces/{namespace}/{tfjob.PLURAL}"
    yield _tried(asks, path, job, "TFJob")
    template = job["spec"]["tfReplicaSpecs"]["Worker"]["template"]
    metadata = {**template["metadata"], "name": f"{job['metadata']['name']}-worker-0"}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}
    yield _tried(asks, f"/api/v1/namespaces/{namespace}/pods", pod, "pod")


def _tried(asks: Asks, path: str, body: dict[str, Any], what: str) -> Finding:
    try:
        asks.post(f"{path}?dryRun=All", body)
    except RefusedError as error:
        if error.status == 404:
            return skipped(f"no {what} was tried: the cluster knows none, or has no such namespace")
        if error.status == 403 and "cannot create" in error.message:
            return skipped(f"no {what} was tried: {error.message}")
        if error.status == 403 and "error looking up service account" in error.message:
            return skipped(f"no {what} was tried: its service account is not there")
        return wrong(
            f"a {what} like those of a run is not taken: {error.message}",
            "what refuses it is named there: a quota or a limit (see kubectl describe quota,limits; --pods "
            "says cpu and memory), a policy of the cluster, or an operator that does not answer",
        )
    return ok(f"a {what} like those of a run would be taken")
