"""The training operator: whether TFJobs are known, of which version, and whether somebody cares for them."""

from collections.abc import Iterator
from typing import Any

from fourfold.train import tfjob
from fourfold_pipelines.doctor import tested
from fourfold_pipelines.doctor.asking import Asks, RefusedError
from fourfold_pipelines.doctor.findings import Finding, ok, skipped, warn, wrong

INSTALL = "manifests/install installs it, where there is none"
REPLACE = "install version 1.8.1 (manifests/install, after the old one is deleted)"
SELECTOR = "control-plane=kubeflow-training-operator"
USED = {"successPolicy", "runPolicy", "tfReplicaSpecs"}
USED_OF_POLICY = {"cleanPodPolicy", "activeDeadlineSeconds", "ttlSecondsAfterFinished"}


def check(asks: Asks) -> Iterator[Finding]:
    """Whether TFJobs are known, by which version, and whether somebody takes care of them."""
    try:
        kinds = {item["name"] for item in asks.get("/apis/kubeflow.org/v1")["resources"]}
    except RefusedError as error:
        if error.status != 404:
            yield skipped(f"cannot ask whether TFJobs are known: {error}")
            return
        kinds = set()
    if tfjob.PLURAL not in kinds:
        yield wrong(f"the cluster does not know TFJobs: there is no training operator{_v2(asks)}", INSTALL)
        return
    try:
        schema = _schema(asks)
        policy = schema["runPolicy"]["properties"]
    except RefusedError as error:
        yield skipped(f"cannot tell the training operator's version: {error}")
    except (LookupError, TypeError):
        yield skipped(
            "cannot tell the training operator's version: the cluster does not say a TFJob's fields"
        )
    else:
        yield _version(set(schema), set(policy), asks)
    yield from _runs(asks)


def _v2(asks: Asks) -> str:
    """Says that there is the operator's successor, whose users may take it for the operator."""
    try:
        asks.get("/apis/trainer.kubeflow.org/v1alpha1")
    except RefusedError:
        return ""
    return " (Kubeflow Trainer v2 is there, and has no TFJobs; both can be installed)"


def _version(spec: set[str], policy: set[str], asks: Asks) -> Finding:
    """The operator's version by what came with each, since it says none itself.

    1.7 gave the fields of ``runPolicy`` a ``suspend``, 1.8 validates TFJobs on admission, 1.9 brought
    ``managedBy``. What else changed for TFJobs is nothing that a run uses.
    """
    missing = sorted((USED - spec) | (USED_OF_POLICY - policy))
    if missing:
        return wrong(f"the training operator is too old: its TFJob has no {', '.join(missing)}", REPLACE)
    if "managedBy" in policy:
        return tested.check("training operator", "1.9 or later (by its fields)")
    if "suspend" not in policy:
        return warn("the training operator is older than 1.7 (by its fields), 1.8 was tested", REPLACE)
    validates = _validates(asks)
    if validates is None:
        return ok("training operator 1.7 or 1.8 (by its fields; we may not ask whether it validates)")
    if not validates:
        return warn("the training operator is 1.7 (it validates nothing), 1.8 was tested", REPLACE)
    return ok("training operator 1.8 (by its fields)")


def _schema(asks: Asks) -> dict[str, Any]:
    found = asks.get("/openapi/v3/apis/kubeflow.org/v1")["components"]["schemas"] or {}
    kind = next((value for key, value in found.items() if key.endswith(".TFJob")), {})
    return kind["properties"]["spec"]["properties"]


def _validates(asks: Asks) -> bool | None:
    """Whether TFJobs are validated on admission; None where we may not ask."""
    try:
        found = asks.get("/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations")["items"]
    except RefusedError:
        return None
    return any("tfjob" in hook["name"] for item in found for hook in item.get("webhooks") or [])


def _runs(asks: Asks) -> Iterator[Finding]:
    try:
        found = asks.get(f"/apis/apps/v1/deployments?labelSelector={SELECTOR}")["items"]
    except RefusedError as error:
        yield skipped(f"cannot see whether the training operator runs: {error.message}")
        return
    if not found:
        yield warn(
            "TFJobs are known, but no deployment of the training operator is to be seen",
            f"if it is not installed in another way: {INSTALL}",
        )
    for deployment in found:
        meta, ready = deployment["metadata"], (deployment.get("status") or {}).get("readyReplicas") or 0
        where = f"{meta['namespace']}/{meta['name']}"
        if ready:
            yield ok(f"the training operator runs ({where})")
        else:
            yield wrong(
                f"the training operator ({where}) is not ready",
                f"see why: kubectl -n {meta['namespace']} describe deployments,pods -l {SELECTOR}",
            )
