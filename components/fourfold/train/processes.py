"""Starts a training's workers as processes of this machine, talking over loopback."""

import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator

from fourfold.contract import events, exits
from fourfold.contract.errors import WorkerFailedError
from fourfold.contract.records import Training
from fourfold.contract.strict import to_json

SERVER = "FOURFOLD_WORKERS"
"""Names the socket of a process that forks workers on demand (``worker.serve``), where there is one."""
TRIES = 3
"""Starts of workers that end by something that may not come again; a TFJob restarts its pods likewise."""


def run(training: Training, clean: Callable[[], None], tries: int = TRIES) -> None:
    """Starts the workers and follows them to their end.

    The workers end with this process, whatever ends it: their parent watches for that. Where one ends by
    something that may not come again, all are started again and go on from their last checkpoint.

    Args:
        training: what to train.
        clean: deletes what an earlier try left in the output.
        tries: starts at most.

    Raises:
        WorkerFailedError: a worker failed; the error says which, why, and its last lines.
    """
    clean()
    for left in reversed(range(tries)):
        try:
            _run(training)
        except WorkerFailedError as error:
            if not left or not exits.is_retryable(error.exit_code):
                raise
            more = f"{left} more tr{'y' if left == 1 else 'ies'}"
            events.say(
                "said", scenario=training.scenario, message=f"{error}\nStarting again ({more} after this)."
            )
        else:
            return


def _run(training: Training) -> None:
    cause, last, code = "", [], None
    for line in _ask(training) or _spawn(training):
        event = events.decode(line)
        if event is None:
            print(line, end="", flush=True)
            last = [*last[-19:], line]
            continue
        kind = event.pop("event")
        if kind == "worker-failed":
            cause = event["message"]
        elif kind == "exit":
            code = event["code"]
        else:
            events.say(kind, **event)
    if code != exits.OK:
        tail = "".join(f"\n  | {line.rstrip()}" for line in last)
        ended = "was lost: somebody killed it" if code is None else f"ended: {exits.describe(code)}"
        raise WorkerFailedError(
            cause or f"{training.scenario}: the workers' parent {ended}{tail}",
            exits.PEER_LOST if code is None else code,
        )


def _spawn(training: Training) -> Iterator[str]:
    """The lines of ``python -m fourfold.worker --local``, the event ``exit`` last."""
    command = [
        sys.executable,
        "-P",
        "-m",
        "fourfold.worker",
        "--local",
        "--training",
        to_json(training).decode(),
    ]
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        errors="replace",
        bufsize=1,
    ) as process:
        assert process.stdout is not None
        yield from process.stdout
        yield events.encode("exit", code=process.wait())


def _ask(training: Training) -> Iterator[str] | None:
    """The lines of workers that a server forks, the event ``exit`` last; None where there is no server."""
    path = os.environ.get(SERVER)
    if not path:
        return None
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.connect(path)
    except OSError:
        connection.close()
        return None
    connection.sendall(to_json(training).replace(b"\n", b"") + b"\n")
    return _lines(connection)


def _lines(connection: socket.socket) -> Iterator[str]:
    with (
        connection,
        connection.makefile("r", encoding="utf-8", errors="replace") as file,
        # A server that is gone has no more to say; that no exit code came says so.
        contextlib.suppress(ConnectionError),
    ):
        yield from file
