"""``fourfold run``: the experiment on this machine, with a live view, into a folder."""

import datetime
import json
import os
import re
import secrets
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import click

from fourfold.contract import events, exits, plan as plans
from fourfold.contract.errors import FourfoldError, InvalidInputError
from fourfold.prepare.source import cache_folder
from fourfold.prepare.split import RULES
from fourfold_pipelines.cli import live, summary


@click.command("run")
@click.option("--scenario", "scenarios", multiple=True, metavar="NAME",
              help=f"A way to split the training: {', '.join(plans.names())}. Repeatable. "
              "[default: all]")  # fmt: skip
@click.option("--data", default="sample", show_default=True, metavar="SOURCE",
              help="sample (10,000 rows of MNIST, in the package), mnist (from $FOURFOLD_DATA, else "
              "downloaded), or the path of a folder with four IDX files.")  # fmt: skip
@click.option("--rows", type=click.IntRange(min=1), default=2000, show_default=True,
              help="Training rows, the first of the source.")  # fmt: skip
@click.option("--holdout", type=click.IntRange(min=1), default=1000, show_default=True,
              help="Rows after those, set aside for choices.")  # fmt: skip
@click.option("--split", default="contiguous", show_default=True, metavar="RULE",
              help=f"How rows are dealt to workers: {RULES}.")  # fmt: skip
@click.option("--workers", type=click.IntRange(1, 64), default=2, show_default=True,
              help="Worker processes of scenarios that split the work.")  # fmt: skip
@click.option("--epochs", type=click.IntRange(min=1), default=5, show_default=True,
              help="Passes over the training rows.")  # fmt: skip
@click.option("--batch", type=click.IntRange(min=1), default=100, show_default=True,
              help="Rows per worker and step.")  # fmt: skip
@click.option("--optimizer", type=click.Choice(["adam", "sgd", "momentum"]), default="adam",
              show_default=True, help="momentum is SGD with momentum 0.9.")  # fmt: skip
@click.option(
    "--learning-rate", type=float, default=1e-3, show_default=True, help="Step size of the optimiser."
)
@click.option("--seed", type=click.IntRange(0, 2**31 - 1), default=0, show_default=True,
              help="Of the model's start, the order of rows, and splits that draw.")  # fmt: skip
@click.option("--store", default=None, metavar="FOLDER",
              help="Where batches are cached, for this run and later ones. [default: $FOURFOLD_STORE, else "
              "~/.cache/fourfold/store]")  # fmt: skip
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), default=None,
              help="Folder of the results; new or empty. [default: runs/TIME-ID]")  # fmt: skip
def run_command(
    scenarios: tuple[str, ...],
    out: Path | None,
    store: str | None,
    learning_rate: float,
    data: str,
    **numbers: Any,
) -> None:
    """Trains one model every way, merges what was trained apart, and writes a report.

    Every scenario runs in worker processes of its own on this machine. --out gets report.html, results.json,
    run.log and models/.

    \b
    Examples:
      fourfold run
      fourfold run --scenario sequential --scenario solo --split skew:90,10 --rows 4000
      fourfold run --data mnist --rows 50000 --epochs 2 --workers 4 --out runs/big
    """  # noqa: D301 - click takes the backslash-b itself as its mark
    chosen = list(dict.fromkeys(scenarios)) or list(plans.names())
    for name in chosen:
        plans.plan(name, numbers["workers"])
    if not 0 < learning_rate < float("inf"):
        raise InvalidInputError(f"--learning-rate must be a number above 0, got {learning_rate}")
    if data not in ("sample", "mnist"):
        data = str(Path(data).expanduser().absolute()) if data else data
    where = store or os.environ.get("FOURFOLD_STORE") or str(cache_folder() / "store")
    settings = {"data": data, "scenarios": chosen, "learning_rate": learning_rate, **numbers}
    folder = _make_folder(out)
    where = where if "://" in where else str(Path(where).expanduser().absolute())
    arguments = {**settings, "store": where}
    code = _follow(folder, {**arguments, "arguments": json.dumps(settings)})
    if code == 0:
        summary.show(folder)
        return
    if code == 1:
        click.echo(f"The run failed; the whole log is in {folder / 'run.log'}", err=True)
    sys.exit(code)


def _make_folder(out: Path | None) -> Path:
    if out is None:
        now = datetime.datetime.now().strftime("%Y%m%d-%H%M%S")
        out = Path("runs") / f"{now}-{secrets.token_hex(2)}"
    out = out.expanduser()
    try:
        out.mkdir(parents=True, exist_ok=True)
        if any(out.iterdir()):
            raise InvalidInputError(f"--out {out} is not empty: name a new folder, or delete this one first")
        (out / "run.log").touch()
    except OSError as error:
        raise FourfoldError(
            f"cannot write into --out {out}: {error.strerror or error}; name another folder"
        ) from error
    return out


def _follow(folder: Path, arguments: dict[str, Any]) -> int:
    """Runs the pipeline in a process group of its own and shows its progress; Ctrl-C and SIGTERM end it."""
    told = folder / "events.jsonl"
    told.touch()
    command = [sys.executable, "-m", "fourfold_pipelines.local", "--out", str(folder.absolute())]
    command += ["--arguments", json.dumps(arguments)]
    environment = {
        **os.environ,
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
            why_is_told = live.follow(told, process)
            code = process.wait()
            if code and not why_is_told:
                click.echo(
                    f"The run ended: {exits.describe(code)}; its last lines:\n{_tail(folder)}", err=True
                )
            return 1 if code else 0
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
    """Ends what is left of the run's process group: asks, waits, then kills."""
    for number, seconds in ((signal.SIGTERM, 3.0), (signal.SIGKILL, 5.0)):
        try:
            os.killpg(process.pid, number)
        except (ProcessLookupError, PermissionError):
            break
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            continue
    process.wait()
