"""Runs the step and hands its result to KFP."""

from typing import Any

from fourfold.contract import events
from fourfold.contract.records import Training
from fourfold.train.step import train


def run(
    store: str,
    fingerprint: str,
    split_id: str,
    scenario: str,
    workers: int,
    epochs: int,
    batch: int,
    optimizer: str,
    learning_rate: float,
    seed: int,
    output: str,
    metadata: dict[str, Any],
) -> None:
    """The component's body; arguments as in ``component``."""
    with events.step("train", scenario=scenario):
        training = Training(
            scenario=scenario,
            workers=workers,
            store=store,
            fingerprint=fingerprint,
            split=split_id,
            output=output,
            epochs=epochs,
            batch=batch,
            optimizer=optimizer,
            learning_rate=learning_rate,
            seed=seed,
        )
        trained = train(training)
        metadata.update(
            framework="keras",
            scenario=scenario,
            workers=trained.workers,
            models=trained.models,
            global_batch=trained.global_batch,
            updates_per_epoch=trained.updates_per_epoch,
        )
