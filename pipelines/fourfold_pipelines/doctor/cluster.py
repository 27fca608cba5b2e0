"""A cluster: its version, the training operator, what the manifests make, rights, images, GPUs."""

from collections.abc import Iterable, Iterator
from typing import Any

from fourfold.contract import images
from fourfold.contract.pods import Pods
from fourfold.contract.records import Training
from fourfold.train import tfjob
from fourfold_pipelines.doctor import tested
from fourfold_pipelines.doctor.asking import Asks, RefusedError
from fourfold_pipelines.doctor.findings import Finding, ok, skipped, warn, wrong

INSTALL = "manifests/install installs it, where there is none"
APPLY = (
    "apply the manifests (kubectl apply -k manifests/overlays/kind, or another overlay), or name another "
    "--namespace"
)
CONFIG, ACCOUNTS = "fourfold", ("fourfold", "fourfold-worker")
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
OUTSIDE: tuple[Right, ...] = (
    ("", "configmaps", "", "get"),
    ("", "secrets", "", "get"),
    ("", "services", "", "get"),
    ("", "endpoints", "", "get"),
    ("", "pods", "portforward", "get"),
)
"""What ``fourfold run --on cluster`` needs besides, to reach the store from outside."""
OPERATORS = "control-plane=kubeflow-training-operator"
USED = {"successPolicy", "runPolicy", "tfReplicaSpecs"}
USED_OF_POLICY = {"cleanPodPolicy", "activeDeadlineSeconds", "ttlSecondsAfterFinished"}


def version(asks: Asks) -> Iterator[Finding]:
    """The cluster's own version."""
    found = str(asks.get("/version").get("gitVersion", "of unknown version"))
    yield tested.check("Kubernetes", found)


def operator(asks: Asks) -> Iterator[Finding]:
    """Whether TFJobs are known, by which version, and whether somebody takes care of them."""
    try:
        kinds = {item["name"] for item in asks.get("/apis/kubeflow.org/v1")["resources"]}
    except RefusedError as error:
        if error.status != 404:
            yield skipped(f"cannot ask whether TFJobs are known: {error}")
            return
        kinds = set()
    if tfjob.PLURAL not in kinds:
        yield wrong("the cluster does not know TFJobs: there is no training operator", INSTALL)
        return
    try:
        schema = _schema(asks)
    except (RefusedError, LookupError) as error:
        yield skipped(f"cannot tell the training operator's version: {error}")
    else:
        yield _of_version(schema, _validates(asks))
    yield from _runs(asks)


def _of_version(schema: dict[str, Any], validates: bool | None) -> Finding:
    """The operator's version by the fields of its TFJob, since it says none itself."""
    policy = schema["runPolicy"]["properties"]
    missing = sorted((USED - set(schema)) | (USED_OF_POLICY - set(policy)))
    if missing:
        return wrong(
            f"the training operator is too old: its TFJob has no {', '.join(missing)}",
            "install version 1.8.1 (manifests/install, after the old one is deleted)",
        )
    if "managedBy" in policy:
        return tested.check("training operator", "1.9 or later (by its fields)")
    if "suspend" not in policy:
        return warn(
            "the training operator is older than 1.7 (by its fields), 1.8 was tested",
            "install version 1.8.1 (manifests/install, after the old one is deleted)",
        )
    if validates is False:
        return warn(
            "the training operator is 1.7 (it validates nothing), 1.8 was tested",
            "install version 1.8.1 (manifests/install, after the old one is deleted)",
        )
    return ok("training operator 1.8 (by its fields)")


def _schema(asks: Asks) -> dict[str, Any]:
    found = asks.get("/openapi/v3/apis/kubeflow.org/v1")["components"]["schemas"]
    (kind,) = (value for key, value in found.items() if key.endswith(".TFJob"))
    return kind["properties"]["spec"]["properties"]


def _validates(asks: Asks) -> bool | None:
    """Whether TFJobs are validated on admission, as from 1.8 on; None where we may not ask."""
    try:
        found = asks.get("/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations")["items"]
    except RefusedError:
        return None
    return any("tfjob" in hook["name"] for item in found for hook in item.get("webhooks") or [])


def _runs(asks: Asks) -> Iterator[Finding]:
    try:
        found = asks.get(f"/apis/apps/v1/deployments?labelSelector={OPERATORS}")["items"]
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
                f"see why: kubectl -n {meta['namespace']} describe pods -l {OPERATORS}",
            )


def installed(asks: Asks, namespace: str, pods: Pods) -> Iterator[Finding]:
    """What the manifests make in a namespace, and the Secret that they name."""
    wanted = [("configmaps", "ConfigMap", CONFIG)]
    wanted += [("serviceaccounts", "service account", name) for name in ACCOUNTS]
    for resource, kind, name in wanted:
        try:
            asks.get(f"/api/v1/namespaces/{namespace}/{resource}/{name}")
        except RefusedError as error:
            yield _of_missing(error, f"{kind} {name}", namespace, APPLY)
        else:
            yield ok(f"{kind} {name} in namespace {namespace}")
    if pods.secret:
        yield from _secret(asks, namespace, pods)


def _secret(asks: Asks, namespace: str, pods: Pods) -> Iterator[Finding]:
    what = f"Secret {pods.secret}"
    try:
        held = asks.get(f"/api/v1/namespaces/{namespace}/secrets/{pods.secret}").get("data") or {}
    except RefusedError as error:
        template = (
            "fill in manifests/base/secret.template.yaml and apply it, or name another Secret in --pods"
        )
        yield _of_missing(error, what, namespace, template)
        return
    missing = [key for key in (pods.access_key, pods.secret_key) if not held.get(key)]
    if missing:
        yield wrong(
            f"{what} has nothing under {' and '.join(missing)}; "
            f"it has {', '.join(sorted(held)) or 'no keys'}",
            "say in --pods which keys hold the account: access_key, secret_key",
        )
    else:
        yield ok(f"{what} has both keys")


