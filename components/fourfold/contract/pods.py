"""What the pods of a TFJob are given: image, size, place, secrets by reference, time limits.

One record, written as a JSON object, so that a command's option, a ConfigMap and a pipeline's parameter say
it in the same words.
"""

import json
import re
from dataclasses import dataclass, field
from typing import Any

from fourfold.contract import images, said
from fourfold.contract.errors import InvalidInputError

CONFIG = "fourfold"
"""The ConfigMap of the manifests."""
HERE = "here"
"""Said instead of a record: no pods, the workers are processes beside the step."""
CPU = re.compile(r"(?=.*[1-9])[0-9]+(\.[0-9]+)?m?")
BYTES = re.compile(r"(?=.*[1-9])[0-9]+(\.[0-9]+)?(k|M|G|T|Ki|Mi|Gi|Ti)?")
NAME = re.compile(r"(?=.{1,253}$)[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
IMAGE = re.compile(r"[^\s@]+(:[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}|@sha256:[0-9a-f]{64})")
KEY = re.compile(r"[-._a-zA-Z0-9]{1,253}")
SECONDS_OF_A_YEAR = 366 * 24 * 3600


@dataclass(frozen=True)
class Pods:
    """The pods of one TFJob.

    Attributes:
        namespace: where they run; empty for the launcher's own.
        image: of the worker.
        service_account: that they run as; it needs no rights.
        config: ConfigMap with ``AWS_ENDPOINT_URL_S3`` and ``AWS_REGION``; empty for none.
        secret: Secret with the S3 credentials; empty for none.
        access_key: key in the Secret of the access key's id.
        secret_key: key in the Secret of the secret key.
        endpoint: of the S3 server as pods reach it; empty for what ``config`` says.
        cpu: requested by each pod, as Kubernetes writes quantities (``500m``, ``4``).
        memory: requested by each pod, and its limit.
        scratch: limit of ``/tmp``.
        cache: limit of ``/cache``, where cached batches are kept on disk; with ``/tmp`` the only places that
            can be written.
        cache_claim: PersistentVolumeClaim for ``/cache``, shared by all pods that can mount it; empty for
            a folder of each pod's own.
        gpus: of each pod.
        gpu_resource: what a GPU is called in this cluster.
        node_selector: labels of the nodes that may be used.
        tolerations: taints that are put up with, as in a pod's spec.
        affinity: as in a pod's spec; empty for none.
        resources: requests and limits as in a container's spec; goes before cpu, memory and gpus.
        start_seconds: how long pods may take to start, and workers to meet.
        deadline_seconds: how long the job may take altogether, tries that failed among it.
        ttl_seconds: how long the ended job and its pods are kept.
    """

    namespace: str = ""
    image: str = images.WORKER
    service_account: str = "fourfold-worker"
    config: str = CONFIG
    secret: str = "fourfold-s3"
    access_key: str = "AWS_ACCESS_KEY_ID"
    secret_key: str = "AWS_SECRET_ACCESS_KEY"
    endpoint: str = ""
    cpu: str = "1"
    memory: str = "2Gi"
    scratch: str = "4Gi"
    cache: str = "4Gi"
    cache_claim: str = ""
    gpus: int = 0
    gpu_resource: str = "nvidia.com/gpu"
    node_selector: dict[str, str] = field(default_factory=dict)
    tolerations: list[dict[str, Any]] = field(default_factory=list)
    affinity: dict[str, Any] = field(default_factory=dict)
    resources: dict[str, Any] = field(default_factory=dict)
    start_seconds: int = 600
    deadline_seconds: int = 24 * 3600
    ttl_seconds: int = 24 * 3600


def read(*texts: str) -> Pods:
    """Reads the record from JSON objects; what none of them says has its default.

    Args:
        *texts: JSON objects; what a later one says goes before what an earlier one says.

    Raises:
        InvalidInputError: the text is no JSON object, or a field is unknown, of another type or out of range.
    """
    pods = said.read(Pods, "pods", '{"gpus": 1, "memory": "4Gi"}', *texts)
    check(pods)
    return pods


def is_pinned(image: str) -> bool:
    """Whether an image is named with a tag that stays what it is, or with a digest."""
    return bool(IMAGE.fullmatch(image)) and not image.endswith(":latest") and "://" not in image


def can_reach(uri: str) -> bool:
    """Whether pods can reach a store: one that is on a network, not a folder of one machine."""
    return uri.lower().startswith(("s3://", "minio://"))


def write(pods: Pods) -> str:
    """The record as a JSON object of what differs from the defaults."""
    return said.write(pods)


def with_task(pods: Pods, **told: Any) -> Pods:
    """The record with what was set on the Kubeflow task that launches the pods.

    Args:
        pods: as compiled.
        **told: ``resources``, ``node_selector``, ``tolerations`` and ``affinity`` as in a pod's spec; None or
            empty for what was not set. Numbers may come as Kubeflow passes them on, as floats.

    Raises:
        InvalidInputError: what was set cannot be used.
    """
    return read(write(pods), json.dumps({name: _whole(value) for name, value in told.items() if value}))


def _whole(value: Any) -> Any:
    """A JSON value with whole floats as integers: Kubeflow knows one kind of number."""
    if isinstance(value, dict):
        return {key: _whole(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_whole(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def check(pods: Pods) -> None:
    """Checks what the API server would refuse late or silently put up with.

    Raises:
        InvalidInputError: a field is out of its range; the error names it.
    """
    for name, pattern in (("cpu", CPU), ("memory", BYTES), ("scratch", BYTES), ("cache", BYTES)):
        if not pattern.fullmatch(getattr(pods, name)):
            raise InvalidInputError(
                f"pods.{name} must be a quantity as Kubernetes writes it, such as 500m, 4 or 2Gi; "
                f"got {getattr(pods, name)!r}"
            )
    for name in ("start_seconds", "deadline_seconds", "ttl_seconds"):
        if not 1 <= getattr(pods, name) <= SECONDS_OF_A_YEAR:
            raise InvalidInputError(
                f"pods.{name} must be from 1 to {SECONDS_OF_A_YEAR:,}, got {getattr(pods, name)}"
            )
    unknown = set(pods.resources) - {"requests", "limits"}
    if unknown or not all(isinstance(value, dict) for value in pods.resources.values()):
        raise InvalidInputError(
            f"pods.resources has requests and limits, each with quantities by resource, got {pods.resources}"
        )
    if pods.gpus < 0:
        raise InvalidInputError(f"pods.gpus must be 0 or more, got {pods.gpus}")
    if not is_pinned(pods.image):
        raise InvalidInputError(
            "pods.image must be an image with a tag that stays what it is (not `latest`), or with a digest; "
            f"got {pods.image!r}"
        )
    for name in ("access_key", "secret_key"):
        if pods.secret and not KEY.fullmatch(getattr(pods, name)):
            raise InvalidInputError(
                f"pods.{name} must be the name of a key in the Secret, got {getattr(pods, name)!r}"
            )
    for name in ("namespace", "service_account", "config", "secret"):
        value = getattr(pods, name)
        if value and not NAME.fullmatch(value):
            raise InvalidInputError(
                f"pods.{name} must be the name of a Kubernetes object (a-z, 0-9, '-', '.'), got {value!r}"
            )
