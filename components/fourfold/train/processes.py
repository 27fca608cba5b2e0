"""Starts a training's workers as processes of this machine, talking over loopback."""

import subprocess
import sys

from fourfold.contract import events, exits
from fourfold.contract.errors import WorkerFailedError
from fourfold.contract.records import Training, to_json


def run(training: Training) -> None:
    """Starts ``python -m fourfold.worker --local`` and follows it to its end.

    The workers end with this process, whatever ends it: their parent watches for that.

    Raises:
        WorkerFailedError: a worker failed; the error says which, why, and its last lines.
    """
    command = [sys.executable, "-m", "fourfold.worker", "--local", "--training", to_json(training).decode()]
    cause, last = "", []
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, bufsize=1) as process:
        assert process.stdout is not None
        for line in process.stdout:
            event = events.decode(line)
            if event is None:
                print(line, end="", flush=True)
                last = [*last[-19:], line]
                continue
            kind = event.pop("event")
            if kind == "worker-failed":
                cause = event["message"]
            else:
                events.say(kind, **event)
        code = process.wait()
    if code != exits.OK:
        tail = "".join(f"\n  | {line.rstrip()}" for line in last)
        raise WorkerFailedError(
            cause or f"{training.scenario}: the workers' parent ended: {exits.describe(code)}{tail}", code
        )
