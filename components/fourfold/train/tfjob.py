"""A training as a TFJob: a pure function from what is trained and what its pods are given."""

import dataclasses
import hashlib
import json
import re
from typing import Any

from fourfold.cache import budgets
from fourfold.contract import plan as plans
from fourfold.contract.errors import InvalidInputError
from fourfold.contract.pods import Pods, can_reach
from fourfold.contract.records import Training

GROUP, VERSION, PLURAL = "kubeflow.org", "v1", "tfjobs"
CACHE = "/cache"
"""Where the pods have the folder of cached batches."""
CONTAINER = "tensorflow"
"""The operator does nothing, without a word, where the container has another name."""
PORT = 2222
USER = 65532
POD_SECURITY = {
    "runAsNonRoot": True,
    "runAsUser": USER,
    "runAsGroup": USER,
    "fsGroup": USER,
    "seccompProfile": {"type": "RuntimeDefault"},
}
CONTAINER_SECURITY = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}
"""With ``POD_SECURITY`` what the pod security standard ``restricted`` asks for, and a read-only root."""
SPEC = "fourfold/spec"
"""Annotation with the digest of what a job was made from."""
RUN, SCENARIO = "fourfold/run", "fourfold/scenario"
JOB_NAME = "training.kubeflow.org/job-name"
"""Label that the operator gives to the pods of a job."""
MERGING = "merge-at-sites"
NAME_LENGTH = 50
"""A label has 63 characters; a try adds ``-NN`` to the name, a pod ``-worker-NN``."""


def title(training: Training) -> str:
    """What a training is called: after its scenario, or after merging, where that is done instead."""
    return MERGING if training.merging else training.scenario


