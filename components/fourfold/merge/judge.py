"""What is handed on, and why the plain mean is as it is. Pure."""

from collections.abc import Mapping, Sequence

from fourfold.contract.merged import Gate, Line

RIDGE = 0.1
"""A barrier from which on we speak of a ridge, nats."""
MERGE, VOTE, SOLO = "merged", "ensemble", "best_solo"
"""What may be handed on."""
LITTLE = 0.005
"""An accuracy that nobody would miss."""
RARE = 0.005
"""A class with less than this share of a shard's rows is as good as missing there."""


def gate(rule: str, merged: float, solos: Sequence[float], ensemble: float, margin: float, rows: int) -> Gate:
    """Decides by accuracies on hold-out rows, 0 to 1, what is handed on.

    Args:
        rule: the chain that is to be handed on.
        merged: its accuracy.
        solos: of each member.
        ensemble: of their soft vote.
        margin: by how much the merge may be below the best solo.
        rows: how many rows they were measured on.
    """
    best = max(solos)
    better = VOTE if ensemble >= best else SOLO
    choice = MERGE if merged >= best - margin else better
    return Gate(rule, merged, best, ensemble, margin, choice, rows)


def said_of(found: Gate) -> str:
    """The gate's decision in a sentence."""
    numbers = (
        f"{found.merged:.1%} of {found.rows:,} hold-out rows right, the best solo {found.best_solo:.1%}, "
        f"the vote {found.ensemble:.1%}"
    )
    if found.handed_on == MERGE:
        return f"Handed on: the merge by {found.rule} ({numbers})."
    named = {VOTE: "the vote of the solos", SOLO: "the best solo"}[found.handed_on]
    return (
        f"Handed on: {named}, since the merge by {found.rule} is more than {100 * found.margin:g} points "
        f"below the best solo ({numbers})."
    )


def causes(
    lines: Sequence[Line],
    classes: Sequence[Sequence[int]],
    class_names: Sequence[str],
    accuracies: Mapping[str, float],
    solos: Sequence[float],
    own: Sequence[float],
) -> list[str]:
    """Why the plain mean is as it is, by what was measured in this run.

    Args:
        lines: before and after alignment.
        classes: rows of each class in each shard.
        class_names: by class number.
        accuracies: of the chains of rules on hold-out rows, 0 to 1.
        solos: likewise, of each member.
        own: of each member on the rows that it was trained on, 0 to 1.
    """
    if "plain_mean" not in accuracies:
        return []
    mean = accuracies["plain_mean"]
    before = next((line for line in lines if not line.aligned), None)
    after = next((line for line in lines if line.aligned), None)
    missing = _missing(classes, class_names)
    found = [
        f"The solos get {_span(own)} of the rows right that each was trained on, and {_span(solos)} of the "
        f"hold-out rows; their plain mean gets {mean:.1%} of these."
    ]
    ridge = before is not None and before.barrier >= RIDGE
    if before:
        found.append(_barrier(before, after))
    if missing:
        found.append(
            f"Shards lack classes ({missing}): a last layer that never saw a class does not know it."
        )
    refit = next((value for rule, value in accuracies.items() if rule.endswith("head_refit")), None)
    if refit is not None and refit - mean >= 4 * LITTLE:
        in_head = missing and not ridge
        found.append(
            f"The merged layers with a last layer that is fitted to the labels anew get {refit:.1%}: "
            + (
                "what the mean lost is in the last layer, not in the features below, nor by over-fitting."
                if in_head
                else "that is more training, and says nothing of the merge."
            )
        )
    if max(solos) - mean < LITTLE and not missing and not ridge:
        found.append("The mean lost nothing that matters.")
    return found


def _span(accuracies: Sequence[float]) -> str:
    least, most = min(accuracies), max(accuracies)
    return f"{most:.1%}" if f"{least:.1%}" == f"{most:.1%}" else f"{least:.1%} to {most:.1%}"


def _barrier(before: Line, after: Line | None) -> str:
    a, b = before.members
    if before.barrier < RIDGE:
        return (
            f"There is no ridge between solo {a} and solo {b}: the loss rises {before.barrier:.2f} nats "
            "above the line between their own."
        )
    matched = (
        f"; with their units matched it rises {after.barrier:.2f}"
        if after and after.barrier < before.barrier
        else ""
    )
    return (
        f"Between solo {a} and solo {b} the loss rises {before.barrier:.2f} nats above the line between "
        f"their own: a ridge, as between models whose units learnt other things{matched}."
    )


def lacking(counts: Sequence[int]) -> list[int]:
    """The classes of which a shard has as good as no row.

    Args:
        counts: its rows of each class.
    """
    total = max(sum(counts), 1)
    return [label for label, count in enumerate(counts) if count / total < RARE]


def _missing(classes: Sequence[Sequence[int]], names: Sequence[str]) -> str:
    lacks = [(shard, lacking(counts)) for shard, counts in enumerate(classes)]
    named = [(shard, ", ".join(names[label] for label in found)) for shard, found in lacks if found]
    return "; ".join(f"shard {shard}: {found}" for shard, found in named)
