"""The options that several commands have: what is trained, and what the pods of a cluster are given."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from fourfold.cache.budgets import bytes_of
from fourfold.contract import caching, plan as plans, pods, starts, ways
from fourfold.contract.caching import DTYPES, LIST
from fourfold.contract.errors import InvalidInputError
from fourfold.contract.records import INITIAL, STARTS
from fourfold.contract.starts import FAMILIES
from fourfold.prepare.split import RULES
from fourfold_pipelines.chosen import KUBEFLOW_STORE

CACHE = ("order", "cache_dtype", "cached_batch", "ram", "disk", "window", "ahead")
"""Options that say how ready batches are kept and read."""
NAMESPACE = "fourfold"
"""That ``manifests/overlays/kind`` makes."""

EXPERIMENT = (
    click.option("--data", default="sample", show_default=True, metavar="SOURCE",
                 help="sample (10,000 rows of MNIST, in the package), mnist (from $FOURFOLD_DATA, else "
                 "downloaded), or the path of a folder with four IDX files."),
    click.option("--rows", type=click.IntRange(min=1), default=2000, show_default=True,
                 help="Training rows, the first of the source."),
    click.option("--holdout", type=click.IntRange(min=1), default=1000, show_default=True,
                 help="Rows after those, set aside for choices."),
    click.option("--split", default="contiguous", show_default=True, metavar="RULE",
                 help=f"How rows are dealt to workers: {RULES}."),
    click.option("--workers", type=click.IntRange(1, 64), default=2, show_default=True,
                 help="Worker processes, or pods, of scenarios that split the work."),
    click.option("--epochs", type=click.IntRange(min=1), default=5, show_default=True,
                 help="Passes over the training rows."),
    click.option("--batch", type=click.IntRange(min=1), default=100, show_default=True,
                 help="Rows per worker and step."),
    click.option("--optimizer", type=click.Choice(["adam", "sgd", "momentum"]), default="adam",
                 show_default=True, help="momentum is SGD with momentum 0.9."),
    click.option("--learning-rate", type=float, default=1e-3, show_default=True,
                 help="Step size of the optimiser."),
    click.option("--seed", type=click.IntRange(0, 2**31 - 1), default=0, show_default=True,
                 help="Of the model's start, the order of rows, and splits that draw."),
    click.option("--members", type=click.IntRange(1, 64), default=3, show_default=True,
                 help="ensemble: separate models."),
    click.option("--member-workers", type=click.IntRange(min=0), default=0, metavar="N",
                 help="ensemble: processes, or pods, that the members are dealt to. [default: one a member]"),
    click.option("--starts", default=",".join(STARTS), show_default=True, metavar="LIST",
                 help="ensemble: where members start, in turn: an initialiser, perhaps with a seed, such as "
                 f"he_uniform:7. One of {', '.join(FAMILIES)}."),
    click.option("--stages", type=click.IntRange(1, 16), default=2, show_default=True,
                 help="pipeline, hybrid: parts that the model is cut into."),
    click.option("--micro-batches", type=click.IntRange(min=1), default=4, show_default=True,
                 help="pipeline, hybrid: parts of a batch that the stages work on one after the other."),
    click.option("--cut", default="", metavar="LIST",
                 help="pipeline, hybrid: layers after which the model is cut, such as flatten. "
                 "[default: so that stages balance]"),
    click.option("--balance", type=click.Choice(plans.BALANCES), default="parameters",
                 show_default=True, help="pipeline, hybrid: what stages balance; cost is measured."),
    click.option("--placement", type=click.Choice(plans.PLACEMENTS), default="devices", show_default=True,
                 help="pipeline: stages on devices of one worker, or on a process, or pod, each."),
    click.option("--local-steps", type=click.IntRange(min=0), default=0, metavar="N",
                 help="federated: steps of each worker in a round. [default: one epoch]"),
    click.option("--server-momentum", type=click.FloatRange(0, 1, max_open=True), default=0.0,
                 show_default=True, help="federated: of the merged weights over rounds (FedAvgM)."),
    click.option("--proximal", type=click.FloatRange(min=0), default=0.0, show_default=True,
                 help="federated: how strongly workers are held to the round's start (FedProx)."),
    click.option("--initial", default="shared", show_default=True, metavar="START",
                 help="Where models start: shared, independent (solo: each model by itself), or a .keras "
                 "file in a folder or store that workers reach: a warm start for all."),
    click.option("--order", default="rows", show_default=True, metavar="ORDER",
                 help="In which an epoch takes rows: rows (dealt anew), batches (cached batches in a new "
                 "order), frozen, reverse, or list:FILE with row numbers."),
    click.option("--cache-dtype", type=click.Choice(DTYPES), default="float32", show_default=True,
                 help="Of values in cached batches; uint8 keeps pixels as they came, at a quarter of "
                 "the bytes, and gives the same model."),
    click.option("--cached-batch", type=click.IntRange(min=1), default=100, show_default=True,
                 metavar="ROWS", help="Rows of one cached batch."),
    click.option("--ram", default="", metavar="BYTES",
                 help="Memory for the rows of one worker, such as 500M or 2Gi. [default: half of what its "
                 "container may use]"),
    click.option("--disk", default="", metavar="BYTES",
                 help="Disk for cached batches of a store over the network; none for no such tier. "
                 "[default: 10Gi, or 80 % of what is free; in pods by --pods]"),
    click.option("--window", type=click.IntRange(min=0), default=0, metavar="N",
                 help="Cached batches among which rows are dealt where a shard does not fit into --ram. "
                 "[default: as many as fit]"),
    click.option("--ahead", type=click.IntRange(min=0), default=16, show_default=True,
                 metavar="N", help="Cached batches that are read ahead."),
)  # fmt: skip
"""What is trained, and how."""

GPUS = click.option(
    "--gpus",
    type=click.IntRange(min=0),
    default=None,
    help="GPUs of each worker's pod. [default: what the manifests say, else none]",
)
MORE_OF_PODS = click.option(
    "--pods",
    "pods_text",
    default="{}",
    metavar="JSON",
    help="More of what pods are given: image, cpu, memory, node_selector, tolerations, deadline_seconds ... "
    "as a JSON object; goes before what the manifests say.",
)

PODS = (
    click.option("--namespace", default=None, metavar="NAME",
                 help=f"Where the manifests were applied. [default: {NAMESPACE}; in a pod its own]"),
    GPUS,
    MORE_OF_PODS,
)  # fmt: skip
"""What the pods of a cluster are given."""

COMPILED = (
    click.option("--store", default="", metavar="URI",
                 help="Store for ready batches if a run names none: s3://bucket/prefix. "
                 f"[default: {KUBEFLOW_STORE}, in Kubeflow Pipelines' own]"),
    click.option("--registry", default="", metavar="PREFIX",
                 help="Where the images were pushed to: put before their names."),
    click.option("--steps-image", default="", metavar="IMAGE", help="In place of the slim image."),
    click.option("--worker-image", default="", metavar="IMAGE",
                 help="In place of the image with TensorFlow."),
    GPUS,
    MORE_OF_PODS,
    click.option("--keep-failed", is_flag=True,
                 help="Leave TFJobs that failed, with their pods, until their time to live is over; else a "
                 "run's last step deletes all of its TFJobs."),
    click.option("--name", default="", metavar="NAME", help="Of the pipeline in Kubeflow."),
)  # fmt: skip
"""What is chosen when a pipeline is compiled."""


def with_options(options: tuple[Callable[[Any], Any], ...]) -> Callable[[Any], Any]:
    """A decorator that gives a command all of these options."""

    def decorate(command: Any) -> Any:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


def experiment(data: str, learning_rate: float, scenarios: tuple[str, ...], **numbers: Any) -> dict[str, Any]:
    """The arguments of the pipeline that the options say.

    Raises:
        InvalidInputError: an option's value cannot be used.
    """
    chosen = list(dict.fromkeys(scenarios)) or list(plans.names())
    cache = {name: numbers.pop(name) for name in CACHE}
    numbers = {**numbers, **{name: _listed(numbers[name]) for name in ("starts", "cut")}}
    sizes = ("workers", "members", "stages", "member_workers", "placement")
    for name in chosen:
        plans.plan(name, **{size: numbers[size] for size in sizes})
    for member in range(numbers["members"]):
        starts.of(numbers["starts"], member, numbers["seed"])
    if numbers["cut"] and len(numbers["cut"]) != numbers["stages"] - 1:
        raise InvalidInputError(
            f"--cut names {len(numbers['cut'])} layers, {numbers['stages']} stages have "
            f"{numbers['stages'] - 1} between them: give --stages {len(numbers['cut']) + 1}, or other layers"
        )
    if not 0 < learning_rate < float("inf"):
        raise InvalidInputError(f"--learning-rate must be a number above 0, got {learning_rate}")
    if data not in ("sample", "mnist"):
        data = str(Path(data).expanduser().absolute()) if data else data
    numbers["initial"] = _initial(numbers["initial"])
    inputs = {name: value for name, value in numbers.items() if name not in ways.FIELDS}
    return {
        "data": data,
        "scenarios": chosen,
        "learning_rate": learning_rate,
        **inputs,
        "ways": ways.write(**numbers),
        "cache": _cache(**cache),
    }


def _initial(initial: str) -> str:
    """Where models start; a file by its whole path, since workers stand elsewhere."""
    if initial in INITIAL:
        return initial
    if not initial.endswith(".keras"):
        raise InvalidInputError(
            f"--initial must be one of {', '.join(INITIAL)}, or a .keras file, got {initial!r}"
        )
    return initial if "://" in initial else str(Path(initial).expanduser().absolute())


def _cache(cache_dtype: str, cached_batch: int, order: str, ram: str, disk: str, **numbers: int) -> str:
    """What the options say of the cache, as one JSON object."""
    place = order.removeprefix(LIST)
    if order.startswith(LIST) and place and "://" not in place:
        order = LIST + str(Path(place).expanduser().absolute())
    told = caching.write(
        dtype=cache_dtype,
        batch_rows=cached_batch,
        order=order,
        ram=bytes_of(ram) if ram else 0,
        disk=-1 if disk == "none" else bytes_of(disk) if disk else 0,
        **numbers,
    )
    caching.read(told)
    return told


def _listed(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def said_of_pods(namespace: str | None, gpus: int | None, pods_text: str) -> str:
    """What the options say of the pods, as one JSON object; shorthands go before ``--pods``."""
    pods.read(pods_text)
    said = {"namespace": namespace, "gpus": gpus}
    return json.dumps({**json.loads(pods_text or "{}"), **{k: v for k, v in said.items() if v is not None}})
