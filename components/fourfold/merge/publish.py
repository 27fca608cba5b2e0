"""Runs the step and hands its result to KFP."""

from collections.abc import Sequence
from typing import Any

from fourfold.contract import events, keys, merges
from fourfold.contract.again import again


def run(
    store: str,
    fingerprint: str,
    code: str,
    models: Sequence[str],
    at_sites: str,
    output: str,
    metadata: dict[str, Any],
    metrics: Any,
) -> None:
    """The component's body; arguments as in ``component``."""
    with events.step("merge", code):
        from fourfold.merge.step import merge

        merged = again(lambda: merge(store, fingerprint, models, output, at_sites))
        metadata.update(framework="keras", members=merged.members)
        if merged.gate:
            metadata.update(handed_on=merged.gate.handed_on, handed_on_file=keys.HANDED_ON)
        for rule, score in merged.rules.items():
            metrics.log_metric(f"{merges.file_name(rule)}_accuracy", score.accuracy)
            events.say("merged", message=f"{rule}: {score.accuracy:.2%} of test rows right", rule=rule)
        for sentence in [*merged.causes, *merged.said]:
            events.say("said", message=sentence)
