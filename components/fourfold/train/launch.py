"""Runs a training as a TFJob: creates or adopts it, follows it, and deletes it when it is told to end.

Everything here is safe to do twice: a launcher that was killed and started again finds its job by a name that
is a function of run, scenario and inputs.
"""

import contextlib
import dataclasses
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

from fourfold.contract import events, exits
from fourfold.contract.errors import ClusterError, ClusterUnavailableError, WorkerFailedError
from fourfold.contract.pods import Pods
from fourfold.contract.records import Training
from fourfold.train import follow, tfjob, verdict
from fourfold.train.api import AlreadyExistsError, Api

TRIES = 3
"""How often a training is tried whose pods are lost by no fault of their own."""
ATTEMPTS = 99
SECONDS_TO_DELETE = 5.0


def run(training: Training, clean: Callable[[], None], pods: Pods, api: Api | None = None) -> None:
    """Runs a training's workers as the pods of a TFJob, to their end.

    Args:
        training: what to train.
        clean: deletes what an earlier try left in the output; called before a job is created.
        pods: what the pods are given.
        api: of the cluster.

    Raises:
        InvalidInputError: pods cannot reach the store; nothing was created.
        ClusterError: the job could not be created or followed.
        WorkerFailedError: the job failed, did not start, or took too long; the error says which, and why.
        SystemExit: this process was told to end; the job is deleted.
    """
    tfjob.check(training, pods)
    api = api or Api(pods.namespace)
    pods = dataclasses.replace(pods, namespace=api.namespace)
    with _Ending(api) as ending:
        for left in reversed(range(TRIES)):
            ending.covers(None)
            job = create_or_adopt(training, clean, pods, api)
            ending.covers(job)
            try:
                if tfjob.needs_policy(training):
                    api.create_policy(tfjob.policy(job))
                follow.Follow(api, training, pods, job).until_end()
                return
            except ClusterUnavailableError:
                # The job may well go on; who is started again finds it.
                raise
            except ClusterError:
                api.delete_job(job["metadata"]["name"], job["metadata"]["uid"])
                raise
            except WorkerFailedError as error:
                if error.exit_code != exits.PEER_LOST or not left:
                    raise
                events.say("said", message=f"{error}; trying again", scenario=training.scenario)


def create_or_adopt(training: Training, clean: Callable[[], None], pods: Pods, api: Api) -> dict[str, Any]:
    """Creates the training's job, or finds the one that an earlier launcher created.

    A job is adopted where it was made from the same spec and runs or has succeeded. Where it failed or is
    being deleted, and where the name belongs to something else, the next attempt gets the next name.

    Raises:
        ClusterError: the job could not be created.
        WorkerFailedError: it failed before, by something that would fail again.
    """
    controller = api.controller()
    # The pod itself would be the wrong owner: its successor must find what it left.
    owner = controller if api.owns_here() else None
    called = name_of_run(controller) or "fourfold"
    for attempt in range(1, ATTEMPTS + 1):
        wanted = tfjob.build(training, pods, called, attempt, owner)
        name = wanted["metadata"]["name"]
        found = api.job(name)
        if found is None:
            clean()
            try:
                created = api.create_job(wanted)
            except AlreadyExistsError:
                found = api.job(name)
            else:
                _tell(training, f"created TFJob {name} in namespace {api.namespace}", created)
                return created
        if found is not None and _can_be_adopted(found, wanted):
            _tell(training, f"goes on with TFJob {name} in namespace {api.namespace}", found)
            return found
        if found is not None and _is_same(found, wanted):
            _refuse_to_repeat(found, api)
    raise ClusterError(f"{ATTEMPTS} TFJobs of this training have failed: delete them ({tfjob.RUN}={called})")


def name_of_run(controller: dict[str, Any] | None) -> str:
    """What the run is called: after what it was told, else what controls this process's pod; else empty."""
    return os.environ.get(events.RUN) or (controller["name"] if controller else "")


def _is_same(found: dict[str, Any], wanted: dict[str, Any]) -> bool:
    annotations = found["metadata"].get("annotations") or {}
    return annotations.get(tfjob.SPEC) == wanted["metadata"]["annotations"][tfjob.SPEC]


def _can_be_adopted(found: dict[str, Any], wanted: dict[str, Any]) -> bool:
    is_going = found["metadata"].get("deletionTimestamp")
    return _is_same(found, wanted) and not is_going and verdict.outcome(found) != "failed"


def _refuse_to_repeat(found: dict[str, Any], api: Api) -> None:
    """Ends a launcher that was started again, perhaps by Kubeflow, on a training that is known to fail.

    Raises:
        WorkerFailedError: the job failed by bad input or a loss that diverged.
    """
    name, uid = found["metadata"]["name"], found["metadata"]["uid"]
    pod = verdict.cause(pod for pod in api.list_pods(name)[0] if verdict.is_owned(pod, uid))
    code = verdict.exit_code(pod) if pod else None
    if pod and code in (exits.INVALID_INPUT, exits.DIVERGED):
        said = "\n".join(f"  | {line}" for line in verdict.last_lines(pod)[-8:])
        raise WorkerFailedError(
            f"TFJob {name} of this run has failed already and would again: {verdict.worker(pod)} (pod "
            f"{pod['metadata']['name']}) ended: {verdict.how_it_ended(pod)}; its last lines:\n{said}",
            code,
        )


def _tell(training: Training, what: str, job: dict[str, Any]) -> None:
    events.say(
        "said",
        message=f"{training.scenario}: {what}",
        scenario=training.scenario,
        job=job["metadata"]["name"],
        created=job["metadata"]["creationTimestamp"],
    )


class _Ending:
    """Deletes the job when this process is told to end, first of all.

    Kubeflow leaves a step that it terminates a fraction of a second between SIGTERM and the end.
    """

    def __init__(self, api: Api):
        # Connections of its own: the handler may interrupt a request in whatever state it is.
        self._api, self._deleting, self._job, self._asked = api, api.another(), None, False

    def __enter__(self) -> "_Ending":
        self._before = {}
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGINT):
                self._before[number] = signal.signal(number, self._end)
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def covers(self, job: dict[str, Any] | None) -> None:
        """From now on this job is deleted; at once, where the signal came while it was being created."""
        self._job = job
        if self._asked and job:
            self._end(signal.SIGTERM, None)

    def _end(self, number: int, frame: object) -> None:
        self._asked = True
        if self._job is None:
            self._api.patience = 0.0
            return
        meta = self._job["metadata"]
        said = f"told to end: TFJob {meta['name']} is deleted"
        try:
            self._deleting.delete_job(meta["name"], meta["uid"], patience=SECONDS_TO_DELETE)
        except ClusterError as error:
            said = f"told to end, but the TFJob is left behind until its deadline: {error}"
        with _no_reader():
            print(said, flush=True)
        sys.exit(exits.TERMINATED)


@contextlib.contextmanager
def _no_reader() -> Iterator[None]:
    """What is said at the end may have nobody left to read it, or interrupt a line that is being said."""
    with contextlib.suppress(OSError, RuntimeError, ValueError):
        yield
