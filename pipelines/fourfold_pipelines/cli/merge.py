"""``fourfold merge``: merges models that anybody trained apart, by any chain of rules."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fourfold.contract import merges
from fourfold.contract.errors import DivergedError, FourfoldError, InvalidInputError

if TYPE_CHECKING:
    import numpy as np

    from fourfold.rules.members import Member
    from fourfold.rules.state import Rows

FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
WITHOUT_ROWS = "weight_matching,plain_mean"


def _list_rules(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    if not wanted or ctx.resilient_parsing:
        return
    from rich.console import Console
    from rich.table import Table

    from fourfold.rules.table import NEEDS, TABLE, numbers_of

    console = Console(width=None if Console().is_terminal else 140)
    table = Table(box=None, pad_edge=False, show_header=True)
    for title in ("rule", "what it does", "exchanges", "needs", "numbers"):
        table.add_column(title, overflow="fold")
    for rule in TABLE:
        what = {"align": "aligns", "merge": "merges", "after": "mends after"}[rule.kind]
        numbers = ", ".join(f"{name}={value:g}" for name, value in numbers_of(rule).items())
        trains = ", trains" if rule.trains else ""
        table.add_row(rule.name, what + trains, rule.exchanges, NEEDS[rule.needs], numbers)
    console.print(table)
    ctx.exit()


@click.command("merge")
@click.argument("models", nargs=-1, required=True, type=FILE, metavar="A.keras B.keras...")
@click.option("--rule", default=None, metavar="CHAIN",
              help="Rules, one after another, joined by commas; a rule's numbers follow it, as in "
              "regmean:alpha=0.9. [default: weight_matching,sequential_regmean with --own, else "
              "weight_matching,plain_mean]")  # fmt: skip
@click.option("-o", "--out", required=True, type=click.Path(dir_okay=False, path_type=Path),
              metavar="OUT.keras", help="Where the merged model goes.")  # fmt: skip
@click.option(
    "--rows",
    multiple=True,
    type=int,
    metavar="N",
    help="Rows that each model was trained on, in their order. [default: those of --own, else 1]",
)
@click.option("--own", multiple=True, type=FILE, metavar="FILE.npz",
              help="Rows that each model was trained on, in their order: arrays x, and y where a rule needs "
              "labels. Rules see sums of them only.")  # fmt: skip
@click.option("--calibration", type=FILE, default=None, metavar="FILE.npz",
              help="Pooled rows with labels, for rules that need them.")  # fmt: skip
@click.option("--holdout", type=FILE, default=None, metavar="FILE.npz",
              help="Rows with labels that nothing was trained on: all models are measured, and the merge is "
              "handed on only if it is not worse than the best of them.")  # fmt: skip
@click.option("--margin", type=float, default=merges.MARGIN, show_default=True,
              help="By how much the merge may be less accurate than the best model.")  # fmt: skip
@click.option("--start", type=FILE, default=None, metavar="START.keras",
              help="The model that all started from, for rules that need it.")  # fmt: skip
@click.option("--strict", is_flag=True, help="Refuse layers that a rule cannot treat, instead of averaging.")
@click.option("--values", is_flag=True, help="The models' outputs are values, not class scores.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Of what rules draw.")
@click.option("--list-rules", is_flag=True, is_eager=True, expose_value=False, callback=_list_rules,
              help="Show all rules, what they need and the numbers they take.")  # fmt: skip
def merge_command(
    models: tuple[Path, ...],
    rule: str | None,
    out: Path,
    rows: tuple[int, ...],
    own: tuple[Path, ...],
    calibration: Path | None,
    holdout: Path | None,
    margin: float,
    start: Path | None,
    strict: bool,
    values: bool,
    seed: int,
) -> None:
    """Merges Keras models that were trained apart into one.

    The models need one structure. OUT.keras is a plain Keras model; it is written whole or not at all.

    \b
    Examples:
      fourfold merge a.keras b.keras -o merged.keras
      fourfold merge a.keras b.keras --rule weighted_mean --rows 8000 --rows 2000 -o merged.keras
      fourfold merge a.keras b.keras --own a.npz --own b.npz --holdout h.npz -o merged.keras
      fourfold merge a.keras b.keras --own a.npz --own b.npz -o merged.keras \\
          --rule weight_matching,sequential_regmean,bn_recalibration
      fourfold merge --list-rules
    """  # noqa: D301 - click takes the backslash-b itself as its mark
    if len(models) < 2:
        raise InvalidInputError(f"merge takes at least two models, got {len(models)}")
    read = [*models, *own, *(path for path in (calibration, holdout, start) if path)]
    if out.exists() and any(out.samefile(path) for path in read):
        raise InvalidInputError(f"--out {out} is one of the files that are read: name another file")
    if out.suffix != ".keras":
        raise InvalidInputError(f"--out {out} must end in .keras, or Keras does not load it")
    if not 0 <= margin <= 1:
        raise InvalidInputError(f"--margin is a share of rows from 0 to 1, got {margin:g}")
    for name, given in (("--rows", rows), ("--own", own)):
        if given and len(given) != len(models):
            raise InvalidInputError(f"{name} was given {len(given)} times for {len(models)} models")
    chain = rule or (merges.CHOSEN if own else WITHOUT_ROWS)
    _merge(models, chain, out, rows, own, calibration, holdout, margin, start, strict, values, seed)


def _merge(
    paths: Sequence[Path],
    rule: str,
    out: Path,
    counts: Sequence[int],
    own: Sequence[Path],
    calibration: Path | None,
    holdout: Path | None,
    margin: float,
    start: Path | None,
    strict: bool,
    values: bool,
    seed: int,
) -> None:
    # Reading a chain of rules imports TensorFlow, which takes seconds: not before arguments are right.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
    import numpy as np

    from fourfold.model import scoring, weights
    from fourfold.model.pinned import keras
    from fourfold.rules import chain, members as match, models as of, state
    from fourfold.rules.sites import Site, Together

    links = chain.read(rule)
    models = [scoring.from_bytes(path.read_bytes(), str(path)) for path in paths]
    members: list[Member] = [
        of.of_model(str(path), model, counts[index] if counts else 1, index)
        for index, (path, model) in enumerate(zip(paths, models, strict=True))
    ]
    match.check(members)
    sites = [_taken(_rows(path, needs_labels=False), path, models[0]) for path in own]
    held_out = _taken(_rows(holdout), holdout, models[0]) if holdout else None
    scratch = keras.models.clone_model(models[0])
    ground = state.ground_of(
        scratch,
        sites[0].x if sites else None,
        chain.WIDEST,
        calibration=_taken(_rows(calibration), calibration, models[0]) if calibration else None,
        start=_weights(start, models[0]) if start else None,
        seed=seed,
        scores=not values,
        strict=strict,
    )
    asked = [
        Site(index, given.x, given.y if len(given.y) else None, scratch, ground.maps)
        for index, given in enumerate(sites)
    ]
    for index, (model, rows) in enumerate(zip(models, sites, strict=bool(sites))):
        members[index] = replace(
            members[index],
            rows=counts[index] if counts else len(rows.x),
            statistics=_gathered(links, asked, index, model, seed),
        )
    if asked:
        ground = replace(ground, sites=Together(asked))
    started = time.perf_counter()
    with np.errstate(over="ignore", invalid="ignore"):
        done = chain.apply(links, members, ground)
    if lost := [name for name, value in done.base.items() if not _is_finite(value)]:
        raise DivergedError(f"{rule} makes NaN or infinity of {lost[0]}: use smaller numbers or another rule")
    seconds = time.perf_counter() - started
    merged = scratch
    weights.assign(merged, done.base)
    for sentence in done.said:
        click.echo(sentence)
    if ground.sites:
        sent = ground.sites.sent / 1e6
        click.echo(f"The sites added up {ground.sites.exchanges} times, {sent:.1f} MB in all.")
    click.echo(f"{rule}: {len(models)} models merged in {seconds:.1f} s")
    if held_out:
        merged = _gated(rule, merged, models, paths, held_out, margin)
    _write(out, scoring.to_bytes(merged))
    click.echo(f"written: {out}")


def _gathered(links: Any, asked: Sequence[Any], index: int, model: Any, seed: int) -> dict[str, np.ndarray]:
    """What a rule of the chain needs that a site gathers after training."""
    if not any(link.rule.needs == "statistics" for link in links):
        return {}
    from fourfold.model import weights
    from fourfold.rules import statistics

    return statistics.gather(asked[index], weights.arrays(model), seed)


def _gated(
    rule: str, merged: Any, models: Sequence[Any], paths: Sequence[Path], rows: Rows, margin: float
) -> Any:
    """The model that is handed on, by rows that nothing has seen."""
    from fourfold.merge import ensemble, judge
    from fourfold.model import measures, scoring

    logits = [scoring.logits(model, rows.x) for model in models]
    solos = [measures.accuracy(each, rows.y) for each in logits]
    vote = measures.accuracy(measures.soft_vote(logits), rows.y)
    found = judge.gate(
        rule, measures.accuracy(scoring.logits(merged, rows.x), rows.y), solos, vote, margin, len(rows.y)
    )
    for path, accuracy in zip(paths, solos, strict=True):
        click.echo(f"  {accuracy:7.2%}  {path}")
    click.echo(f"  {vote:7.2%}  soft vote of them\n  {found.merged:7.2%}  merged by {rule}")
    click.echo(judge.said_of(found))
    if found.handed_on == judge.MERGE:
        return merged
    return ensemble.of(models) if found.handed_on == judge.VOTE else models[solos.index(max(solos))]


def _rows(path: Path, needs_labels: bool = True) -> Rows:
    """Rows from a file of arrays.

    Raises:
        InvalidInputError: it is no such file, has no array ``x`` (and ``y``), or their rows differ.
    """
    import numpy as np

    from fourfold.rules.state import Rows

    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
    except Exception as error:  # zipfile and NumPy raise many kinds on bytes that are no arrays.
        raise InvalidInputError(f"{path} cannot be read as .npz without pickles: {error}") from error
    wanted = ("x", "y") if needs_labels else ("x",)
    if lacks := [name for name in wanted if name not in arrays]:
        raise InvalidInputError(
            f"{path} has no array {' and '.join(lacks)}, only {', '.join(arrays) or 'none'}: save it with "
            f"numpy.savez({path.name!r}, x=rows, y=class_numbers)"
        )
    x, y = arrays["x"], arrays.get("y", np.zeros(0, np.int64))
    if not x.ndim or x.dtype.kind not in "fiub":
        raise InvalidInputError(f"{path}: x must hold rows of real numbers, got {x.dtype} {list(x.shape)}")
    if "y" in arrays and (y.ndim != 1 or len(y) != len(x) or y.dtype.kind not in "iu"):
        raise InvalidInputError(
            f"{path}: y must hold a whole class number for each of the {len(x):,} rows of x, got {y.dtype} "
            f"{list(y.shape)}"
        )
    if not len(x):
        raise InvalidInputError(f"{path}: x has no rows")
    if not _is_finite(x):
        raise InvalidInputError(f"{path}: x holds NaN or infinity; leave those rows out")
    return Rows(x, y)


def _taken(rows: Rows, path: Path, model: Any) -> Rows:
    """The rows, if a model takes them.

    Raises:
        InvalidInputError: the model has other inputs, or not the classes of the labels.
    """
    if len(model.inputs) != 1 or len(model.outputs) != 1:
        raise InvalidInputError("rows are used with models of one input and one output only")
    wanted, found = model.inputs[0].shape[1:], rows.x.shape[1:]
    fits = len(wanted) == len(found) and all(a in (None, b) for a, b in zip(wanted, found, strict=True))
    if not fits:
        raise InvalidInputError(f"{path}: a row of x is {list(found)}, and the models take {list(wanted)}")
    classes = model.outputs[0].shape[-1]
    if len(rows.y) and not 0 <= rows.y.min() <= rows.y.max() < classes:
        raise InvalidInputError(
            f"{path}: y must hold class numbers from 0 to {classes - 1}, as the models have {classes} "
            f"outputs, got {rows.y.min()} to {rows.y.max()}"
        )
    return rows


def _is_finite(value: np.ndarray) -> bool:
    import numpy as np

    return not np.issubdtype(value.dtype, np.floating) or bool(np.isfinite(value).all())


def _weights(path: Path, like: Any) -> dict[str, np.ndarray]:
    import numpy as np

    from fourfold.model import scoring, weights

    model = scoring.from_bytes(path.read_bytes(), str(path))
    if weights.structure(model) != weights.structure(like):
        raise InvalidInputError(f"--start {path} has not the structure of the models")
    found = {name: np.array(value) for name, value in weights.arrays(model).items()}
    if lost := [name for name, value in found.items() if not _is_finite(value)]:
        raise InvalidInputError(f"--start {path}: {lost[0]} holds NaN or infinity")
    return found


def _write(out: Path, data: bytes) -> None:
    from fourfold.store.folder import write_file

    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        write_file(os.fspath(out), data)
    except OSError as error:
        raise FourfoldError(f"cannot write --out {out}: {error.strerror or error}") from error
