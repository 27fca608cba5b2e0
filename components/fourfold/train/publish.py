"""Runs the step and hands its result to KFP."""

import functools
import hashlib
import os
from dataclasses import replace
from typing import Any

from fourfold.contract import events, images, keys, pods as given
from fourfold.contract.records import Training, to_json
from fourfold.store.objects import open_store
from fourfold.train import processes, tfjob
from fourfold.train.step import copy, train


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
    pods: str,
    code: str,
    output: str,
    uri: str,
    metadata: dict[str, Any],
) -> None:
    """The component's body; arguments as in ``component``, and ``output`` as a path and a URI."""
    with events.step("train", code, scenario=scenario):
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
            code=images.code(),
        )
        if pods == given.HERE:
            trained = train(training, processes.run)
        else:
            # The Kubernetes client is slow to import, and a laptop without a cluster needs none.
            from fourfold.train import launch

            there = replace(training, output=uri if "://" in uri else output_in_store(training))
            trained = train(there, functools.partial(launch.run, pods=given.read(pods)))
            if there.output != uri:
                copy(trained, open_store(there.output), open_store(output))
        metadata.update(
            framework="keras",
            scenario=scenario,
            workers=trained.workers,
            models=trained.models,
            global_batch=trained.global_batch,
            updates_per_epoch=trained.updates_per_epoch,
        )


def output_in_store(training: Training) -> str:
    """Where pods write to when this step's own output is a folder that they cannot reach.

    The same for the same training of the same run, so that a launcher that is started again finds it.
    """
    run = tfjob.label(os.environ.get(events.RUN, "fourfold"))
    digest = hashlib.sha256(to_json(replace(training, output=""))).hexdigest()[:16]
    return f"{training.store.rstrip('/')}/{keys.training(run, digest)}"
