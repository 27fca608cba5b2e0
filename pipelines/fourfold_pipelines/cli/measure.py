"""``fourfold cache measure``: what the cache saves, by the clock, as a table and a picture."""

import contextlib
import dataclasses
import sys
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from fourfold.cache import budgets, measure
from fourfold.cache.measure import Measured
from fourfold.contract.caching import DTYPES, Caching, check
from fourfold.prepare.step import prepare
from fourfold.store.folder import write_file
from fourfold.store.objects import open_store
from fourfold_pipelines.cli.place import place


@click.command("measure")
@click.option("--store", "stores", multiple=True, metavar="URI",
              help="Where the data is prepared and read from: a folder or s3://bucket/prefix. Repeatable. "
              "[default: $FOURFOLD_STORE, else ~/.cache/fourfold/store]")  # fmt: skip
@click.option("--data", default="sample", show_default=True, metavar="SOURCE", help="As for `fourfold run`.")
@click.option("--rows", type=click.IntRange(min=1), default=8000, show_default=True, help="Training rows.")
@click.option(
    "--holdout", type=click.IntRange(min=1), default=1000, show_default=True, help="Rows after those."
)
@click.option("--batch", type=click.IntRange(min=1), default=128, show_default=True, help="Rows of a batch.")
@click.option(
    "--epochs", type=click.IntRange(min=1), default=10, show_default=True, help="Passes over the rows."
)
@click.option("--cached-batch", type=click.IntRange(min=1), default=100, show_default=True, metavar="ROWS",
              help="Rows of one cached batch.")  # fmt: skip
@click.option("--order", default="rows", show_default=True, help="rows, batches, frozen or reverse.")
@click.option("--cache-dtype", type=click.Choice(DTYPES), default="float32", show_default=True,
              help="Of values in cached batches.")  # fmt: skip
@click.option(
    "--ram", default="", metavar="BYTES", help="As for `fourfold run`: with little, disk takes its place."
)
@click.option("--out", default="cache.html", show_default=True, metavar="FILE", help="The page.")
def measure_command(
    stores: tuple[str, ...],
    data: str,
    rows: int,
    holdout: int,
    batch: int,
    epochs: int,
    cached_batch: int,
    order: str,
    cache_dtype: str,
    ram: str,
    out: str,
) -> None:
    """Reads data for some epochs with the cache and without, and shows what that takes. Nothing is trained.

    Without the cache means that each epoch reads every cached batch from the store anew, verifies it and
    makes it ready. Measured is the reading alone, in batches, as training takes them.

    \b
    Examples:
      fourfold cache measure
      fourfold cache measure --data mnist --rows 59000 --store here --store s3://fourfold
    """  # noqa: D301 - click takes the backslash-b itself as its mark
    caching = Caching(
        dtype=cache_dtype, batch_rows=cached_batch, order=order, ram=budgets.bytes_of(ram) if ram else 0
    )
    check(caching)
    found = []
    for named in stores or (None,):
        with place("here", named, None, "{}") as where:
            found.append(_measured(where.store, data, (rows, holdout), batch, epochs, caching))
    Console(width=None if Console().is_terminal else 120).print(_table(found))
    for each in found:
        click.echo(_predicted(each))
    write_file(out, _page(found, caching).encode())
    click.echo(f"page     {Path(out).absolute()}")


def _measured(
    store: str, data: str, rows: tuple[int, int], batch: int, epochs: int, caching: Caching
) -> Measured:
    with contextlib.redirect_stdout(sys.stderr):
        made = prepare(store, data, *rows, caching=caching)
    target = open_store(store)
    with click.progressbar(length=2 * epochs, label=target.uri, file=sys.stderr) as bar:
        return measure.measure(
            target,
            made.manifest,
            # Of this measurement alone: what an earlier one left on disk would make the first epoch warm.
            dataclasses.replace(budgets.budgets(caching, target.uri), disk=0),
            batch,
            epochs,
            caching.order,
            progress=lambda done: bar.update(done - bar.pos),
        )


def _table(found: list[Measured]) -> Table:
    table = Table(title="Reading, nothing trained", title_justify="left", box=None, pad_edge=False)
    for name in (
        "store",
        "rows",
        "epochs",
        "first\nepoch (s)",
        "later\nepochs (s)",
        "without,\nepoch (s)",
        "ratio",
    ):
        table.add_column(name, justify="left" if name == "store" else "right")
    for each in found:
        count = len(each.with_cache)
        later = sum(each.with_cache[1:]) / (count - 1) if count > 1 else None
        table.add_row(
            each.store,
            f"{each.rows:,}",
            str(count),
            f"{each.with_cache[0]:.3f}",
            "" if later is None else f"{later:.3f}",
            f"{sum(each.without) / count:.3f}",
            f"{each.ratio:.1f}",
        )
    return table


def _predicted(each: Measured) -> str:
    """What the arithmetic makes of the measured times, in a sentence."""
    worth = each.predicted
    return (
        f"{each.store}: {worth.batches:,} batches at {1000 * each.miss:.2f} ms a miss and "
        f"{1000 * each.hit:.2f} ms a hit make {worth.without:.2f} s without and {worth.filling:.2f} + "
        f"{worth.hitting:.2f} = {worth.within:.2f} s with the cache over {len(each.with_cache)} epochs: "
        f"{worth.gain:.1f} times less; measured: {sum(each.without):.2f} and {sum(each.with_cache):.2f} s, "
        f"{each.ratio:.1f} times"
    )


def _page(found: list[Measured], caching: Caching) -> str:
    # The pictures' library is slow to import.
    from fourfold.page import document, training_pictures

    return document.render(
        "fourfold_pipelines",
        "cache.html",
        measured=found,
        sentences=[_predicted(each) for each in found],
        caching=caching,
        picture=training_pictures.reading({each.store: (each.with_cache, each.without) for each in found}),
    )
