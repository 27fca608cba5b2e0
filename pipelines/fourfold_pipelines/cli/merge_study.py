"""``fourfold merge-study``: every merging rule on every split and start, kept cell by cell."""

import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import click

from fourfold.contract.errors import InvalidInputError
from fourfold.study import cells as of
from fourfold.study.cells import Study
from fourfold_pipelines.cli.place import place

VERBOSE = "FOURFOLD_VERBOSE"
"""Set to say what is being done within a cell."""


@click.command("merge-study")
@click.option("--quick", is_flag=True, help="Four cells on the sample, in a minute or two.")
@click.option("--data", default=None, metavar="DATA",
              help="The source, as for `fourfold run`. [default: mnist]")  # fmt: skip
@click.option("--only", multiple=True, metavar="TEXT",
              help="Only cells whose name has this, such as 'disjoint' or 'seed 0'. Repeatable: all must be "
              "in it.")  # fmt: skip
@click.option("--store", default=None, metavar="URI",
              help="Where rows, models and cells are kept. [default: $FOURFOLD_STORE, else "
              "~/.cache/fourfold/store]")  # fmt: skip
@click.option("--out", default="runs/merge-study", show_default=True, metavar="FOLDER",
              type=click.Path(file_okay=False, path_type=Path), help="Where the table goes.")  # fmt: skip
def merge_study_command(
    quick: bool, data: str | None, only: tuple[str, ...], store: str | None, out: Path
) -> None:
    """Merges by every rule on every split and start, and writes one table.

    Each cell (a split, a number of members, a start, a seed) is kept when it is done: a study that is ended
    and started again goes on after the last one. All of it takes hours on two cores.

    \b
    Examples:
      fourfold merge-study --quick
      fourfold merge-study --data mnist --only 'seed 0'
    """  # noqa: D301 - click takes the backslash-b itself as its mark
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
    # TensorFlow takes seconds to import: not for --help.
    from fourfold.study.kept import measured
    from fourfold.study.page import write

    study = of.QUICK if quick else Study()
    study = replace(study, data=data) if data else study
    wanted = [cell for cell in study.cells() if all(text in cell.name for text in only)]
    if not wanted:
        raise InvalidInputError(f"no cell has {' and '.join(map(repr, only))} in its name: leave --only out")
    with place("here", store, None, "{}") as where:
        at = where.store if "://" in where.store else str(Path(where.store).expanduser().absolute())
        results = []
        for number, cell in enumerate(wanted, start=1):
            begun = time.monotonic()
            result, was_there = measured(study, cell, at, _tell(cell.name))
            results.append(result)
            how = "kept" if was_there else f"{time.monotonic() - begun:.0f} s"
            click.echo(f"{number} of {len(wanted)}  {cell.name}  ({how})")
            write(out / "merge-study.html", out / "merge-study.json", study, results, len(study.cells()))
    click.echo(f"table   {out / 'merge-study.html'}\nnumbers {out / 'merge-study.json'}")


def _tell(name: str) -> Callable[[str], None]:
    """Says what is being done, where that is asked for."""
    return lambda text: click.echo(f"  {name}: {text}", err=True) if os.environ.get(VERBOSE) else None
