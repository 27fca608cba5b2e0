"""Runs the experiment on this machine with kfp's own runner: ``python -m fourfold_pipelines.local``.

A process of its own, so that kfp's lines go to the run's log and one signal to its group ends everything that
it started.
"""

import argparse
import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fourfold.contract import exits, keys, lifetime, pods
from fourfold.contract.records import Trained
from fourfold.contract.strict import from_json
from fourfold.train import processes

STEPS = "steps"
"""Where the steps' outputs are while a run goes on; what is worth keeping is taken out of it at the end."""


def main(argv: list[str]) -> int:
    """Runs the experiment into a folder.

    Args:
        argv: the arguments after the program's name.

    Returns:
        0, or 1 if a step failed; why is in the run's events and log.
    """
    parser = argparse.ArgumentParser(prog="python -m fourfold_pipelines.local", description=main.__doc__)
    parser.add_argument("--out", required=True, type=Path, help="the run's folder; it exists and is empty")
    parser.add_argument("--arguments", required=True, help="of the pipeline, as a JSON object")
    parser.add_argument("--pods", default=pods.HERE, help="what the workers' pods are given, or `here`")
    options = parser.parse_args(argv)
    # As an exception, so that what must be put away is, also when the run is ended from outside.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(exits.TERMINATED))
    lifetime.end_with_parent(lambda: os.killpg(0, signal.SIGTERM))
    with worker_server() if options.pods == pods.HERE else contextlib.nullcontext() as path:
        if path:
            os.environ[processes.SERVER] = path

        from kfp import local

        from fourfold_pipelines.chosen import Chosen
        from fourfold_pipelines.experiment import build

        root = options.out / STEPS
        local.init(local.SubprocessRunner(use_venv=False), pipeline_root=str(root))
        try:
            run = build(Chosen(pods=options.pods))(**json.loads(options.arguments))
        except RuntimeError as error:
            print(error, file=sys.stderr)
            return 1
    collect(run.outputs, options.out)
    shutil.rmtree(root)
    return 0


@contextlib.contextmanager
def worker_server() -> Iterator[str]:
    """Starts a process that imports TensorFlow now and forks workers when a step asks for them.

    Yields:
        The path of its socket.
    """
    with (
        tempfile.TemporaryDirectory(prefix="fourfold-", dir=_short_folder()) as folder,
        socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening,
    ):
        path = str(Path(folder) / "workers")
        listening.bind(path)
        listening.listen()
        command = [sys.executable, "-m", "fourfold.worker", "--serve", str(listening.fileno())]
        server = subprocess.Popen(command, pass_fds=[listening.fileno()], stdin=subprocess.DEVNULL)
        listening.close()
        try:
            yield path
        finally:
            server.terminate()
            server.wait()


def _short_folder() -> str | None:
    """Where a socket's path fits into the 104 bytes that some systems allow; None for the usual place."""
    return "/tmp" if len(os.fsencode(tempfile.gettempdir())) > 70 else None


def collect(outputs: Any, out: Path) -> None:
    """Puts what a run yielded into its folder: ``report.html``, ``models/`` and, last, ``results.json``.

    Args:
        outputs: of the pipeline, artifacts by name.
        out: the run's folder.
    """
    models = out / "models"
    models.mkdir()
    for artifact in outputs["models"]:
        folder = Path(artifact.path)
        trained = from_json(Trained, (folder / keys.TRAINED).read_bytes(), keys.TRAINED)
        name = trained.training.scenario
        for index in range(trained.models):
            target = f"{name}-{index}.keras" if trained.models > 1 else f"{name}.keras"
            (folder / keys.model(index)).replace(models / target)
    for path in sorted(Path(outputs["merged"].path).glob("*.keras")):
        path.replace(models / f"merged-{path.name}")
    Path(outputs["page"].path).replace(out / "report.html")
    Path(outputs["results"].path).replace(out / "results.json")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
