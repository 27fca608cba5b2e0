"""The table at the end of a run."""

import json
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from fourfold.page.numbers import nats, percent


def show(folder: Path, stored: str | None = None) -> None:
    """Prints a run's results, and where its report is.

    Args:
        folder: the run's folder.
        stored: URI of the place in a store that the results went to, if they did.
    """
    results = json.loads((folder / "results.json").read_text(encoding="utf-8"))
    console = Console(width=None if Console().is_terminal else 110)
    console.print(_scenarios(results["scenarios"]))
    if results["merge"]:
        console.print(_merges(results))
    if stored:
        click.echo(f"results  {stored}")
        click.echo(f"to look at them: fourfold show {stored}")
        return
    click.echo(f"report   {folder / 'report.html'}")
    click.echo(f"results  {folder / 'results.json'}")
    click.echo(f"models   {folder / 'models'}")


def _scenarios(scenarios: dict[str, Any]) -> Table:
    table = Table(title="Test rows, the same for all", title_justify="left", box=None, pad_edge=False)
    table.add_column("scenario", no_wrap=True)
    for name in (
        "accuracy",
        "loss",
        "workers",
        "models",
        "global\nbatch",
        "updates\n/epoch",
        "training\nseconds",
    ):
        table.add_column(name, justify="right")
    for name, scenario in scenarios.items():
        table.add_row(
            name,
            percent(scenario["accuracy"]),
            nats(scenario["loss"]),
            str(scenario["workers"]),
            str(len(scenario["models"])),
            str(scenario["global_batch"]),
            str(scenario["updates_per_epoch"]),
            f"{sum(epoch['seconds'] for epoch in scenario['epochs']):.2f}",
        )
    return table


def _merges(results: dict[str, Any]) -> Table:
    table = Table(title="\nThe solo models merged", title_justify="left", box=None, pad_edge=False)
    table.add_column("rule", no_wrap=True)
    table.add_column("accuracy", justify="right")
    table.add_column("loss", justify="right")
    for rule, score in results["merge"].items():
        table.add_row(rule, percent(score["accuracy"]), nats(score["loss"]))
    names = {
        "best_solo": "best solo",
        "ensemble": "soft vote of the solos",
        "all_data": "one model on all rows",
    }
    for key, name in names.items():
        score = results["references"][key]
        if score:
            table.add_row(f"({name})", percent(score["accuracy"]), nats(score["loss"]))
    return table
