"""``fourfold show``: fetches a run from a store, and opens its report."""

import contextlib
import os
import webbrowser
from pathlib import Path

import click

from fourfold.contract import keys
from fourfold.contract.errors import FourfoldError, InvalidInputError
from fourfold.store.objects import Store, open_store
from fourfold_pipelines.cli import options, summary
from fourfold_pipelines.cli.place import reached


@click.command("show")
@click.argument("run", metavar="URI")
@click.option("--to", type=click.Path(file_okay=False, path_type=Path), default=None,
              help="Folder that the run is fetched into. [default: runs/NAME]")  # fmt: skip
@click.option("--open/--no-open", "opens", default=True, show_default=True,
              help="Open the report in a browser.")  # fmt: skip
@click.option("--namespace", default=options.NAMESPACE, show_default=True, metavar="NAME",
              help="Of the cluster whose store it is, where AWS_ENDPOINT_URL_S3 names none.")  # fmt: skip
def show_command(run: str, to: Path | None, opens: bool, namespace: str) -> None:
    """Shows a run: its numbers here, its report in a browser.

    URI is a run's folder, or its place in a store. A store inside the cluster of the kubeconfig is reached
    through a port that is forwarded meanwhile. Given the folder above runs, lists them.

    \b
    Examples:
      fourfold show s3://fourfold/runs/fourfold-experiment-x7k2p
      fourfold show s3://fourfold/runs
    """  # noqa: D301 - click takes the backslash-b itself as its mark
    with _way(run, namespace):
        store = open_store(run)
        if not store.exists(keys.RESULTS):
            raise _not_a_run(run, store)
        folder = Path(run) if "://" not in run else _fetch(store, run, to)
    summary.show(folder)
    if opens:
        webbrowser.open((folder / "report.html").absolute().as_uri())


@contextlib.contextmanager
def _way(run: str, namespace: str):
    known = {"AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ACCESS_KEY_ID"} & set(os.environ)
    if "://" not in run or run.lower().startswith("file:") or known:
        yield
        return
    with reached(namespace):
        yield


def _fetch(store: Store, run: str, to: Path | None) -> Path:
    folder = to or Path("runs") / run.rstrip("/").rpartition("/")[2]
    try:
        for key in store.list(""):
            path = folder / key
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(store.read(key))
    except OSError as error:
        raise FourfoldError(
            f"cannot write into {folder}: {error.strerror or error}; name another --to"
        ) from error
    return folder


def _not_a_run(run: str, store: Store) -> FourfoldError:
    found = store.list("")
    runs = sorted(key.removesuffix(f"/{keys.RESULTS}") for key in found if key.endswith(f"/{keys.RESULTS}"))
    if runs:
        listed = "".join(f"\n  {run.rstrip('/')}/{name}" for name in runs)
        return InvalidInputError(f"{run} is no run; below it are these:{listed}")
    if "run.log" in found:
        lines = store.read("run.log").decode("utf-8", "replace").rstrip().splitlines()[-8:]
        tail = "".join(f"\n  | {line}" for line in lines)
        return FourfoldError(f"the run {run} did not end well; the last lines of its log:{tail}")
    return InvalidInputError(f"there is no run at {run}: a run's place holds a {keys.RESULTS}")
