"""Merges what was trained apart beside its rows, and hands the result to KFP."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from fourfold.contract import caching, events, images, keys, merges, plan as plans, pods as given
from fourfold.contract.merges import Merging
from fourfold.contract.records import Trained
from fourfold.contract.strict import from_json
from fourfold.contract.whole import whole
from fourfold.store.objects import open_store
from fourfold.train.publish import launched


def run(
    store: str,
    fingerprint: str,
    seed: int,
    cache: str,
    pods: str,
    code: str,
    models: Sequence[str],
    output: str,
    uri: str,
    metadata: dict[str, Any],
    task: Any = None,
) -> None:
    """The component's body; arguments as in ``component``, and as in ``publish.run``."""
    with events.step("merge at sites", code):
        (seed,) = whole(seed=seed)
        found = _trained_apart(models)
        if found is None:
            open_store(output).write(keys.NOTHING, b"{}")
            return
        at, trained = found
        asked = trained.training
        training = replace(
            asked,
            store=store,
            fingerprint=fingerprint,
            output=output,
            seed=seed,
            caching=caching.read(cache),
            merging=Merging(_reached(at, trained, pods), list(merges.AT_SITES)),
            code=images.code(),
        )
        done = launched(training, pods, uri, task)
        metadata.update(framework="keras", rules=[told.rule for told in done.reports[0].merges])


def _reached(at: str, trained: Trained, pods: str) -> str:
    """Where the workers find the models: where they were written, or where this step has them.

    Raises:
        MissingObjectError: pods cannot reach this step's place, and where they wrote to the models are gone.
    """
    if pods == given.HERE or given.can_reach(at):
        return at
    written = trained.training.output
    open_store(written).read(keys.TRAINED)
    return written


def _trained_apart(models: Sequence[str]) -> tuple[str, Trained] | None:
    """Where the models are that were trained apart, and the record of their training."""
    for at in models:
        trained = from_json(Trained, open_store(at).read(keys.TRAINED), keys.TRAINED)
        if plans.trained_apart(trained):
            return at, trained
    return None
