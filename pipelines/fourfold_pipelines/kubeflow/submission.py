"""The story of a submission: upload or update the pipeline, start a run, follow it to its end."""

import hashlib
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fourfold import __version__
from fourfold_pipelines.kubeflow import nodes, progress
from fourfold_pipelines.kubeflow.server import Server, check_lengths

EVERY = 3.0
"""Seconds between two looks at a run."""


@dataclass(frozen=True)
class Submitted:
    """A run that was started.

    Attributes:
        run: its id.
        version: name of the pipeline's version.
        uploaded: whether that version is new on the server.
        page: where a browser shows the run.
    """

    run: str
    version: str
    uploaded: bool
    page: str


def submit(
    server: Server,
    package: Path,
    name: str,
    description: str,
    experiment: str,
    run_name: str,
    parameters: Mapping[str, Any],
    account: str = "",
) -> Submitted:
    """Starts a run of a compiled pipeline.

    Args:
        server: to run on.
        package: the compiled YAML.
        name: of the pipeline on the server; a new content of it is a new version.
        description: of the pipeline, where it is new.
        experiment: that the run belongs to, by name.
        run_name: for people.
        parameters: of the run.
        account: service account of its pods; empty for the usual one.

    Raises:
        InvalidInputError: a parameter is longer than the server takes.
        ClusterError: the server refuses, or is away.
    """
    check_lengths(parameters)
    # The same content is the same version, and so a hit in the server's cache.
    version = f"{__version__}-{hashlib.sha256(package.read_bytes()).hexdigest()[:12]}"
    pipeline = server.pipeline(name, description)
    version_id, uploaded = server.version_of(pipeline, version, package)
    run = server.run(run_name, server.experiment(experiment), pipeline, version_id, parameters, account)
    return Submitted(run, version, uploaded, server.page(run))


def follow(
    server: Server, run: str, steps: Collection[str], sleep: Callable[[float], None] = time.sleep
) -> Iterator[dict[str, Any]]:
    """Tells a run's progress to its end.

    Args:
        server: that it runs on.
        run: its id.
        steps: names of its tasks that are steps.
        sleep: waits for so many seconds.

    Yields:
        Events; the last is ``run-ended`` with the run's state, how it came to it in a word, and the last
        lines of the step that failed.
    """
    seen = progress.Progress(steps)
    done: set[str] = set()
    terminated = False
    while True:
        found = server.state(run)
        state = found.get("state")
        terminated = terminated or state == "CANCELING"
        for task in seen.tasks(found):
            key, ended = str(task.get("task_id")), task.get("state") in progress.ENDED
            if key in done or not (ended or task.get("state") in progress.STARTED):
                continue
            for pod in nodes.pods(found, task):
                yield from seen.of_log(pod[0], server.log(run, pod, _day(found)), ended)
            if ended:
                done.add(key)
        yield from seen.of_run(found)
        if state in progress.ENDED:
            failed = [task for task in seen.tasks(found) if task.get("state") == "FAILED"]
            pods = [pod for task in failed[:1] for pod in nodes.pods(found, task)]
            tail = progress.last_lines(server.log(run, pods[-1], _day(found))) if pods else ""
            how = "terminated" if terminated else state.lower()
            yield {"event": "run-ended", "state": state, "message": how, "tail": tail}
            return
        sleep(EVERY)


def _day(run: Mapping[str, Any]) -> str:
    return str(run.get("created_at") or "")[:10]