def _of_missing(error: RefusedError, what: str, namespace: str, do: str) -> Finding:
    if error.status == 404:
        return wrong(f"there is no {what} in namespace {namespace}", do)
    return skipped(f"cannot see {what} in namespace {namespace}: {error.message}")


def rights(asks: Asks, namespace: str, accounts: Iterable[str], outside: bool) -> Iterator[Finding]:
    """Whether we, and the service accounts that launch inside the cluster, may do what launching takes.

    Args:
        asks: the cluster.
        namespace: that jobs are launched in.
        accounts: service accounts of that namespace.
        outside: whether we are outside the cluster, and reach its store from there.
    """
    wanted = (*LAUNCHER, *OUTSIDE) if outside else LAUNCHER
    own = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    yield from _may(asks, own, {}, "this user", namespace, wanted)
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
        yield from _may(asks, path, who, f"service account {account}", namespace, LAUNCHER)


def _may(
    asks: Asks, path: str, who: dict[str, Any], name: str, namespace: str, wanted: tuple[Right, ...]
) -> Iterator[Finding]:
    refused = []
    for group, resource, part, verb in wanted:
        of = {"namespace": namespace, "group": group, "resource": resource, "subresource": part, "verb": verb}
        review = {"metadata": {"namespace": namespace}, "spec": {**who, "resourceAttributes": of}}
        try:
            allowed = asks.post(path, review)["status"].get("allowed")
        except RefusedError as error:
            yield skipped(f"cannot ask what {name} may do in namespace {namespace}: {error.message}")
            return
        if not allowed:
            refused.append(f"{verb} {resource}{'/' + part if part else ''}")
    if refused:
        yield wrong(
            f"{name} may not {', '.join(refused)} in namespace {namespace}",
            "bind it to the Role fourfold of the manifests (manifests/base/access.yaml; for Kubeflow "
            "manifests/overlays/kubeflow)",
        )
    else:
        yield ok(f"{name} may do all that launching takes in namespace {namespace}")


def admission(asks: Asks, namespace: str, pods: Pods) -> Iterator[Finding]:
    """Whether a TFJob like those of a run would be taken; nothing is created."""
    training = Training("data_parallel", 2, "s3://none/none", "0" * 16, "0" * 16, "s3://none/none")
    job = tfjob.build(training, pods, "doctor")
    path = f"/apis/{tfjob.GROUP}/{tfjob.VERSION}/namespaces/{namespace}/{tfjob.PLURAL}?dryRun=All"
    try:
        asks.post(path, job)
    except RefusedError as error:
        if error.status == 404:
            yield skipped("no TFJob was tried: they are not known, or there is no such namespace")
        elif error.status == 403 and "cannot create" in error.message:
            yield skipped(f"no TFJob was tried: {error.message}")
        else:
            yield wrong(
                f"a TFJob like those of a run is not taken: {error.message}",
                "what refuses it is named there: a quota, a policy of the cluster, or an operator that does "
                "not answer",
            )
    else:
        yield ok("a TFJob like those of a run would be taken")


def on_nodes(asks: Asks, pods: Pods, steps_image: str = images.STEPS) -> Iterator[Finding]:
    """Images and GPUs, as far as nodes tell."""
    try:
        nodes = asks.get("/api/v1/nodes")["items"]
    except RefusedError as error:
        yield skipped(f"cannot see the nodes, so neither their images nor their GPUs: {error.message}")
        return
    for image in (pods.image, steps_image):
        yield _image(nodes, image)
    if pods.gpus:
        yield _gpus(nodes, pods)


def _image(nodes: list[dict[str, Any]], image: str) -> Finding:
    having = [node for node in nodes if _has(node, image)]
    if having:
        return ok(f"image {image} is on {len(having)} of {len(nodes)} nodes")
    first, slash, _ = image.partition("/")
    if slash and ("." in first or ":" in first or first == "localhost"):
        return ok(f"image {image} is on no node yet; nodes will fetch it from {first}")
    return warn(
        f"image {image} is on no node, and its name says no registry to fetch it from",
        "build both with images/build, then load them (kind load docker-image ...), or push them and say "
        'where: --registry when compiling, --pods \'{"image": "..."}\' for a run',
    )


def _has(node: dict[str, Any], image: str) -> bool:
    names = [name for item in node["status"].get("images") or [] for name in item.get("names") or []]
    return any(name in (image, f"docker.io/{image}", f"localhost/{image}") for name in names)


def _gpus(nodes: list[dict[str, Any]], pods: Pods) -> Finding:
    chosen = [
        node for node in nodes if pods.node_selector.items() <= (node["metadata"].get("labels") or {}).items()
    ]
    free = {
        node["metadata"]["name"]: int(node["status"]["allocatable"].get(pods.gpu_resource, 0))
        for node in chosen
    }
    most = max(free.values(), default=0)
    what = f"{pods.gpus} {pods.gpu_resource} for each worker"
    if most >= pods.gpus:
        return ok(f"{what}: {sum(free.values())} on {len([n for n in free.values() if n])} nodes")
    selected = f" with {pods.node_selector}" if pods.node_selector else ""
    return wrong(
        f"{what} are wanted; of {len(chosen)} nodes{selected} none has more than {most}",
        "is the GPU operator or device plugin installed? Else ask for fewer (--gpus), or for other nodes "
        "(node_selector in --pods)",
    )
