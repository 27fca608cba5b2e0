"""The end of a run in Kubeflow: its TFJobs are deleted, whatever happened.

A launcher that is terminated has a fraction of a second to delete its job, and one whose node went has none.
Kubeflow runs this step in both cases, and behind it stand the jobs' deadline and time to live.
"""

import time
from collections.abc import Callable

from fourfold.contract import events, pods as given
from fourfold.contract.again import again
from fourfold.contract.errors import ClusterError
from fourfold.train import launch, tfjob, verdict
from fourfold.train.api import Api

TRIES = 5


def run(pods: str, keep_failed: bool, code: str) -> None:
    """The component's body; arguments as in ``component``."""
    with events.step("clean-up", code):
        if pods == given.HERE:
            events.say("said", message="nothing to clean up: the workers were processes")
            return
        api = Api(given.read(pods).namespace)
        deleted = again(lambda: delete_jobs(api, keep_failed))
        events.say("said", message=f"deleted {', '.join(deleted) or 'nothing: no TFJob was left'}")


def delete_jobs(api: Api, keep_failed: bool, sleep: Callable[[float], None] = time.sleep) -> list[str]:
    """Deletes the TFJobs of the run that this process belongs to.

    Args:
        api: of the namespace that they are in.
        keep_failed: leave those that failed.
        sleep: waits for so many seconds.

    Returns:
        The names of those that were deleted.

    Raises:
        ClusterError: it cannot be known which run this is, or a job does not go.
    """
    called = launch.name_of_run(api.controller())
    if not called:
        raise ClusterError(
            "cannot tell which run this is, so nothing is deleted: this step's pod has no controller and "
            f"{events.RUN} is not set"
        )
    selector = f"{tfjob.RUN}={tfjob.label(called)}"
    deleted: dict[str, None] = {}
    for attempt in range(TRIES + 1):
        left = [
            job["metadata"]
            for job in api.jobs(selector)
            if not (keep_failed and verdict.outcome(job) == "failed")
        ]
        if not left:
            return list(deleted)
        if attempt == TRIES:
            break
        for meta in left:
            api.delete_job(meta["name"], meta["uid"])
            deleted[meta["name"]] = None
        sleep(1.0)
    raise ClusterError(f"TFJobs do not go: {', '.join(meta['name'] for meta in left)}")
