"""Runs the step and hands its result to KFP."""

import functools
import hashlib
import os
from dataclasses import replace
from typing import Any

from fourfold.contract import caching, events, images, keys, pods as given, ways as ways_of
from fourfold.contract.again import again
from fourfold.contract.records import Trained, Training
from fourfold.contract.strict import to_json
from fourfold.contract.whole import whole
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
    members: int,
    stages: int,
    micro_batches: int,
    local_steps: int,
    ways: str,
    cache: str,
    pods: str,
    code: str,
    output: str,
    uri: str,
    metadata: dict[str, Any],
    task: Any = None,
) -> None:
    """The component's body; arguments as in ``component``.

    ``output`` is where the step's result is looked for, as a path, ``uri`` the same as a URI, ``metadata`` is
    the result's, and ``task``, a ``dsl.TaskConfig``, is what was set on the Kubeflow task.
    """
    with events.step("train", code, scenario=scenario):
        workers, epochs, batch, seed = whole(workers=workers, epochs=epochs, batch=batch, seed=seed)
        members, stages, micro_batches, local_steps = whole(
            members=members, stages=stages, micro_batches=micro_batches, local_steps=local_steps
        )
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
            members=members,
            stages=stages,
            micro_batches=micro_batches,
            local_steps=local_steps,
            **ways_of.read(ways),
            caching=caching.read(cache),
            code=images.code(),
        )
        trained = launched(training, pods, uri, task)
        metadata.update(
            framework="keras",
            scenario=scenario,
            workers=trained.workers,
            models=trained.models,
            global_batch=trained.global_batch,
            updates_per_epoch=trained.updates_per_epoch,
        )


def launched(training: Training, pods: str, uri: str, task: Any) -> Trained:
    """Trains, in processes here or in pods; what it yields is in the training's output."""
    if pods == given.HERE:
        return train(training, processes.run)
    # The Kubernetes client is slow to import, and a laptop without a cluster needs none.
    from fourfold.train import launch

    there = replace(training, output=place_of_output(training, uri))
    run_pods = functools.partial(launch.run, pods=of_task(given.read(pods), task))
    trained = again(lambda: train(there, run_pods))
    if there.output != uri:
        copy(trained, open_store(there.output), open_store(training.output))
    return trained


def of_task(pods: given.Pods, task: Any) -> given.Pods:
    """What pods are given, with what was set on the Kubeflow task (a ``dsl.TaskConfig``) before it."""
    if task is None:
        return pods
    return given.with_task(
        pods,
        resources=task.resources,
        node_selector=task.node_selector,
        tolerations=task.tolerations,
        affinity=task.affinity,
    )


def place_of_output(training: Training, uri: str) -> str:
    """Where the pods write to.

    Straight to where Kubeflow looks for the step's output, if that is in the bucket that the store is in:
    what serves the one serves the other. Else, and where the output is a folder, into the store, from where
    this step takes it.
    """
    is_near = _bucket(uri) and _bucket(uri) == _bucket(training.store)
    return uri if is_near else output_in_store(training, uri)


def _bucket(uri: str) -> str:
    """The bucket of an S3 URI; empty for a folder."""
    return uri.partition("://")[2].partition("/")[0] if given.can_reach(uri) else ""


def output_in_store(training: Training, uri: str = "") -> str:
    """Where pods write to when this step's own output is where they cannot write.

    The same for the same training of the same run, so that a launcher that is started again finds it. In
    Kubeflow nothing in a step's environment names the run, but the URI of its output does.
    """
    named = (
        f"kubeflow-{hashlib.sha256(uri.encode()).hexdigest()[:16]}" if given.can_reach(uri) else "fourfold"
    )
    run = tfjob.label(os.environ.get(events.RUN, named))
    digest = hashlib.sha256(to_json(replace(training, output=""))).hexdigest()[:16]
    return f"{training.store.rstrip('/')}/{keys.training(run, digest)}"
