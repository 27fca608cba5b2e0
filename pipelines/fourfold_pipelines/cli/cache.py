"""``fourfold cache``: what lies in a store's batch cache, whether it is whole, and what may go."""

import contextlib
import dataclasses
import itertools
import json
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from fourfold.cache import budgets, housekeeping
from fourfold.cache.budgets import bytes_of, in_words
from fourfold.cache.disk import DiskTier
from fourfold.cache.housekeeping import Entry, Rule
from fourfold.contract.caching import Caching
from fourfold.contract.datasets import DatasetManifest
from fourfold.contract.errors import DamagedObjectError, FourfoldError, InvalidInputError
from fourfold.store.objects import Store, open_store
from fourfold_pipelines.cli import options
from fourfold_pipelines.cli.measure import measure_command
from fourfold_pipelines.cli.place import PLACES, place

UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 24 * 3600.0, "w": 7 * 24 * 3600.0}
SHORT = 12
"""Digits of a fingerprint that a table shows."""
PLAIN_SECONDS = 5.0
"""Between two lines that say how far something is, where there is no terminal for a bar."""

STORE = (
    click.option("--store", default=None, metavar="URI",
                 help="A folder or s3://bucket/prefix. [default: $FOURFOLD_STORE, else what the cluster's "
                 "manifests say, with --on here ~/.cache/fourfold/store]"),
    click.option("--on", type=click.Choice(PLACES), default="here", show_default=True,
                 help="Whose store: this machine's, or that of the cluster of the kubeconfig."),
    click.option("--namespace", default=None, metavar="NAME",
                 help=f"Where the manifests were applied. [default: {options.NAMESPACE}]"),
)  # fmt: skip


@click.group("cache")
def cache_command() -> None:
    """Looks after ready batches: lists, verifies, prunes and measures them.

    Data sets lie in a store under a fingerprint of all that their content depends on. The disk tier, cached
    batches of stores over the network, lies in $FOURFOLD_CACHE or ~/.cache/fourfold/batches.

    \b
    Examples:
      fourfold cache list
      fourfold cache verify 3f09
      fourfold cache prune --unused-for 30d --max-size 5Gi
      fourfold cache list --on cluster
    """  # noqa: D301 - click takes the backslash-b itself as its mark


cache_command.add_command(measure_command)


@cache_command.command("list")
@options.with_options(STORE)
@click.option("--json", "as_json", is_flag=True, help="For programs.")
def list_command(store: str | None, on: str, namespace: str | None, as_json: bool) -> None:
    """Lists the data sets of a store, the one used last first.

    \b
    Examples:
      fourfold cache list
      fourfold cache list --store s3://fourfold --json
    """  # noqa: D301 - click takes the backslash-b itself as its mark
    with _opened(store, on, namespace) as target:
        entries, disk = housekeeping.listed(target, time.time()), _disk()
        if as_json:
            click.echo(json.dumps({"store": target.uri, "datasets": [_plain(each) for each in entries],
                                   "disk": _on_disk(disk)}, indent=1, allow_nan=False))  # fmt: skip
            return
        console = Console(width=None if Console().is_terminal else 140)
        if not entries:
            click.echo(f"{target.uri} holds no data sets yet; `fourfold run` makes one")
        else:
            console.print(_table(target.uri, entries, time.time()))
        for fingerprint, (size, used) in (disk.datasets() if disk else {}).items():
            click.echo(f"on disk: {fingerprint[:SHORT]} {in_words(size)}, used {_ago(used, time.time())}")


@cache_command.command("verify")
@click.argument("fingerprints", nargs=-1, metavar="[FINGERPRINT]...")
@options.with_options(STORE)
def verify_command(fingerprints: tuple[str, ...], store: str | None, on: str, namespace: str | None) -> None:
    """Reads every cached batch, all data sets or those named, and says what is missing or damaged.

    The beginning of a fingerprint is enough where no other begins so. Ends with an error if something is
    wrong.

    \b
    Examples:
      fourfold cache verify
      fourfold cache verify 3f09 --store s3://fourfold
    """  # noqa: D301 - click takes the backslash-b itself as its mark
    with _opened(store, on, namespace) as target:
        entries = _named(housekeeping.listed(target, time.time()), fingerprints, target.uri)
        wrong = 0
        with _progress() as begin:
            for each in entries:
                faults = [each.wrong] if each.manifest is None else []
                if each.manifest is not None:
                    faults = _verified(target, each.manifest, begin(f"verify {each.fingerprint[:SHORT]}"))
                for fault in faults:
                    click.echo(f"{each.fingerprint[:SHORT]}: {fault}")
                wrong += bool(faults)
        whole = len(entries) - wrong
        click.echo(f"{whole} data set{'' if whole == 1 else 's'} whole, {wrong} not, in {target.uri}")
        if wrong:
            raise DamagedObjectError(
                f"{wrong} data set{' is' if wrong == 1 else 's are'} not whole: the next run that needs "
                f"{'it writes it' if wrong == 1 else 'them writes them'} anew, or take "
                f"{'it' if wrong == 1 else 'them'} away by `fourfold cache prune`"
            )


