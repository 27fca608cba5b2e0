"""What a server says of a run, as events of the live view. Pure."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from fourfold.contract import events, exits

ENDED = {"SUCCEEDED", "FAILED", "SKIPPED", "CANCELED"}
STARTED = {"RUNNING"}
LAST_LINES = 12


@dataclass
class Progress:
    """What has been told of a run.

    Attributes:
        steps: names of the tasks that are steps.
        told: the last state that was told of each task, by its id.
        lines: of each pod's log that were told.
    """

    steps: Collection[str]
    told: dict[str, str] = field(default_factory=dict)
    lines: dict[str, int] = field(default_factory=dict)

    def of_run(self, run: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """What is new in a run.

        Args:
            run: as the API tells it.

        Yields:
            Events, as ``contract.events`` has them.
        """
        for task in self.tasks(run):
            state, key = task.get("state") or "", str(task.get("task_id"))
            before, self.told[key] = self.told.get(key, ""), state
            step = task["display_name"]
            if state == before:
                continue
            if before not in STARTED | ENDED and state in STARTED | ENDED:
                yield {"event": "step-started", "step": step}
            if state in ("SUCCEEDED", "SKIPPED"):
                yield {"event": "step-done", "step": step, "seconds": _seconds(task)}
            elif state in ("FAILED", "CANCELED"):
                # Up to version 2.17 a server never says why.
                message = (task.get("error") or {}).get("message") or f"Kubeflow says no more than {state}"
                yield {"event": "step-failed", "step": step, "message": message, "code": exits.FAILED}

    def tasks(self, run: Mapping[str, Any]) -> list[dict[str, Any]]:
        """The tasks of a run that are steps, the first to start first."""
        found = [task for task in _all_tasks(run) if task.get("display_name") in self.steps]
        return sorted(found, key=lambda task: str(task.get("start_time") or task.get("create_time") or "~"))

    def of_log(self, pod: str, log: str, ended: bool = False) -> Iterator[dict[str, Any]]:
        """What is new in the log of a step's pod.

        Args:
            pod: its name.
            log: all of it that there is.
            ended: whether there will be no more; else a line that is not whole is left for the next time.
        """
        *lines, rest = log.split("\n")
        if ended and rest:
            lines.append(rest)
        for line in lines[self.lines.get(pod, 0) :]:
            event = events.read(line)
            if event:
                yield event
        self.lines[pod] = max(len(lines), self.lines.get(pod, 0))


def last_lines(log: str) -> str:
    """The last lines of a log, for an error."""
    lines = [line for line in log.splitlines() if line.strip()]
    return "\n".join(f"  | {line}" for line in lines[-LAST_LINES:])


def _all_tasks(run: Mapping[str, Any]) -> list[dict[str, Any]]:
    return (run.get("run_details") or {}).get("task_details") or []


def _seconds(task: Mapping[str, Any]) -> float:
    times = [task.get("start_time"), task.get("end_time")]
    if not all(isinstance(one, str) for one in times):
        return 0.0
    begin, end = (datetime.fromisoformat(str(one)) for one in times)
    return max(0.0, (end - begin).total_seconds())
