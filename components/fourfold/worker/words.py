"""What a worker says of its training in sentences, and the bytes that it counts. Pure."""

import os
from collections.abc import Sequence

from fourfold.contract import plan as plans
from fourfold.contract.records import Training

MERGE_SHARE = 0.25
"""Share of a step from which on merging is worth a warning."""
FLOAT = 4
"""Bytes of a float32."""


def of_devices(devices: Sequence[str], cores: int | None) -> list[str]:
    """What is to know about the devices that stages lie on.

    Args:
        devices: one a stage.
        cores: of this machine; None where that is unknown.
    """
    if len(devices) < 2:
        return []
    shared = sorted({device for device in devices if devices.count(device) > 1})
    if shared:
        stages = " and ".join(str(index) for index, device in enumerate(devices) if device == shared[0])
        return [
            f"Stages {stages} share the device {shared[0]}: they work one after the other, "
            "and the pipeline is no faster than the uncut model."
        ]
    if any("/task:" in device for device in devices) or not devices[0].startswith("CPU"):
        return []
    if cores is not None and cores < len(devices):
        return [
            f"{len(devices)} stages lie on logical devices of a CPU with {cores} core{'s' * (cores > 1)}: "
            "they take turns, and the pipeline is no faster than the uncut model."
        ]
    return [f"The {len(devices)} stages lie on logical devices of one CPU, a thread each."]


def before(
    training: Training, plan: plans.Plan, said_of_model: Sequence[str], devices: Sequence[str]
) -> list[str]:
    """What is to know before training starts.

    Args:
        training: what is trained.
        plan: of the training.
        said_of_model: what is to know of the model where its batches come in parts.
        devices: one a stage.
    """
    if not plan.scenario.splits_model:
        return []
    said = list(said_of_model) if training.micro_batches > 1 else []
    return said + of_devices(devices if plan.stages > 1 else [], os.cpu_count())


def of_merge(training: Training, share: float) -> str:
    """A warning where merging takes much of a step; empty where it does not.

    Args:
        training: what is trained.
        share: of a step's time that merging takes, 0 to 1.
    """
    if share < MERGE_SHARE:
        return ""
    return (
        f"Merging takes {share:.0%} of a step at {training.batch} rows a worker: "
        "a larger --batch would spend less of the time on it."
    )


def bytes_per_step(
    plan: plans.Plan, weights: int, rows: float, handed: Sequence[int], steps_a_round: int
) -> float:
    """Bytes that a worker sends in a step, counted; a mean where steps differ.

    An all-reduce among W workers sends 2 (W - 1) / W times its vector from each (Patarasuk, Yuan, 2009);
    between two that is the vector itself, however it is done.

    Args:
        plan: of the training.
        weights: that are trained, float32 each.
        rows: of a step at this worker.
        handed: values that each stage hands on for a row, float32; as many come back as gradients.
        steps_a_round: local steps between two merges of weights.
    """
    world = plan.workers if plan.scenario.exchanges else 1
    around = 2 * (world - 1) / world * FLOAT
    between_stages = 2.0 * rows * sum(handed) * FLOAT
    if plan.scenario.in_rounds:
        return around * weights / steps_a_round
    copied = weights if plan.scenario.copies_back else 0
    # With the gradients travel the loss and the pace.
    return around * (weights + 2 + copied) * (world > 1) + between_stages
