"""Merging at the sites: each worker holds one shard and all models, and sends nothing but sums.

Every worker applies the same rules to the same models. Where a rule asks the sites, each worker answers from
its own shard, the answers are summed over all workers, and all go on with the same sum.
"""

import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import tensorflow as tf

from fourfold.cache import leases
from fourfold.contract import events, keys, plan as plans
from fourfold.contract.errors import InvalidInputError
from fourfold.contract.merges import MergedAtSites, Merging
from fourfold.contract.records import Trained, Training, WorkerReport
from fourfold.contract.strict import from_json, to_json
from fourfold.model import scoring, weights
from fourfold.model.pinned import keras
from fourfold.rules import chain, models
from fourfold.rules.members import Member
from fourfold.rules.sites import Site, Sums
from fourfold.rules.state import Ground, ground_of
from fourfold.store.formats import sha256
from fourfold.store.objects import open_store
from fourfold.worker import cluster, exchange, input, save
from fourfold.worker.checkpoint import identity

ROWS = 10_000
"""Of a shard that are kept at hand, at most; rules take as many of them as they need."""
GRAM = "gram"
"""The name of sums of inputs times each other."""


class Apart:
    """Sites of which this process is one; see ``rules.sites.Sites``.

    Args:
        site: this one.
        add: the sum of a float64 vector over all workers.
    """

    def __init__(self, site: Site, add: Callable[[np.ndarray], np.ndarray]):
        self.site, self.add, self.exchanges, self.sent = site, add, 0, 0

    def total(self, ask: Callable[[Site], Sums]) -> Sums:
        """See ``Sites``."""
        answer = {key: np.asarray(value, np.float64) for key, value in sorted(ask(self.site).items())}
        packed = {key: _packed(key, value) for key, value in answer.items()}
        flat = np.concatenate([value.ravel() for value in packed.values()])
        self.exchanges += 1
        self.sent += flat.nbytes
        ends = np.cumsum([value.size for value in packed.values()])[:-1]
        pieces = np.split(self.add(flat), ends)
        return {
            key: _unpacked(key, piece, value.shape)
            for (key, value), piece in zip(answer.items(), pieces, strict=True)
        }


def _packed(key: str, value: np.ndarray) -> np.ndarray:
    """What is sent of a sum: of products of inputs with each other, which are symmetric, one triangle."""
    return value[..., *np.triu_indices(value.shape[-1])] if key == GRAM else value


def _unpacked(key: str, piece: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    if key != GRAM:
        return piece.reshape(shape)
    rows, columns = np.triu_indices(shape[-1])
    found, triangle = np.empty(shape), piece.reshape(*shape[:-2], -1)
    found[..., rows, columns] = triangle
    found[..., columns, rows] = triangle
    return found


def merge(
    training: Training,
    merging: Merging,
    plan: plans.Plan,
    role: cluster.Role,
    strategy: tf.distribute.Strategy,
    process: str,
) -> None:
    """Is one worker of a merge at the sites.

    Args:
        training: names the data set, the split and the output.
        merging: what is merged, and how.
        plan: of the training.
        role: this worker's place.
        strategy: joins all workers, one replica each.
        process: what it is called in the results.

    Raises:
        InvalidInputError: there is no model for each worker, or a rule is unknown.
    """
    output, source = open_store(training.output), open_store(merging.models)
    trained = from_json(Trained, source.read(keys.TRAINED), keys.TRAINED)
    if trained.models != plan.workers:
        raise InvalidInputError(
            f"{source.uri} holds {trained.models} models, and {plan.workers} workers are to merge one each"
        )
    found, given = models.of_training(source, trained)
    with leases.reading(open_store(training.store), training.fingerprint):
        shard = input.read_shard(training, plan, role.rank, role.beside)
        with shard.reader:
            x, y = shard.drawn(ROWS)
    scratch = keras.models.clone_model(given[0])
    ground = ground_of(scratch, x, chain.WIDEST, seed=training.seed)
    sites = Apart(Site(role.rank, x, y, scratch, ground.maps), exchange.summing(strategy))
    ground = replace(ground, sites=sites)
    objects, digests, merges, said = {}, [], [], []
    for rule in merging.rules:
        if lacking := chain.missing(chain.read(rule), found, ground):
            said.append(f"{rule} was left out: {lacking}.")
            continue
        told, values = _applied(rule, found, ground, sites)
        weights.assign(scratch, values)
        digests.append(weights.digest(weights.arrays(scratch)))
        if role.rank == 0:
            key, data = keys.merged(len(merges)), scoring.to_bytes(scratch)
            output.write(key, data)
            objects[key] = sha256(data)
            events.tell("said", scenario=training.scenario, message=_line(told, plan.workers))
        merges.append(told)
    report = WorkerReport(
        worker=role.rank,
        training=identity(training),
        process=process,
        model=0,
        rows=len(shard.numbers),
        epochs=[],
        digests=digests,
        objects=objects,
        environment=save.environment(training.threads),
        said=said,
        merges=merges,
    )
    output.write(keys.worker(role.rank), to_json(report))
    save.wait_for_reports(output, plan.group_of(role.rank), training.finish_seconds)


def _applied(
    rule: str, found: list[Member], ground: Ground, sites: Apart
) -> tuple[MergedAtSites, dict[str, np.ndarray]]:
    sites.exchanges = sites.sent = 0
    started = time.perf_counter()
    state = chain.apply(chain.read(rule), found, ground)
    seconds = time.perf_counter() - started
    return MergedAtSites(rule, sites.exchanges, sites.sent, seconds, list(state.said)), dict(state.base)


def _line(told: MergedAtSites, sites: int) -> str:
    return (
        f"{told.rule}: {sites} sites added up {told.exchanges} times, {told.sent / 1e6:.1f} MB from each, "
        f"{told.seconds:.1f} s"
    )
