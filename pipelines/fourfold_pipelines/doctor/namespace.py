"""What the manifests make in a namespace: the ConfigMap, service accounts, the Secret that they name.

Of a Secret only the names of its keys are ever told.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from fourfold.contract.pods import CONFIG, Pods
from fourfold_pipelines.doctor.asking import Asks, RefusedError
from fourfold_pipelines.doctor.findings import Finding, ok, skipped, wrong
from fourfold_pipelines.doctor.store import ENDPOINT
from fourfold_pipelines.reach import IN_CLUSTER

APPLY = (
    "apply the manifests (kubectl apply -k manifests/overlays/kind, or another overlay), or name another "
    "--namespace"
)
SET = "set it in kustomization.yaml of the overlay, and apply that again"


def absent(namespace: str) -> Finding:
    """There is no such namespace."""
    return wrong(f"there is no namespace {namespace}", APPLY)


def settings(asks: Asks, namespace: str) -> tuple[Mapping[str, str], Finding]:
    """What the manifests' ConfigMap says; nothing, where it is not to be had."""
    what = f"ConfigMap {CONFIG}"
    try:
        found = asks.get(f"/api/v1/namespaces/{namespace}/configmaps/{CONFIG}").get("data") or {}
    except RefusedError as error:
        return {}, _of_missing(error, what, namespace, APPLY)
    return found, ok(f"{what} in namespace {namespace}")


def lacks(asks: Asks, namespace: str, account: str) -> bool:
    """Whether there is no such service account, as far as we may ask."""
    try:
        asks.get(f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}")
    except RefusedError as error:
        return error.status == 404
    return False


def check(asks: Asks, namespace: str, pods: Pods, accounts: Iterable[str]) -> Iterator[Finding]:
    """What pods are given by name: service accounts, another ConfigMap, a Secret.

    Args:
        asks: the cluster.
        namespace: that jobs are launched in.
        pods: what they are given.
        accounts: service accounts that launch.
    """
    for account in dict.fromkeys((*accounts, pods.service_account)):
        what = f"service account {account}"
        try:
            asks.get(f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}")
        except RefusedError as error:
            yield _of_missing(error, what, namespace, APPLY)
        else:
            yield ok(f"{what} in namespace {namespace}")
    if pods.config and not pods.endpoint:
        yield from _config(asks, namespace, pods.config)
    if pods.secret:
        yield _secret(asks, namespace, pods)


def server(asks: Asks, endpoint: str) -> Iterator[Finding]:
    """Whether an S3 server in the cluster is there; nothing is said of one elsewhere, or where all is well.

    Args:
        asks: the cluster.
        endpoint: as pods reach it.
    """
    place = place_of(endpoint)
    if place is None:
        return
    service, namespace, port = place
    where = f"/api/v1/namespaces/{namespace}"
    try:
        ports = asks.get(f"{where}/services/{service}")["spec"].get("ports") or []
    except RefusedError as error:
        if error.status == 404:
            yield wrong(
                f"there is no service {service} in namespace {namespace}, as {ENDPOINT} ({endpoint}) says",
                SET,
            )
        else:
            yield skipped(f"cannot see service {service} in namespace {namespace}: {error.message}")
        return
    numbers = [item["port"] for item in ports]
    if port not in numbers:
        yield wrong(
            f"service {service} in namespace {namespace} has no port {port}, as {ENDPOINT} ({endpoint}) "
            f"says; it has {', '.join(map(str, numbers)) or 'none'}",
            SET,
        )
    elif _is_ready(asks, f"{where}/endpoints/{service}") is False:
        yield wrong(
            f"no pod of service {service} in namespace {namespace}, the S3 server, is ready",
            f"see why: kubectl -n {namespace} describe pods",
        )


def place_of(endpoint: str) -> tuple[str, str, int] | None:
    """Service, namespace and port of an endpoint in the cluster; None for one elsewhere."""
    found: re.Match[str] | None = IN_CLUSTER.fullmatch(endpoint)
    return found and (found[1], found[2], int(found[5] or 80))


def _is_ready(asks: Asks, path: str) -> bool | None:
    """Whether a service has a pod that takes connections; None where we may not ask."""
    try:
        subsets = asks.get(path).get("subsets") or []
    except RefusedError as error:
        return False if error.status == 404 else None
    return any(subset.get("addresses") for subset in subsets)


def _config(asks: Asks, namespace: str, name: str) -> Iterator[Finding]:
    """Pods do not start where the ConfigMap that they name lacks the endpoint."""
    what = f"ConfigMap {name}"
    try:
        data: Mapping[str, Any] = (
            asks.get(f"/api/v1/namespaces/{namespace}/configmaps/{name}").get("data") or {}
        )
    except RefusedError as error:
        if name != CONFIG:
            yield _of_missing(error, what, namespace, "make it, or name another config in --pods")
        return
    if ENDPOINT not in data:
        yield wrong(f"{what} in namespace {namespace} has no {ENDPOINT}, which pods are given", SET)


def _secret(asks: Asks, namespace: str, pods: Pods) -> Finding:
    what = f"Secret {pods.secret}"
    try:
        held = asks.get(f"/api/v1/namespaces/{namespace}/secrets/{pods.secret}").get("data") or {}
    except RefusedError as error:
        template = (
            "fill in manifests/base/secret.template.yaml and apply it, or name another Secret in --pods"
        )
        return _of_missing(error, what, namespace, template)
    missing = [key for key in (pods.access_key, pods.secret_key) if not held.get(key)]
    if missing:
        return wrong(
            f"{what} has nothing under {' and '.join(missing)}; "
            f"it has {', '.join(sorted(held)) or 'no keys'}",
            "say in --pods which keys hold the account (access_key, secret_key), or give the Secret these",
        )
    return ok(f"{what} has both keys")


def _of_missing(error: RefusedError, what: str, namespace: str, do: str) -> Finding:
    if error.status == 404:
        return wrong(f"there is no {what} in namespace {namespace}", do)
    return skipped(f"cannot see {what} in namespace {namespace}: {error.message}")
