"""A small cluster for tests of the doctor: answers by path, all of them those of a cluster that is well."""

import re
from typing import Any

from fourfold.contract import images
from fourfold_pipelines.doctor.asking import RefusedError

NAMESPACE = "alice"
OWN_REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
REVIEWS = f"/apis/authorization.k8s.io/v1/namespaces/{NAMESPACE}/localsubjectaccessreviews"
KINDS = "/apis/kubeflow.org/v1"
SCHEMA = "/openapi/v3/apis/kubeflow.org/v1"
WEBHOOKS = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
DEPLOYMENTS = "/apis/apps/v1/deployments?labelSelector=control-plane=kubeflow-training-operator"
NODES = "/api/v1/nodes"
IN_NAMESPACE = f"/api/v1/namespaces/{NAMESPACE}"
TFJOBS = f"{KINDS}/namespaces/{NAMESPACE}/tfjobs?dryRun=All"
PODS = f"{IN_NAMESPACE}/pods?dryRun=All"
SERVICE = "/api/v1/namespaces/data/services/s3"
ENDPOINTS = "/api/v1/namespaces/data/endpoints/s3"
POLICY = ("activeDeadlineSeconds", "cleanPodPolicy", "suspend", "ttlSecondsAfterFinished")


class Answers:
    """Answers questions from a dictionary; what is not in it is not there."""

    def __init__(self, *changes: dict[str, Any]):
        self.by_path = dict(well())
        for change in changes:
            self.by_path.update(change)
        self.sent: list[tuple[str, Any]] = []

    def get(self, path: str) -> Any:
        found = self.by_path.get(path, RefusedError(404, "not found"))
        if isinstance(found, Exception):
            raise found
        return found

    def post(self, path: str, body: Any) -> Any:
        self.sent.append((path, body))
        found = self.get(path)
        return found(body) if callable(found) else found


def well() -> dict[str, Any]:
    return {
        "/version": {"gitVersion": "v1.34.4"},
        KINDS: {"resources": [{"name": "tfjobs"}, {"name": "tfjobs/status"}]},
        SCHEMA: schema(*POLICY),
        WEBHOOKS: {"items": [{"webhooks": [{"name": "validator.tfjob.training-operator.kubeflow.org"}]}]},
        DEPLOYMENTS: {"items": [deployment(1)]},
        IN_NAMESPACE: {},
        f"{IN_NAMESPACE}/configmaps/fourfold": {"data": {"AWS_ENDPOINT_URL_S3": "http://s3.data:9000"}},
        f"{IN_NAMESPACE}/serviceaccounts/fourfold": {},
        f"{IN_NAMESPACE}/serviceaccounts/fourfold-worker": {},
        f"{IN_NAMESPACE}/secrets/fourfold-s3": secret("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"),
        SERVICE: {"spec": {"ports": [{"port": 9000}]}},
        ENDPOINTS: {"subsets": [{"addresses": [{"ip": "10.0.0.1"}]}]},
        OWN_REVIEWS: {"status": {"allowed": True}},
        REVIEWS: {"status": {"allowed": True}},
        TFJOBS: {},
        PODS: {},
        NODES: {"items": [node("one", images.WORKER, images.STEPS)]},
    }


def schema(*policy: str, spec: tuple[str, ...] = ("successPolicy", "tfReplicaSpecs")) -> dict[str, Any]:
    run_policy = {"properties": dict.fromkeys(policy, {})}
    properties = {**dict.fromkeys(spec, {}), "runPolicy": run_policy}
    kind = {"properties": {"spec": {"properties": properties}}}
    return {"components": {"schemas": {"org.kubeflow.v1.TFJobList": {}, "org.kubeflow.v1.TFJob": kind}}}


def deployment(ready: int | None) -> dict[str, Any]:
    status = {} if ready is None else {"readyReplicas": ready}
    return {"metadata": {"namespace": "kubeflow", "name": "training-operator"}, "status": status}


def secret(*keys: str) -> dict[str, Any]:
    return {"data": dict.fromkeys(keys, "c2VjcmV0LXZhbHVl")}


def node(name: str, *names: str, gpus: int = 0, labels: dict[str, str] | None = None, **spec: Any) -> Any:
    status: dict[str, Any] = {"images": [{"names": [f"docker.io/{image}"]} for image in names]}
    status["conditions"] = [{"type": "Ready", "status": "True"}]
    status["allocatable"] = {"cpu": "8", **({"nvidia.com/gpu": str(gpus)} if gpus else {})}
    return {"metadata": {"name": name, "labels": labels or {}}, "spec": spec, "status": status}


def only(findings: Any) -> Any:
    """The one finding that there is."""
    (found,) = findings
    return found


def said(finding: Any, level: str, pattern: str, do: str | None = None) -> None:
    """Checks a finding: its level, and the telling words of what it says, and of what to do."""
    assert finding.level == level, finding
    assert re.search(pattern, finding.said), finding
    if do is not None:
        assert re.search(do, finding.do), finding
