"""The pods of a run's steps, from the little that the API says of a workflow. Pure.

Kubeflow Pipelines 2 names no pods (its issue 14007): of a task it gives a name and the ids of Argo's nodes
below it. A node's id is the workflow's name and a hash of the node's path; a path is the path of the node
above, a dot and the name; and a pod is called like its node's id, with the name of a template inside.
"""

import re
from collections.abc import Mapping
from typing import Any

TEMPLATES = ("retry-system-container-impl-", "system-container-impl-", "")
"""What may stand in a pod's name before the hash: of a task that is retried, of another, of old Argo."""
ID = re.compile(r"(?P<workflow>.+)-(?P<hash>\d+)")
PROGRAM = re.compile(r"executor(\((?P<attempt>\d+)\))?")
"""The nodes that are a task's own program; beside them are drivers, loops, and steps of the workflow."""

Names = tuple[str, ...]
"""That one pod may have, the likeliest first."""


def pods(run: Mapping[str, Any], task: Mapping[str, Any]) -> list[Names]:
    """The pods in which a task's program runs or ran, the first try first.

    Args:
        run: as the API tells it.
        task: one of its tasks.
    """
    children = _children(task)
    named = [(child,) for child in children if "-impl-" in child]
    if named:
        return named
    paths = _paths(run)
    tops = [paths[child] for child in children if child in paths]
    found: dict[int, Names] = {}
    for node, path in paths.items():
        program = PROGRAM.fullmatch(path.rsplit(".", 1)[-1])
        if program and any(path == top or path.startswith((f"{top}.", f"{top}(")) for top in tops):
            workflow, _, number = node.rpartition("-")
            attempt = int(program["attempt"] or -1)
            found[attempt] = tuple(f"{workflow}-{template}{number}" for template in TEMPLATES)
    if len(found) > 1:
        # A task that may be tried again has a node for all of its tries, which is no pod.
        found.pop(-1, None)
    return [found[attempt] for attempt in sorted(found)]


def _paths(run: Mapping[str, Any]) -> dict[str, str]:
    """The paths of a workflow's nodes by their ids: those that, made of names, have the hash of an id."""
    tasks = (run.get("run_details") or {}).get("task_details") or []
    ids = [found for task in tasks for child in _children(task) if (found := ID.fullmatch(child))]
    if not ids:
        return {}
    workflow = ids[0]["workflow"]
    nodes = {int(found["hash"]): found[0] for found in ids}
    names = {str(task.get("display_name") or "") for task in tasks} - {""}
    paths: dict[str, str] = {}
    waiting = [workflow, *(name for name in names if name.startswith(f"{workflow}("))]
    while waiting:
        above = waiting.pop()
        begun = _hash(f"{above}.")
        for name in names:
            node = nodes.get(_hash(name, begun))
            if node and node not in paths:
                paths[node] = f"{above}.{name}"
                waiting.append(paths[node])
    return paths


def _children(task: Mapping[str, Any]) -> list[str]:
    return [child["pod_name"] for child in task.get("child_tasks") or [] if child.get("pod_name")]


def _hash(text: str, begun: int = 0x811C9DC5) -> int:
    """FNV-1a with 32 bits (Fowler, Noll and Vo 1991), as Argo takes it of a node's path."""
    for byte in text.encode():
        begun = (begun ^ byte) * 0x01000193 & 0xFFFFFFFF
    return begun
