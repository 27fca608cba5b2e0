"""Runs the step and hands its result to KFP."""

from collections.abc import Sequence
from typing import Any

from fourfold.contract import events
from fourfold.contract.again import again


def run(
    store: str,
    fingerprint: str,
    code: str,
    models: Sequence[str],
    output: str,
    metadata: dict[str, Any],
    metrics: Any,
) -> None:
    """The component's body; arguments as in ``component``."""
    with events.step("merge", code):
        from fourfold.merge.step import merge

        merged = again(lambda: merge(store, fingerprint, models, output))
        metadata.update(framework="keras", members=merged.members)
        for rule, score in merged.rules.items():
            metrics.log_metric(f"{rule}_accuracy", score.accuracy)
            events.say("merged", message=f"{rule}: {score.accuracy:.2%} of test rows right", rule=rule)
        for sentence in merged.said:
            events.say("said", message=sentence)