@cache_command.command("prune")
@options.with_options(STORE)
@click.option(
    "--older-than", default="", metavar="AGE", help="Written longer ago than this, such as 12h or 30d."
)
@click.option("--unused-for", default="", metavar="AGE", help="Not read, nor prepared, for longer than this.")
@click.option("--max-size", default="", metavar="BYTES",
              help="The least recently used go until the rest is no larger, such as 5Gi.")  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Says what would go, and deletes nothing.")
def prune_command(
    store: str | None,
    on: str,
    namespace: str | None,
    older_than: str,
    unused_for: str,
    max_size: str,
    dry_run: bool,
) -> None:
    """Deletes data sets by age, by time since they were used, by size; never one that a run reads.

    What is left of data sets that were never finished goes as well, after a day. The same rules hold for the
    disk tier of this machine.

    \b
    Examples:
      fourfold cache prune --unused-for 30d
      fourfold cache prune --max-size 5Gi --dry-run
    """  # noqa: D301 - click takes the backslash-b itself as its mark
    if not (older_than or unused_for or max_size):
        raise InvalidInputError("say what may go: --older-than 30d, --unused-for 7d or --max-size 5Gi")
    rule = Rule(
        _seconds("--older-than", older_than),
        _seconds("--unused-for", unused_for),
        bytes_of(max_size) if max_size else None,
    )
    with _opened(store, on, namespace) as target:
        now = time.time()
        go, stay = housekeeping.chosen(housekeeping.listed(target, now), rule, now)
        for each, why in stay:
            click.echo(f"{each.fingerprint[:SHORT]} stays: {why}")
        freed = 0
        with _progress() as begin:
            for each in go:
                name = each.fingerprint[:SHORT]
                if dry_run:
                    click.echo(f"{name} would go: {in_words(each.bytes)}, used {_ago(each.used, now)}")
                    continue
                readers = housekeeping.delete(target, each.fingerprint, time.time, begin(f"prune {name}"))
                if readers:
                    click.echo(f"{name} stays: {readers[0].who} came first")
                else:
                    click.echo(f"{name} is gone: {in_words(each.bytes)}, used {_ago(each.used, now)}")
                    freed += each.bytes
        freed_here = _prune_disk(rule, now, dry_run)
        if dry_run:
            freed = sum(each.bytes for each in go)
        click.echo(
            f"{in_words(freed)} {'would be free' if dry_run else 'freed'} in {target.uri}, "
            f"{in_words(freed_here)} in the disk tier here"
        )


def _verified(target: Store, manifest: DatasetManifest, told: "Told") -> list[str]:
    """What is wrong with a data set, in sentences."""
    done = itertools.count(1)
    return list(housekeeping.verify(target, manifest, lambda: told(next(done), manifest.batches)))


def _prune_disk(rule: Rule, now: float, dry_run: bool) -> int:
    """Prunes the disk tier by the time since it was used, and by size.

    Returns:
        The bytes that were freed; in a dry run those that would be if nobody reads them here.
    """
    disk, freed = _disk(), 0
    found = sorted((disk.datasets() if disk else {}).items(), key=lambda item: item[1][1])
    total = sum(size for _, (size, _) in found)
    limit = min((each for each in (rule.unused_for, rule.older_than) if each is not None), default=None)
    for fingerprint, (size, used) in found:
        is_old = limit is not None and now - used > limit
        is_too_much = rule.max_bytes is not None and total > rule.max_bytes
        if disk and (is_old or is_too_much) and (dry_run or disk.delete(fingerprint)):
            freed, total = freed + size, total - size
            says = "would go" if dry_run else "is gone"
            click.echo(f"on disk: {fingerprint[:SHORT]} {says}: {in_words(size)}, used {_ago(used, now)}")
    return freed


@contextlib.contextmanager
def _opened(store: str | None, on: str, namespace: str | None) -> Iterator[Store]:
    with place(on, store, namespace, "{}") as where:
        yield open_store(where.store)


