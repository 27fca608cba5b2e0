"""Rights: whether we, and the service accounts that launch inside the cluster, may do what a run takes."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from fourfold_pipelines.doctor.asking import Asks, RefusedError
from fourfold_pipelines.doctor.findings import Finding, ok, skipped, wrong

Right = tuple[str, str, str, str]
"""API group, resource, part of it (empty for itself), verb."""
LAUNCHER: tuple[Right, ...] = (
    *(("kubeflow.org", "tfjobs", "", verb) for verb in ("create", "delete", "get", "list", "watch")),
    *(("", "pods", "", verb) for verb in ("get", "list", "watch")),
    ("", "pods", "log", "get"),
    ("", "events", "", "list"),
    ("networking.k8s.io", "networkpolicies", "", "create"),
)
"""What launching needs: the Role of ``manifests/base``, tested equal."""
FORWARD: tuple[Right, ...] = (
    ("", "services", "", "get"),
    ("", "endpoints", "", "get"),
    ("", "pods", "portforward", "get"),
)
"""What forwarding a port to the store's server needs, in that server's namespace."""
BIND = (
    "bind it to the Role fourfold of the manifests (manifests/base/access.yaml; for Kubeflow "
    "manifests/overlays/kubeflow)"
)
EDIT = (
    "the cluster's role `edit`, bound in that namespace, has these; without them name the store yourself: "
    "AWS_ENDPOINT_URL_S3, AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and FOURFOLD_STORE"
)
OWN = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


def launching(asks: Asks, namespace: str, who: str) -> Iterator[Finding]:
    """Whether we may launch.

    Args:
        asks: the cluster.
        namespace: that jobs are launched in.
        who: what we are called.
    """
    yield _may(asks, OWN, {}, who, "launching", namespace, _named(LAUNCHER), BIND)


def reaching(asks: Asks, namespace: str, config: str, secret: str, server: str) -> Iterator[Finding]:
    """Whether we may do what ``fourfold run --on cluster`` does to reach the store from outside.

    Args:
        asks: the cluster.
        namespace: that the manifests were applied to.
        config: ConfigMap that is read.
        secret: Secret that is read; empty for none.
        server: namespace of the server that a port is forwarded to; empty for none.
    """
    read = [("", "configmaps", "", "get", config)]
    read += [("", "secrets", "", "get", secret)] if secret else []
    yield _may(asks, OWN, {}, "this user", "reading the store's settings", namespace, read, EDIT)
    if server:
        yield _may(asks, OWN, {}, "this user", "reaching the store", server, _named(FORWARD), EDIT)


def of_accounts(asks: Asks, namespace: str, accounts: Iterable[str]) -> Iterator[Finding]:
    """Whether service accounts of a namespace may launch in it."""
    path = f"/apis/authorization.k8s.io/v1/namespaces/{namespace}/localsubjectaccessreviews"
    for account in accounts:
        who = {
            "user": f"system:serviceaccount:{namespace}:{account}",
            "groups": [
                "system:serviceaccounts",
                f"system:serviceaccounts:{namespace}",
                "system:authenticated",
            ],
        }
        name = f"service account {account}"
        yield _may(asks, path, who, name, "launching", namespace, _named(LAUNCHER), BIND)


def _named(rights: Iterable[Right]) -> list[tuple[str, str, str, str, str]]:
    """Rights to all objects, whatever their names."""
    return [(*right, "") for right in rights]


def _may(
    asks: Asks,
    path: str,
    who: dict[str, Any],
    called: str,
    purpose: str,
    namespace: str,
    wanted: Sequence[tuple[str, str, str, str, str]],
    do: str,
) -> Finding:
    refused = []
    for group, resource, part, verb, name in wanted:
        of = {"namespace": namespace, "group": group, "resource": resource, "subresource": part}
        review = {
            "metadata": {"namespace": namespace},
            "spec": {**who, "resourceAttributes": {**of, "verb": verb, "name": name}},
        }
        try:
            allowed = asks.post(path, review)["status"].get("allowed")
        except RefusedError as error:
            return skipped(f"cannot ask what {called} may do in namespace {namespace}: {error.message}")
        if not allowed:
            refused.append(f"{verb} {resource}{'/' + part if part else ''}{' ' + name if name else ''}")
    if refused:
        return wrong(f"{called} may not {', '.join(refused)} in namespace {namespace}", do)
    return ok(f"{called} may do all that {purpose} takes in namespace {namespace}")
