"""Chains of rules: read from text, checked against what is there, applied one after another."""

import difflib
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from fourfold.contract.errors import InvalidInputError
from fourfold.model import weights
from fourfold.rules import members as match
from fourfold.rules.members import Member
from fourfold.rules.state import Ground, State
from fourfold.rules.table import NEEDS, RULES, Rule, numbers_of

WIDEST = 4096
"""Inputs of a layer at most for rules that add up products of inputs: 134 MB a layer."""

LIMITS = {"rows": (1, math.inf), "images": (1, math.inf), "keep": (0, 1), "alpha": (0, 1)}
"""Of numbers that have others than from 0 on."""


@dataclass(frozen=True)
class Link:
    """One rule of a chain, with the numbers that it was given."""

    rule: Rule
    numbers: dict[str, float]


def read(text: str) -> list[Link]:
    """Reads a chain, such as ``weight_matching,regmean:alpha=0.9,bn_recalibration``.

    Raises:
        InvalidInputError: a rule or a number of it is unknown, or the order makes no sense.
    """
    links = [_link(part.strip()) for part in text.split(",")]
    order = ("align", "merge", "after")
    places = [order.index(link.rule.kind) for link in links]
    if places != sorted(places):
        raise InvalidInputError(
            f"rule {text!r}: align members first ({_of('align')}), then merge ({_of('merge')}), then what "
            f"comes after ({_of('after')})"
        )
    if places.count(1) > 1:
        raise InvalidInputError(f"rule {text!r} merges {places.count(1)} times: one rule of a chain merges")
    return links


def _of(kind: str) -> str:
    return ", ".join(name for name, rule in RULES.items() if rule.kind == kind)


def _link(text: str) -> Link:
    name, *given = text.split(":")
    if name not in RULES:
        near = difflib.get_close_matches(name, RULES, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise InvalidInputError(f"unknown rule {name!r}: use one of {', '.join(RULES)}{hint}")
    rule, numbers = RULES[name], {}
    known = numbers_of(rule)
    for each in given:
        key, _, value = each.partition("=")
        if key not in known:
            can = ", ".join(f"{k}={v:g}" for k, v in known.items()) or "none"
            raise InvalidInputError(f"rule {name} has no number {key!r}; it has: {can}")
        try:
            numbers[key] = float(value)
        except ValueError:
            numbers[key] = math.nan
        low, high = LIMITS.get(key, (0, math.inf))
        if not (math.isfinite(numbers[key]) and low <= numbers[key] <= high):
            until = "on" if high == math.inf else f"to {high}"
            raise InvalidInputError(f"rule {name}: {key} must be a number from {low} {until}, got {value!r}")
    return Link(rule, numbers)


def missing(links: Sequence[Link], members: Sequence[Member], ground: Ground) -> str:
    """What a chain needs and has not; empty where it can be applied."""
    for link in links:
        needs, name = link.rule.needs, link.rule.name
        if needs == "statistics" and not all(
            any(key.startswith("fisher/" if name == "fisher" else "gram/") for key in member.statistics)
            for member in members
        ):
            return f"{name} needs {NEEDS[needs]}"
        if needs in ("sums", "own labels") and ground.sites is None:
            return f"{name} needs {NEEDS[needs]}"
        if needs == "calibration rows" and ground.calibration is None:
            return f"{name} needs {NEEDS[needs]}"
        if needs == "a common start" and ground.start is None:
            return f"{name} needs {NEEDS[needs]}"
        if name == "head_refit" and ground.head is None:
            return "head_refit needs a model whose outputs one Dense layer makes"
    return ""


def gathered(links: Sequence[Link], members: Sequence[Member]) -> int:
    """Bytes that each site sent of what it gathered after training, for the rules of a chain."""
    kinds = {"fisher": "fisher/", "regmean": "gram/"}
    used = [kinds[link.rule.name] for link in links if link.rule.needs == "statistics"]
    each = [
        sum(np.asarray(value).nbytes for key, value in member.statistics.items() if key.startswith(kind))
        for member in members
        for kind in used
    ]
    return max(each, default=0)


def ordered(members: Sequence[Member]) -> list[Member]:
    """Members in an order that does not depend on the one they came in: most rows first, then by digest."""
    return sorted(members, key=lambda member: (-member.rows, weights.digest(member.weights)))


def apply(links: Sequence[Link], members: Sequence[Member], ground: Ground) -> State:
    """Merges members by a chain of rules.

    The members' order does not matter, see ``ordered``.

    Args:
        links: of the chain.
        members: of one structure.
        ground: what may be used.

    Returns:
        The merged weights, and what a user should know.

    Raises:
        InvalidInputError: the members cannot be merged, a rule needs what is not there, or a layer cannot be
            treated and ``ground.strict`` is set.
    """
    match.check(members)
    if lacking := missing(links, members, ground):
        raise InvalidInputError(lacking)
    state = State(tuple(ordered(members)))
    for link in links:
        state = link.rule.apply(state, ground, **link.numbers)
    known = {*ground.unmapped, *ground.symmetry.untreated}
    untreated = [sentence for sentence in state.said if sentence in known]
    if ground.strict and untreated:
        raise InvalidInputError("layers that cannot be treated: " + "; ".join(untreated))
    if state.merged is None:
        state = state.now(state.base, "No rule of the chain merges: the plain mean was taken.")
    return replace(state, merged={name: state.base[name] for name in members[0].weights})
