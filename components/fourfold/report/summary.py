"""The comparison as a table in Markdown, for pages that show Markdown."""

from typing import Any

from fourfold.page.numbers import nats, percent
from fourfold.report.results import REFERENCES


def write(results: dict[str, Any]) -> str:
    """The summary of a run.

    Args:
        results: as in ``results.json``.
    """
    data, manifest = results["data"], results["manifest"]
    lines = [
        f"# Every way to split: {_plain(data['source'])}",
        "",
        f"{data['rows']['train']:,} training rows, {data['rows']['test']:,} test rows, split "
        f"`{_plain(data['split'])}` into {' / '.join(f'{rows:,}' for rows in data['rows_a_worker'])}.",
        "",
        "| scenario | test accuracy | test loss | workers | stages | global batch | updates an epoch "
        "| training | sent per step |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for name, scenario in results["scenarios"].items():
        seconds = sum(epoch["seconds"] for epoch in scenario["epochs"])
        lines.append(
            f"| {name} | {percent(scenario['accuracy'])} | {nats(scenario['loss'])} "
            f"| {scenario['workers']} | {scenario['stages']} | {scenario['global_batch']:,} "
            f"| {scenario['updates_per_epoch']:,} | {seconds:.1f} s "
            f"| {scenario['bytes_per_step'] / 1000:,.1f} kB |"
        )
    if results["merge"]:
        lines += [
            "",
            "Merging what was trained apart:",
            "",
            "| | test accuracy | test loss |",
            "| --- | ---: | ---: |",
        ]
        for rule, score in results["merge"].items():
            lines.append(f"| {rule} | {percent(score['accuracy'])} | {nats(score['loss'])} |")
        for key, name in REFERENCES.items():
            score = results["references"][key]
            if score:
                lines.append(f"| *{name}* | {percent(score['accuracy'])} | {nats(score['loss'])} |")
    said = [*data["said"], *(s for each in results["scenarios"].values() for s in each["said"])]
    said += results["merge_said"]
    lines += ["", *(f"- {_plain(sentence)}" for sentence in dict.fromkeys(said))] if said else []
    lines += ["", f"Data set `{manifest['data_fingerprint'][:12]}`, seed {manifest['seed']}."]
    return "\n".join(lines) + "\n"


def _plain(text: str) -> str:
    """A text that means nothing to Markdown or HTML beyond its characters.

    By backslashes, and by named entities alone: Kubeflow's page does not know those that are numbers.
    """
    named = {"<": "&lt;", ">": "&gt;", "&": "&amp;"}
    return "".join(named.get(c) or (f"\\{c}" if c in "|*_`[]\\#!" else c) for c in " ".join(text.split()))
