"""What a TFJob's and its pods' status means: pure functions from what the API server says to words.

Objects are dictionaries as the API server writes them.
"""

import signal
from collections.abc import Iterable
from datetime import datetime
from typing import Any, Literal

from fourfold.contract import exits
from fourfold.train.tfjob import CONTAINER

Outcome = Literal["succeeded", "failed"]
FOLLOWS = {exits.PEER_LOST, exits.PEER_MISSING, exits.TERMINATED, 128 + signal.SIGABRT}
"""What a worker ends with because another one ended."""
HOPELESS = {"InvalidImageName", "ErrImageNeverPull"}
"""Reasons to wait that waiting does not cure."""
DOUBTFUL = {
    "ErrImagePull",
    "ImagePullBackOff",
    "CreateContainerConfigError",
    "CreateContainerError",
    "RunContainerError",
}
"""Reasons to wait that seldom go away by themselves."""


def outcome(job: dict[str, Any]) -> Outcome | None:
    """How a job ended, or None while it goes on.

    Conditions are history, and not in order: only ``Failed`` and ``Succeeded`` that are ``True`` end a job,
    and ``Failed`` wins over everything.
    """
    true = {c.get("type") for c in _conditions(job) if c.get("status") == "True"}
    return "failed" if "Failed" in true else "succeeded" if "Succeeded" in true else None


def is_taken_up(job: dict[str, Any]) -> bool:
    """Whether an operator has seen the job."""
    return bool(_conditions(job))


def reason(job: dict[str, Any]) -> str:
    """Why a job failed, in the operator's words."""
    failed = [c for c in _conditions(job) if c.get("type") == "Failed" and c.get("status") == "True"]
    words = [str(c[key]).strip() for c in failed[-1:] for key in ("reason", "message") if c.get(key)]
    return ": ".join(words) or "the operator gave no reason"


def blocker(pod: dict[str, Any]) -> tuple[str, str] | None:
    """Why a pod does not start: a reason and a sentence; None where nothing is in its way."""
    status = pod.get("status", {})
    for condition in status.get("conditions") or []:
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            why = condition.get("reason", "Unschedulable")
            return why, f"finds no node ({why}): {condition.get('message', 'no reason given')}"
    for container in [
        *(status.get("initContainerStatuses") or []),
        *(status.get("containerStatuses") or []),
    ]:
        waiting = (container.get("state") or {}).get("waiting")
        if waiting and waiting.get("reason") not in (None, "ContainerCreating", "PodInitializing"):
            why = waiting["reason"]
            image = f" (image {container.get('image')})" if "mage" in why else ""
            return why, f"cannot start{image}: {why}: {waiting.get('message', 'no message')}"
    return None


def has_started(pod: dict[str, Any]) -> bool:
    """Whether the pod's program runs or has run."""
    state = _state(pod)
    return "running" in state or "terminated" in state or phase(pod) in ("Running", "Succeeded", "Failed")


def phase(pod: dict[str, Any]) -> str:
    """``Pending``, ``Running``, ``Succeeded``, ``Failed`` or ``Unknown``."""
    return pod.get("status", {}).get("phase", "Pending")


def exit_code(pod: dict[str, Any]) -> int | None:
    """What the pod's program ended with; None while it has not, or where the pod ended without it."""
    ended = _state(pod).get("terminated")
    return ended.get("exitCode") if ended else None


def how_it_ended(pod: dict[str, Any]) -> str:
    """How a pod ended, for people."""
    status, ended = pod.get("status", {}), _state(pod).get("terminated") or {}
    code = ended.get("exitCode")
    of_pod = ": ".join(str(word) for word in (status.get("reason"), status.get("message")) if word)
    if code is None:
        return of_pod or f"phase {phase(pod)}"
    what, killed = exits.describe(code), exits.describe(exits.FIRST_RETRYABLE - code)
    if ":" not in what and "SIG" in killed:
        what = f"{what}: {killed}"
    if ended.get("reason") not in (None, "Error", "Completed"):
        what = f"{what} ({ended['reason']})"
    return f"{what}; {of_pod}" if of_pod else what


def is_lost(pod: dict[str, Any], present: bool) -> bool:
    """Whether a pod ended, or is about to end, without success.

    Args:
        pod: as it was last.
        present: whether it is there.
    """
    deleted = not present or bool(pod["metadata"].get("deletionTimestamp"))
    return phase(pod) == "Failed" or (deleted and phase(pod) != "Succeeded")


def loss(pod: dict[str, Any]) -> str:
    """A sentence on a pod that was lost."""
    how = how_it_ended(pod) if phase(pod) == "Failed" else "somebody deleted it"
    return f"{worker(pod)} (pod {pod['metadata']['name']}) was lost: {how}"


def follows(pod: dict[str, Any]) -> bool:
    """Whether a pod ended as one does because another one ended."""
    return exit_code(pod) in FOLLOWS


def cause(pods: Iterable[dict[str, Any]]) -> dict[str, Any] | None:
    """The pod that made a job fail by itself, the first of them; None where pods were only lost.

    A pod that is deleted, by a person or since its node goes, makes the operator (1.8) fail the whole job,
    and so, by chance, may a code that is worth a restart; such pods failed by no fault of what they run.
    """
    failed = [pod for pod in pods if phase(pod) == "Failed" and _is_permanent(exit_code(pod))]
    return min(failed, key=_finished, default=None)


def last_lines(pod: dict[str, Any]) -> list[str]:
    """The last lines of a failed pod, as far as its status holds them."""
    ended = _state(pod).get("terminated") or {}
    return str(ended.get("message") or "").splitlines()


def seconds(job: dict[str, Any], now: datetime) -> float:
    """How long ago a job was created."""
    created = job.get("metadata", {}).get("creationTimestamp")
    return max(0.0, (now - datetime.fromisoformat(created)).total_seconds()) if created else 0.0


def worker(pod: dict[str, Any]) -> str:
    """What a pod is called among its peers."""
    index = pod.get("metadata", {}).get("labels", {}).get("training.kubeflow.org/replica-index")
    return f"worker {index}" if index is not None else pod["metadata"]["name"]


def is_owned(pod: dict[str, Any], job: str) -> bool:
    """Whether a pod is one of the job with this uid, and not one that an earlier job of its name left."""
    return any(owner.get("uid") == job for owner in pod["metadata"].get("ownerReferences") or [])


def _is_permanent(code: int | None) -> bool:
    return code is not None and 0 < code < exits.FIRST_RETRYABLE


def _conditions(job: dict[str, Any]) -> list[dict[str, Any]]:
    return (job.get("status") or {}).get("conditions") or []


def _state(pod: dict[str, Any]) -> dict[str, Any]:
    statuses = pod.get("status", {}).get("containerStatuses") or []
    return next((s.get("state") or {} for s in statuses if s.get("name") == CONTAINER), {})


def _finished(pod: dict[str, Any]) -> str:
    return (_state(pod).get("terminated") or {}).get("finishedAt") or "~"
