"""Exit codes of workers, steps and commands, chosen for a TFJob's restartPolicy ``ExitCode``.

The training operator takes 1 to 127 as permanent and 128 to 255 as worth a restart; so does the Job that runs
an experiment inside a cluster.
"""

from fourfold.contract.errors import (
    ClusterUnavailableError,
    DamagedObjectError,
    DivergedError,
    FourfoldError,
    InvalidInputError,
    MissingObjectError,
    PeerLostError,
    StoreDeniedError,
    StoreError,
    WorkerFailedError,
)

OK = 0
FAILED = 1
"""An error of the program itself: a traceback stands above."""
INVALID_INPUT = 2
"""Bad arguments or bad data: the same command fails again."""
DIVERGED = 3
"""The loss or a weight is not finite: the same command diverges again."""
STORE_FAILED = 140
"""The store did not answer; it may later."""
CLUSTER_FAILED = 141
"""The Kubernetes API did not answer; it may later."""
PEER_LOST = 150
"""A peer ended or could not be reached any more."""
PEER_MISSING = 151
"""Not all peers came within the limit."""
PORT_IN_USE = 152
"""The worker's own address was taken."""
INTERRUPTED = 130
"""Ended by Ctrl-C."""
TERMINATED = 143
"""Ended from outside by SIGTERM."""

FIRST_RETRYABLE = 128

CODES: tuple[tuple[type[FourfoldError], int], ...] = (
    (InvalidInputError, INVALID_INPUT),
    (MissingObjectError, INVALID_INPUT),
    (DamagedObjectError, INVALID_INPUT),
    (StoreDeniedError, INVALID_INPUT),
    (DivergedError, DIVERGED),
    (StoreError, STORE_FAILED),
    (ClusterUnavailableError, CLUSTER_FAILED),
    (PeerLostError, PEER_LOST),
    (FourfoldError, FAILED),
)
"""What an error that users read ends with; the first row that fits."""


def of(error: FourfoldError) -> int:
    """The exit code for an error."""
    if isinstance(error, WorkerFailedError):
        return error.exit_code
    return next(code for kind, code in CODES if isinstance(error, kind))


def is_retryable(code: int) -> bool:
    """Whether what ended by itself with this code may end otherwise when it is started again."""
    return code >= FIRST_RETRYABLE and code not in (INTERRUPTED, TERMINATED)


def describe(code: int) -> str:
    """Says what an exit code of a worker means.

    Args:
        code: as the operating system reports it; negative means killed by that signal.

    Returns:
        A short phrase, such as ``"killed by SIGKILL"`` or ``"exit code 3: diverged"``.
    """
    import signal

    if code < 0:
        try:
            return f"killed by {signal.Signals(-code).name}"
        except ValueError:
            return f"killed by signal {-code}"
    meaning = {
        OK: "done",
        FAILED: "an error of the program",
        INVALID_INPUT: "bad input",
        DIVERGED: "diverged",
        STORE_FAILED: "the store did not answer",
        CLUSTER_FAILED: "the Kubernetes API did not answer",
        PEER_LOST: "a peer was lost",
        PEER_MISSING: "a peer did not come in time",
        PORT_IN_USE: "its port was in use",
        INTERRUPTED: "interrupted",
        TERMINATED: "terminated",
    }.get(code)
    return f"exit code {code}" + (f": {meaning}" if meaning else "")
