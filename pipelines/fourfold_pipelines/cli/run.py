"""``fourfold run``: the experiment, with a live view, into a folder or a store."""

import contextlib
import datetime
import json
import os
import re
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from fourfold.contract import events, exits, keys, plan as plans, pods
from fourfold.contract.errors import FourfoldError, InvalidInputError, StoreError
from fourfold.store.objects import Store, open_store
from fourfold.train import tfjob
from fourfold_pipelines.cli import live, options, summary
from fourfold_pipelines.cli.place import PLACES, Place, place


@click.command("run")
@click.option("--scenario", "scenarios", multiple=True, metavar="NAME",
              help=f"A way to split the training: {', '.join(plans.names())}. Repeatable. "
              "[default: all]")  # fmt: skip
@options.with_options(options.EXPERIMENT)
@click.option("--store", default=None, metavar="URI",
              help="Where batches are cached, for this run and later ones: a folder or s3://bucket/prefix. "
              "[default: $FOURFOLD_STORE, else what the cluster's manifests say, else "
              "~/.cache/fourfold/store]")  # fmt: skip
@click.option("--out", default=None, metavar="URI",
              help="Where the results go: a folder, or s3://bucket/prefix; new or empty. "
              "[default: runs/TIME-ID]")  # fmt: skip
@click.option("--on", type=click.Choice(PLACES), default="here", show_default=True,
              help="Where the workers run: as processes here, or as TFJobs on a cluster.")  # fmt: skip
@click.option("--debug", is_flag=True,
              help="One worker on one device, outside any strategy, step by step in Python: for looking at "
              "what a model does. Implies --workers 1, and all members in that one.")  # fmt: skip
@options.with_options(options.PODS)
def run_command(
    debug: bool,
    out: str | None,
    store: str | None,
    on: str,
    namespace: str | None,
    gpus: int | None,
    pods_text: str,
    **said: Any,
) -> None:
    """Trains one model every way, merges what was trained apart, and writes a report.

    Every scenario runs in worker processes of its own: on this machine, or, with --on cluster, as a TFJob
    on the cluster of the kubeconfig, while the other steps run here. --out gets report.html, results.json,
    run.log and models/. Ctrl-C ends all that was started, here and there.

    \b
    Examples:
      fourfold run
      fourfold run --scenario sequential --scenario solo --split skew:90,10 --rows 4000
      fourfold run --data mnist --rows 50000 --epochs 2 --workers 4 --out runs/big
      fourfold run --on cluster --workers 4 --gpus 1
    """  # noqa: D301 - click takes the backslash-b itself as its mark
    settings = options.experiment(**(_debugged(said) if debug else said))
    of_pods = options.said_of_pods(namespace, gpus, pods_text)
    with place(on, store, namespace, of_pods) as where:
        target = _remote(out)
        if target is not None and target.exists(keys.RESULTS):
            _refuse_unless_ours(out or "")
            click.echo(f"this run has ended already; its results are in {out}")
            return
        folder = _make_folder(None if target else out, temporary=target is not None)
        run = os.environ.get(events.RUN) or f"{folder.name}-{secrets.token_hex(3)}"
        code = _run(folder, settings, where, run)
        if target is not None and code not in (exits.INTERRUPTED, exits.TERMINATED):
            _upload_or_say(folder, target, code)
        if code == exits.OK:
            if where.pods != pods.HERE:
                _forget_trainings(where.store, run)
            summary.show(folder, out if target else None)
            return
        if target is None and code not in (exits.INTERRUPTED, exits.TERMINATED):
            click.echo(f"The run failed; the whole log is in {folder / 'run.log'}", err=True)
    sys.exit(code)


def _debugged(said: dict[str, Any]) -> dict[str, Any]:
    """The options of a run that is to be looked into.

    Raises:
        InvalidInputError: several workers were asked for.
    """
    source = click.get_current_context().get_parameter_source("workers")
    if said["workers"] > 1 and source is not None and source.name != "DEFAULT":
        raise InvalidInputError(f"--debug trains with one worker: leave out --workers {said['workers']}")
    return {**said, "workers": 1, "debug": True}


def _run(folder: Path, settings: Mapping[str, Any], where: Place, run: str) -> int:
    store = where.store if "://" in where.store else str(Path(where.store).expanduser().absolute())
    return _follow(folder, {**settings, "store": store}, where.pods, run)


def _forget_trainings(store: str, run: str) -> None:
    """Deletes what the pods of this run wrote into the store; all of it has been collected."""
    try:
        target = open_store(store)
        for key in target.list(keys.trainings(tfjob.label(run))):
            target.delete(key)
    except StoreError as error:
        click.echo(f"What the pods wrote meanwhile is left in the store: {error}", err=True)


