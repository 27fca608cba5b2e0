"""Fills the page's template with a run's results."""

from typing import Any

from fourfold.contract import plan as plans
from fourfold.page import document, pictures
from fourfold.report.results import REFERENCES


def render(results: dict[str, Any]) -> str:
    """The page, one HTML document that needs nothing else.

    Args:
        results: as in ``results.json``.
    """
    scenarios = results["scenarios"]
    return document.render(
        "fourfold.report",
        "report.html",
        results=results,
        rows=[_row(name, scenario) for name, scenario in scenarios.items()],
        grid=_grid(scenarios),
        curves=pictures.curves(scenarios) if scenarios else "",
        bars=pictures.accuracies(_bars(results)) if scenarios else "",
        classes=pictures.classes(results["data"]["classes_a_worker"], results["data"]["class_names"]),
        merges=_merges(results),
    )


def _row(name: str, scenario: dict[str, Any]) -> dict[str, Any]:
    seconds = sum(epoch["seconds"] for epoch in scenario["epochs"])
    rows = sum(epoch["rows"] for epoch in scenario["epochs"])
    return {
        "name": name,
        "meaning": plans.scenario(name).meaning,
        "seconds": seconds,
        "rate": rows / seconds if seconds else 0.0,
        **{key: value for key, value in scenario.items() if key != "epochs"},
    }


def _grid(scenarios: dict[str, Any]) -> list[dict[str, Any]]:
    """The four corners: data split or not, model split or not, with the scenarios that belong there."""
    corners = []
    for splits_model in (False, True):
        for splits_data in (False, True):
            inside = [
                {"name": name, "accuracy": scenario["accuracy"], "workers": scenario["workers"]}
                for name, scenario in scenarios.items()
                if plans.scenario(name).splits_data == splits_data
                and plans.scenario(name).splits_model == splits_model
            ]
            corners.append({"splits_data": splits_data, "splits_model": splits_model, "scenarios": inside})
    return corners


def _bars(results: dict[str, Any]) -> list[tuple[str, float, str]]:
    bars = []
    for name, scenario in results["scenarios"].items():
        several = len(scenario["models"]) > 1
        for index, model in enumerate(scenario["models"]):
            bars.append((f"{name} {index}" if several else name, model["accuracy"], "a trained model"))
        if scenario["vote"]:
            bars.append((f"vote of {name}", scenario["vote"]["accuracy"], "a vote"))
    return bars + [(rule, score["accuracy"], "a merge") for rule, score in results["merge"].items()]


def _merges(results: dict[str, Any]) -> list[dict[str, Any]]:
    """The merging rules beside what they are held against."""
    rows = [{"name": rule, "kind": "merge", **score} for rule, score in results["merge"].items()]
    for key, name in REFERENCES.items():
        if results["references"][key]:
            rows.append({"name": name, "kind": "reference", **results["references"][key]})
    return rows
