"""Trying a step again inside Kubeflow, which does not.

Under the settings that Kubeflow Pipelines comes with, a step that ends with an error is not started again,
whatever its retry policy says. So a step waits by itself for what may go away: a store or an API server that
does not answer.
"""

import os
import time
from collections.abc import Callable
from typing import TypeVar

from fourfold.contract import events, exits
from fourfold.contract.errors import FourfoldError

T = TypeVar("T")

POD = "KFP_POD_NAME"
"""In the environment of a step that runs in Kubeflow: its pod's name."""
PAUSES = (10.0, 60.0)
"""Seconds before the second and the third try."""
WORTH_IT = (exits.STORE_FAILED, exits.CLUSTER_FAILED)


def again(body: Callable[[], T], sleep: Callable[[float], None] = time.sleep) -> T:
    """Runs a step's body, in Kubeflow up to three times while what it needs does not answer.

    Elsewhere a person, or the Job that runs the experiment, decides.

    Args:
        body: safe to run twice.
        sleep: waits for so many seconds.
    """
    for pause in PAUSES if POD in os.environ else ():
        try:
            return body()
        except FourfoldError as error:
            if exits.of(error) not in WORTH_IT:
                raise
            events.say("said", message=f"{error}; trying again in {pause:.0f} s")
        sleep(pause)
    return body()
