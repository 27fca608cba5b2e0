"""Fills the page's template with a run's results."""

from typing import Any

from fourfold.contract import plan as plans
from fourfold.page import document, lanes, merge_pictures, pictures, training_pictures
from fourfold.report.results import REFERENCES, SOURCES


def render(results: dict[str, Any]) -> str:
    """The page, one HTML document that needs nothing else.

    Args:
        results: as in ``results.json``.
    """
    scenarios = results["scenarios"]
    rows = [_row(name, scenario) for name, scenario in scenarios.items()]
    return document.render(
        "fourfold.report",
        "report.html",
        results=results,
        rows=rows,
        grid=_grid(scenarios),
        curves=pictures.curves(scenarios) if scenarios else "",
        bars=pictures.accuracies(_bars(results)) if scenarios else "",
        classes=pictures.classes(results["data"]["classes_a_worker"], results["data"]["class_names"]),
        merges=_merges(results),
        lines=merge_pictures.lines(results["merge_lines"]) if results["merge_lines"] else "",
        plane=merge_pictures.plane(results["merge_slice"]) if results["merge_slice"] else "",
        inputs=training_pictures.inputs(scenarios) if any(s["inputs"] for s in scenarios.values()) else "",
    )


def _row(name: str, scenario: dict[str, Any]) -> dict[str, Any]:
    seconds = sum(epoch["seconds"] for epoch in scenario["epochs"])
    rows = sum(epoch["rows"] for epoch in scenario["epochs"])
    return {
        "name": name,
        "scenario": plans.scenario(name),
        "facts": _facts(plans.scenario(name), scenario),
        "seconds": seconds,
        "rate": rows / seconds if seconds else 0.0,
        "pictures": _pictures(name, scenario),
        "overlap_said": lanes.sentence(lanes.overlap(_spans(scenario))),
        "memory": max(scenario["peak_memory"], default=0),
        "read": _read(scenario, seconds),
        **{key: value for key, value in scenario.items() if key != "epochs"},
    }


def _read(scenario: dict[str, Any], seconds: float) -> dict[str, float]:
    """Where the rows of all epochs came from, and how long steps waited for them."""
    inputs = scenario["inputs"]
    total = {name: sum(each[name] for each in inputs) for name in (*SOURCES, "fetched", "waited")}
    rows = sum(total[name] for name in SOURCES) or 1
    return {
        # By arithmetic: in the first epoch all rows were fetched.
        "without": sum(inputs[0]["waited"] for _ in inputs),
        **{name: total[name] / rows for name in SOURCES},
        "fetched": total["fetched"],
        "waited": total["waited"],
        "share": min(1.0, total["waited"] / seconds) if seconds else 0.0,
    }


def _spans(scenario: dict[str, Any]) -> list[lanes.Span]:
    return [(busy["stage"], busy["begin"], busy["end"]) for busy in scenario["busy"]]


def _pictures(name: str, scenario: dict[str, Any]) -> dict[str, str]:
    """The pictures of what went on inside one training; each empty where there is nothing to draw."""
    apart, rounds, spans = scenario["distances"], scenario["rounds"], _spans(scenario)
    draw = training_pictures
    return {
        "distances": draw.distances(name, apart["steps"], apart["pairs"], apart["values"]) if apart else "",
        "rounds": draw.rounds(name, [r["loss"] for r in rounds], [r["distance"] for r in rounds])
        if rounds
        else "",
        "lanes": draw.lanes(name, spans) if spans else "",
    }


def _facts(row: plans.Scenario, scenario: dict[str, Any]) -> list[str]:
    """What there is to say of a scenario, in sentences."""
    facts = [row.meaning]
    if len(scenario["models"]) > 1:
        whose = "those of its models' vote" if row.votes else "the mean of its models"
        facts.append(f"Accuracy and loss are {whose}.")
    if scenario["stages"] > 1:
        after = f" after {', '.join(scenario['cut'])}" if scenario["cut"] else ""
        facts.append(
            f"Cut into {scenario['stages']} stages{after}; each batch in {scenario['micro_batches']} parts."
        )
    if scenario["distance"] is not None:
        facts.append(_distance(scenario["distance"], scenario["drift"]))
    if scenario["merge_share"] is not None:
        facts.append(f"Merging took {100 * scenario['merge_share']:.0f} % of a step.")
    if scenario["resumed"]:
        facts.append(f"It went on from its checkpoint of epoch {', '.join(map(str, scenario['resumed']))}.")
    return facts


def _distance(distance: float, drift: float | None) -> str:
    """How far apart equal copies were, in a sentence."""
    apart = f"{distance:.3g}, and should be 0" if distance else "0 exactly"
    before = "" if drift is None else f"; before, it was {drift:.3g} at most"
    return (
        "The distance between its workers' weights after each step, once worker 0's were copied to all, "
        f"was {apart}{before}."
    )


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
    rows = [
        {
            "name": rule.replace(",", ", "),
            "kind": "merge",
            "told": results["merge_rules"].get(rule),
            "handed_on": bool(results["gate"]) and results["gate"]["rule"] == rule,
            **score,
        }
        for rule, score in results["merge"].items()
    ]
    for key, name in REFERENCES.items():
        if results["references"][key]:
            nothing = {"told": None, "handed_on": False}
            rows.append({"name": name, "kind": "reference", **nothing, **results["references"][key]})
    return rows