def _disk() -> DiskTier | None:
    """The disk tier of this machine, if there is one."""
    may = budgets.budgets(Caching(), "s3:")
    if not may.folder or not Path(may.folder).is_dir():
        return None
    try:
        return DiskTier(may.folder, may.disk)
    except OSError as error:
        raise FourfoldError(
            f"the disk tier {may.folder} cannot be read: {error.strerror or error}"
        ) from error


def _named(entries: list[Entry], fingerprints: tuple[str, ...], uri: str) -> list[Entry]:
    """The data sets that are meant; all where none is named.

    Raises:
        InvalidInputError: none, or several, begin so.
    """
    found = []
    for name in fingerprints:
        meant = [each for each in entries if each.fingerprint.startswith(name)]
        if len(meant) != 1:
            which = "several data sets begin" if meant else "no data set begins"
            there = ", ".join(each.fingerprint[:SHORT] for each in meant or entries) or "none"
            raise InvalidInputError(
                f"{which} with {name!r} in {uri}; there {'are' if meant else 'is'}: {there}"
            )
        found += meant
    return found or entries


def _seconds(option: str, text: str) -> float | None:
    """Reads an age; None where none is said.

    Raises:
        InvalidInputError: it is none.
    """
    if not text:
        return None
    found = re.fullmatch(r"(\d{1,6}(?:\.\d{1,3})?)([smhdw])", text.strip())
    if not found:
        raise InvalidInputError(f"{option} {text!r} is no age: give one such as 90m, 12h, 30d or 4w")
    return float(found[1]) * UNITS[found[2]]


def _table(uri: str, entries: list[Entry], now: float) -> Table:
    table = Table(title=f"Data sets in {uri}", title_justify="left", box=None, pad_edge=False)
    for name in (
        "fingerprint",
        "source",
        "dtype",
        "rows",
        "batches",
        "size",
        "written",
        "used",
        "read now by",
    ):
        table.add_column(name, justify="right" if name in ("rows", "batches", "size") else "left")
    for each in entries:
        made = each.manifest
        readers = ", ".join(lease.who for lease in each.readers)
        if made is None:
            table.add_row(
                each.fingerprint[:SHORT], each.wrong, "", "", "", "", "", _ago(each.used, now), readers
            )
            continue
        table.add_row(
            each.fingerprint[:SHORT],
            made.source,
            made.dtype,
            " + ".join(f"{made.rows(part):,}" for part in made.parts),
            f"{made.batches:,}",
            in_words(made.bytes),
            _ago(made.created, now),
            _ago(each.used, now),
            readers,
        )
    return table


def _plain(each: Entry) -> dict[str, Any]:
    made = each.manifest
    return {
        "fingerprint": each.fingerprint,
        "wrong": each.wrong,
        "source": made.source if made else None,
        "dtype": made.dtype if made else None,
        "rows": {part: made.rows(part) for part in made.parts} if made else None,
        "batches": made.batches if made else None,
        "bytes": each.bytes,
        "created": each.created,
        "used": each.used,
        "readers": [dataclasses.asdict(lease) for lease in each.readers],
    }


def _on_disk(disk: DiskTier | None) -> list[dict[str, Any]]:
    found = disk.datasets() if disk else {}
    return [{"fingerprint": name, "bytes": size, "used": used} for name, (size, used) in found.items()]


def _ago(at: float, now: float) -> str:
    """How long ago something was, for people."""
    if not at:
        return "nobody knows when"
    for unit, name in (("d", "day"), ("h", "hour"), ("m", "minute")):
        count = int((now - at) // UNITS[unit])
        if count >= 1:
            return f"{count} {name}{'' if count == 1 else 's'} ago"
    return "just now"


Told = Callable[[int, int], None]
"""Is told how many of how many are done."""


@contextlib.contextmanager
def _progress() -> Iterator[Callable[[str], Told]]:
    """Bars where there is a terminal, else a line now and then; gives what begins one."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as progress:

        def begin(what: str) -> Told:
            if progress.disable:
                return _lines(what)
            task = progress.add_task(what, total=None)
            return lambda done, total: progress.update(task, completed=done, total=total)

        yield begin


def _lines(what: str) -> Told:
    """Tells by lines, one every few seconds."""
    last = time.monotonic()

    def told(done: int, total: int) -> None:
        nonlocal last
        if time.monotonic() - last >= PLAIN_SECONDS:
            last = time.monotonic()
            click.echo(f"{what}: {done:,} of {total:,}", err=True)

    return told
