"""Workers on demand: a process that has TensorFlow imported forks them for each training asked for.

Importing TensorFlow takes longer than a small training. A run on one machine imports it once, while the data
is prepared. The workers are the same program as everywhere; only their parent was there before.
"""

import contextlib
import os
import select
import signal
import socket
import sys

from fourfold.contract import events, exits, lifetime
from fourfold.contract.errors import FourfoldError
from fourfold.contract.records import Training
from fourfold.contract.strict import from_json
from fourfold.worker import supervise


def serve(listening: socket.socket) -> int:
    """Answers requests until this process's parent is gone.

    A request is a ``Training`` as JSON on one line. The answer is what its workers print, then the event
    ``exit`` with the exit code. Who closes the connection ends its workers.

    Args:
        listening: a socket that listens; requests that come before TensorFlow is imported wait in its queue.
    """
    lifetime.end_with_parent(lambda: os._exit(exits.OK))
    supervise.preload()
    signal.signal(signal.SIGCHLD, _reap)
    while True:
        connection, _ = listening.accept()
        sys.stdout.flush()
        if os.fork():
            connection.close()
            continue
        code = exits.FAILED
        try:
            listening.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            code = _answer(connection)
        finally:
            os._exit(code)


def _reap(number: int, frame: object) -> None:
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _answer(connection: socket.socket) -> int:
    with connection.makefile("r", encoding="utf-8") as file:
        request = file.readline()
    os.dup2(connection.fileno(), 1)
    os.dup2(connection.fileno(), 2)

    def abandoned() -> bool:
        readable, _, _ = select.select([connection], [], [], 0)
        return bool(readable) and not connection.recv(1, socket.MSG_PEEK)

    try:
        training = from_json(Training, request, "the request")
        code = supervise.run(training, supervise.local_roles(training), abandoned)
    except FourfoldError as error:
        print(f"fourfold: {error}", flush=True)
        code = exits.INVALID_INPUT
    with contextlib.suppress(OSError):
        events.tell("exit", code=code)
    return code