def build(
    training: Training, pods: Pods, run: str, attempt: int = 1, owner: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Makes the TFJob of one training.

    Args:
        training: what to train; its store and output are URIs that pods can reach.
        pods: what its pods are given.
        run: what the run is called.
        attempt: counts the jobs that were made for the same training, from 1.
        owner: reference to the object whose end is the job's, too.

    Returns:
        A TFJob of the training operator's API v1. The same arguments give the same job.

    Raises:
        InvalidInputError: pods cannot reach the store, or there are more workers than names.
    """
    check(training, pods)
    spec = _spec(training, pods, run)
    digest = spec_digest(spec)
    metadata: dict[str, Any] = {
        "name": name(run, title(training), digest, attempt),
        "labels": _labels(training, run),
        "annotations": {SPEC: digest},
    }
    if pods.namespace:
        metadata["namespace"] = pods.namespace
    if owner:
        metadata["ownerReferences"] = [owner]
    return {"apiVersion": f"{GROUP}/{VERSION}", "kind": "TFJob", "metadata": metadata, "spec": spec}


def needs_policy(training: Training) -> bool:
    """Whether workers of a training talk to each other; without a policy nobody reaches them."""
    return plans.of(training).processes_talk


def policy(job: dict[str, Any]) -> dict[str, Any]:
    """The network policy that lets the pods of a job, and nobody else, talk to TensorFlow's port in them.

    TensorFlow's gRPC asks for no authentication, so whoever reaches the port owns the process. A policy
    cannot say "of the same job" of all jobs at once: each job has its own, beside the one that closes all.

    Args:
        job: as of ``build``; where it has been created, the policy is collected with it.
    """
    of_job = job["metadata"]
    metadata = {key: of_job[key] for key in ("name", "namespace", "labels") if key in of_job}
    if "uid" in of_job:
        # The policy of an earlier job of this name goes with that one, and must not stand for this one's.
        metadata["name"] = f"{of_job['name']}-{of_job['uid'][:8]}"
        metadata["ownerReferences"] = [
            {
                "apiVersion": f"{GROUP}/{VERSION}",
                "kind": "TFJob",
                "name": of_job["name"],
                "uid": of_job["uid"],
            }
        ]
    of_the_job = {"matchLabels": {JOB_NAME: of_job["name"]}}
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": metadata,
        "spec": {
            "podSelector": of_the_job,
            "policyTypes": ["Ingress"],
            "ingress": [
                {"from": [{"podSelector": of_the_job}], "ports": [{"protocol": "TCP", "port": PORT}]}
            ],
        },
    }


def check(training: Training, pods: Pods) -> None:
    """Checks what can be known before anything is created.

    Raises:
        InvalidInputError: pods cannot reach the store, or there are more workers than names.
    """
    for what, uri in (("store", training.store), ("output", training.output)):
        if not can_reach(uri):
            raise InvalidInputError(
                f"pods of a cluster cannot reach the {what} {uri!r}: give --store s3://bucket/prefix"
            )
    workers = plans.of(training).processes
    if workers > 100:
        raise InvalidInputError(f"a TFJob can have 100 workers here, {workers} were asked for")


def name(run: str, scenario: str, digest: str, attempt: int = 1) -> str:
    """The name of a job: readable, one for each run and spec, valid with every name that is made from it.

    Args:
        run: what the run is called, any text.
        scenario: of the training.
        digest: of the job's spec, and so of the whole text of ``run``.
        attempt: from 1.

    Returns:
        A DNS-1035 label of at most 53 characters.
    """
    tail = f"-{plain(scenario)}-{digest[:10]}"
    head = plain(run)[: NAME_LENGTH - len(tail)].rstrip("-")
    return f"{head}{tail}" + (f"-{attempt}" if attempt > 1 else "")


def plain(text: str) -> str:
    """A text as the beginning of a DNS-1035 label: a-z, 0-9 and ``-``, a letter first, no ``-`` at an end."""
    found = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
    return found if re.match(r"[a-z]", found) else f"run-{found}".rstrip("-")


def label(run: str) -> str:
    """The value of the label that all jobs of a run have; runs of one label are one run."""
    found = plain(run)
    if found == run and len(found) <= 63:
        return found
    digest = hashlib.sha256(run.encode("utf-8", "backslashreplace")).hexdigest()
    return f"{found[:52].rstrip('-')}-{digest[:10]}"


def spec_digest(spec: dict[str, Any]) -> str:
    """Digest of a job's spec: the same spec is the same job."""
    return hashlib.sha256(json.dumps(spec, sort_keys=True).encode()).hexdigest()


def _labels(training: Training, run: str) -> dict[str, str]:
    return {
        "app.kubernetes.io/name": "fourfold-worker",
        "app.kubernetes.io/managed-by": "fourfold",
        RUN: label(run),
        SCENARIO: title(training),
    }


def _spec(training: Training, pods: Pods, run: str) -> dict[str, Any]:
    return {
        "runPolicy": {
            # Running pods of a job that failed are ended, failed ones are kept to be looked at.
            "cleanPodPolicy": "Running",
            "activeDeadlineSeconds": pods.deadline_seconds,
            "ttlSecondsAfterFinished": pods.ttl_seconds,
        },
        "successPolicy": "AllWorkers",
        "tfReplicaSpecs": {
            "Worker": {
                "replicas": plans.of(training).processes,
                "restartPolicy": "ExitCode",
                "template": _template(training, pods, run),
            }
        },
    }


def _template(training: Training, pods: Pods, run: str) -> dict[str, Any]:
    told = dataclasses.replace(training, start_seconds=float(pods.start_seconds))
    spec: dict[str, Any] = {
        "serviceAccountName": pods.service_account,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": 10,
        # The operator (1.8) looks at a job's deadline only when something happens to its pods: this does.
        "activeDeadlineSeconds": pods.deadline_seconds,
        "securityContext": POD_SECURITY,
        "containers": [
            {
                "name": CONTAINER,
                "image": pods.image,
                "imagePullPolicy": "IfNotPresent",
                "command": ["python", "-P", "-m", "fourfold.worker", "--training"],
                "args": [json.dumps(dataclasses.asdict(told), allow_nan=False, indent=1)],
                "env": [*environment(pods), *_room(pods)],
                "ports": [{"name": "tfjob-port", "containerPort": PORT}],
                "resources": pods.resources or resources(pods),
                "securityContext": CONTAINER_SECURITY,
                # The last lines of a pod that failed stand in its status, also when its log is gone.
                "terminationMessagePolicy": "FallbackToLogsOnError",
                "volumeMounts": [
                    {"name": "tmp", "mountPath": "/tmp"},
                    {"name": "cache", "mountPath": CACHE},
                ],
            }
        ],
        "volumes": [
            {"name": "tmp", "emptyDir": {"sizeLimit": pods.scratch}},
            {"name": "cache", **_cache(pods)},
        ],
    }
    if pods.node_selector:
        spec["nodeSelector"] = pods.node_selector
    if pods.tolerations:
        spec["tolerations"] = pods.tolerations
    if pods.affinity:
        spec["affinity"] = pods.affinity
    # A proxy beside the worker would stand between the workers, and never end: asked for in both ways.
    no_proxy = {"sidecar.istio.io/inject": "false"}
    return {
        "metadata": {"labels": {**_labels(training, run), **no_proxy}, "annotations": no_proxy},
        "spec": spec,
    }


def _room(pods: Pods) -> list[dict[str, Any]]:
    """Where cached batches are kept, and up to how many bytes: a pod that fills its volume is evicted."""
    room = budgets.bytes_of(pods.cache) * 9 // 10
    return [{"name": budgets.FOLDER, "value": CACHE}, {"name": budgets.ROOM, "value": str(room)}]


def _cache(pods: Pods) -> dict[str, Any]:
    """The source of the volume of cached batches."""
    if pods.cache_claim:
        return {"persistentVolumeClaim": {"claimName": pods.cache_claim}}
    return {"emptyDir": {"sizeLimit": pods.cache}}


def resources(pods: Pods) -> dict[str, dict[str, str]]:
    """Requests and limits of a worker's container."""
    limits = {"memory": pods.memory}
    if pods.gpus:
        limits[pods.gpu_resource] = str(pods.gpus)
    return {"requests": {"cpu": pods.cpu, "memory": pods.memory}, "limits": limits}


def environment(pods: Pods) -> list[dict[str, Any]]:
    """The S3 server and its credentials by the names that ``store.s3`` reads, all by reference."""
    found: list[dict[str, Any]] = [{"name": "HOME", "value": "/tmp"}]
    if pods.endpoint:
        found.append({"name": "AWS_ENDPOINT_URL_S3", "value": pods.endpoint})
    elif pods.config:
        found.append(_reference("AWS_ENDPOINT_URL_S3", "configMapKeyRef", pods.config, "AWS_ENDPOINT_URL_S3"))
    if pods.config:
        found.append(_reference("AWS_REGION", "configMapKeyRef", pods.config, "AWS_REGION", optional=True))
    if pods.secret:
        found.append(_reference("AWS_ACCESS_KEY_ID", "secretKeyRef", pods.secret, pods.access_key))
        found.append(_reference("AWS_SECRET_ACCESS_KEY", "secretKeyRef", pods.secret, pods.secret_key))
    return found


def _reference(variable: str, kind: str, name: str, key: str, optional: bool = False) -> dict[str, Any]:
    where: dict[str, Any] = {"name": name, "key": key}
    if optional:
        where["optional"] = True
    return {"name": variable, "valueFrom": {kind: where}}
