"""What Kubeflow Pipelines 2.17 tells of a run: tasks that are nodes of Argo's, and no pod's name."""

import re
import uuid
from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

CREATED = "2026-08-21T10:00:00Z"


@dataclass
class Scene:
    """What the server tells of a run at one look, and the logs that its pods have then."""

    run: dict[str, Any]
    logs: dict[str, str] = field(default_factory=dict)


def node_id(workflow: str, path: str) -> str:
    """The id that Argo gives a node: a hash of its path, FNV-1a with 32 bits."""
    whole = f"{workflow}{path}" if path.startswith("(") else f"{workflow}.{path}"
    hashed = reduce(lambda h, b: ((h ^ b) * 16777619) % 2**32, whole.encode(), 2166136261)
    return f"{workflow}-{hashed}"


def pod(workflow: str, path: str, template: str = "retry-system-container-impl") -> str:
    """The name of the pod of a node."""
    return f"{workflow}-{template}-{node_id(workflow, path).removeprefix(f'{workflow}-')}"


def tell(workflow: str, nodes: Mapping[str, str], state: str = "RUNNING", **more: Any) -> dict[str, Any]:
    """A run as the API tells it.

    Args:
        workflow: name of the Argo workflow.
        nodes: states of its nodes by their paths, such as ``root.prepare.executor(0)``; ``(0)`` is the first
            try at all of it.
        state: of the run.
        **more: fields of the run.
    """
    # The workflow's own node has its name and no path.
    paths = ["", *sorted(nodes)]
    below: dict[str, list[str]] = {path: [] for path in paths}
    for path in paths[1:]:
        below[_above(path, below)].append(path)
    details = []
    for path in paths:
        times = {"create_time": CREATED, "start_time": CREATED, "end_time": "0001-01-01T00:00:00Z"}
        task = nodes.get(path, state)
        if task in ("SUCCEEDED", "FAILED"):
            times["end_time"] = "2026-08-21T10:00:20Z"
        children = [{"pod_name": node_id(workflow, child)} for child in below[path]]
        # No pod_name, no error and no executor_detail: the real one leaves them out.
        name = path.rpartition(".")[2]
        name = f"{workflow}{name}" if name.startswith("(") else name or workflow
        told = {"task_id": str(uuid.uuid5(uuid.NAMESPACE_URL, path)), "display_name": name}
        details.append({**told, **times, "state": task, "child_tasks": children})
    return {"state": state, "created_at": CREATED, "run_details": {"task_details": details}, **more}


def _above(path: str, paths: Container[str]) -> str:
    """The node that has this one as its child: what it waited for, all of its tries, or the DAG around it."""
    for above in (f"{path}-driver", re.sub(r"\(\d+\)$", "", path), path.rpartition(".")[0]):
        if above != path and above in paths:
            return above
    return ""