def _remote(out: str | None) -> Store | None:
    """The store that the results go to; None for a folder."""
    if out is None or "://" not in out or out.lower().startswith("file:"):
        return None
    return open_store(out)


def _refuse_unless_ours(out: str) -> None:
    """A run that was ended between its last object and its own end, and started again, has nothing to do.

    Raises:
        InvalidInputError: the results there are another run's.
    """
    run = os.environ.get(events.RUN)
    if not run or out.rstrip("/").rpartition("/")[2] != run:
        raise InvalidInputError(f"--out {out} holds a run's results already: name another place")


def upload(folder: Path, target: Store) -> None:
    """Puts a run's folder into a store, its results last: where there are results, all is there."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    wanted = [p for p in files if p.relative_to(folder).parts[0] != "steps" and p != folder / keys.RESULTS]
    for path in [*wanted, *(p for p in files if p == folder / keys.RESULTS)]:
        target.write(path.relative_to(folder).as_posix(), path.read_bytes())


def _upload_or_say(folder: Path, target: Store, code: int) -> None:
    """Uploads; where the run failed, its own error is what counts."""
    try:
        upload(folder, target)
    except FourfoldError as error:
        if code == exits.OK:
            raise
        click.echo(f"The log could not be put into the store: {error}", err=True)


def _make_folder(out: str | None, temporary: bool) -> Path:
    now = datetime.datetime.now().strftime("%Y%m%d-%H%M%S")
    name = f"{now}-{secrets.token_hex(2)}"
    folder = Path(tempfile.mkdtemp()) / name if temporary else Path(out or Path("runs") / name)
    folder = Path(str(folder).removeprefix("file://")).expanduser()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise InvalidInputError(
                f"--out {folder} is not empty: name a new folder, or delete this one first"
            )
        (folder / "run.log").touch()
    except OSError as error:
        raise FourfoldError(
            f"cannot write into --out {folder}: {error.strerror or error}; name another folder"
        ) from error
    return folder


def _follow(folder: Path, arguments: dict[str, Any], pods_text: str, run: str) -> int:
    """Runs the pipeline in a process group of its own and shows its progress; Ctrl-C and SIGTERM end it."""
    told = folder / "events.jsonl"
    told.touch()
    command = [sys.executable, "-m", "fourfold_pipelines.local", "--out", str(folder.absolute())]
    command += ["--arguments", json.dumps(arguments), "--pods", pods_text]
    environment = {
        **os.environ,
        events.RUN: run,
        events.FILE: str(told.absolute()),
        "PYTHONUNBUFFERED": "1",
        # A file of the folder that one stands in is no library; a library's warning is no error.
        "PYTHONSAFEPATH": "1",
        "PYTHONWARNINGS": "default",
    }
    before = {number: signal.signal(number, _interrupt) for number in (signal.SIGINT, signal.SIGTERM)}
    with (folder / "run.log").open("wb") as log:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment, start_new_session=True
        )
        try:
            failed_with = live.follow(told, process)
            code = process.wait()
            if code and not failed_with:
                click.echo(
                    f"The run ended: {exits.describe(code)}; its last lines:\n{_tail(folder)}", err=True
                )
            return (failed_with or exits.FAILED) if code else 0
        except _EndedError as ended:
            click.echo("\nInterrupted: ending all workers ...", err=True)
            return 128 + ended.number
        finally:
            _end_group(process)
            for number, handler in before.items():
                signal.signal(number, handler)


def _tail(folder: Path, lines: int = 8) -> str:
    """The last lines of the log, without the colours that kfp gives them."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", (folder / "run.log").read_text(encoding="utf-8", errors="replace"))
    return "\n".join(f"  | {line}" for line in text.rstrip().splitlines()[-lines:])


class _EndedError(BaseException):
    """A signal asked for the end."""

    def __init__(self, number: int):
        super().__init__(number)
        self.number = number


def _interrupt(number: int, frame: object) -> None:
    raise _EndedError(number)


def _end_group(process: subprocess.Popen) -> None:
    """Ends what is left of the run's process group: asks, waits until all are gone, then kills.

    A launcher among them deletes its TFJob first, which takes a moment.
    """
    for number, seconds in ((signal.SIGTERM, 8.0), (signal.SIGKILL, 5.0)):
        until = time.monotonic() + seconds
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, number)
            while time.monotonic() < until:
                process.poll()
                # As process 1 of a container we inherit what the group's own parents leave.
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(-process.pid, os.WNOHANG)
                os.killpg(process.pid, 0)
                time.sleep(0.05)
    process.wait()
