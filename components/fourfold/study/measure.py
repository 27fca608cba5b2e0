"""Merges and measures one cell of a study. The test rows choose nothing: they are looked at last."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from fourfold.cache import dataset, splits
from fourfold.contract import plan as plans
from fourfold.contract.records import Trained
from fourfold.merge import landscape
from fourfold.model import measures, network, scoring, weights
from fourfold.model.pinned import keras
from fourfold.rules import chain, models as of, weight_matching
from fourfold.rules.members import Member
from fourfold.rules.sites import Site, Together
from fourfold.rules.state import Ground, Rows, State, ground_of
from fourfold.store.objects import open_store
from fourfold.study.cells import Cell, Study
from fourfold.study.trainings import Ready
from fourfold.worker import input

AT_HAND = 10_000
"""Rows of each site, drawn, at most."""
CALIBRATION = 4
"""The part of the hold-out rows that calibrates: one in so many; the others select."""
TUNING = 5
"""Epochs of tuning a solo on calibration rows."""
ALONE = 30
"""Epochs of training on calibration rows alone."""
UNTRAINED = 99_991
"""Added to the seed of a model that nothing was trained on."""


@dataclass(frozen=True)
class Measured:
    """A model, or several that vote.

    Attributes:
        accuracy: on the test rows, 0 to 1.
        selection: on the hold-out rows that nothing was fitted to.
        seconds: that it took, with the exchanges; 0 where nothing was merged.
        exchanges: how often all sites added up sums.
        sent: bytes of all sites.
        trains: whether labels were fitted to.
    """

    accuracy: float
    selection: float
    seconds: float = 0.0
    exchanges: int = 0
    sent: int = 0
    trains: bool = False


@dataclass(frozen=True)
class Result:
    """What a cell yielded.

    Attributes:
        cell: which.
        own: accuracy of each solo on the rows that it was trained on.
        solos: each solo.
        rules: each chain.
        references: best solo (by selection), ensemble, all_data, federated.
        floors: what needs no merge.
        barriers: the barrier between the first two solos in nats, as they are and with units matched.
        classes: rows of each class at each site.
        left_out: chains that could not be applied, with the reason.
    """

    cell: Cell
    own: list[float]
    solos: list[Measured]
    rules: dict[str, Measured]
    references: dict[str, Measured]
    floors: dict[str, Measured]
    barriers: list[float]
    classes: list[list[int]]
    left_out: dict[str, str] = field(default_factory=dict)


class _Rows:
    """The rows of a cell's data set."""

    def __init__(self, trained: Trained):
        store = open_store(trained.training.store)
        manifest = dataset.read_manifest(store, trained.training.fingerprint)
        x, y = dataset.read_rows(store, manifest, "holdout")
        middle = max(1, len(y) // CALIBRATION)
        self.calibration, self.selection = Rows(x[:middle], y[:middle]), Rows(x[middle:], y[middle:])
        self.test = Rows(*dataset.read_rows(store, manifest, "test"))


def measure(study: Study, cell: Cell, ready: Ready, tell: Callable[[str], None]) -> Result:
    """Measures a cell on what was trained for it."""
    rows = _Rows(ready.solo)
    members, models = of.of_training(open_store(ready.solo.training.output), ready.solo)
    scratch = keras.models.clone_model(models[0])
    ground, labels = _ground(study, cell, ready.solo, scratch, rows)
    measured = _Measuring(scratch, rows, ground)
    rules, left_out = {}, {}
    for rule in study.rules:
        links = chain.read(rule)
        if lacking := chain.missing(links, members, ground):
            left_out[rule] = lacking
            continue
        tell(f"merging by {rule}")
        rules[rule] = measured.chain(rule, members)
    tell("measuring what it is held against")
    solos = [measured.weights(member.weights) for member in members]
    best = max(range(len(solos)), key=lambda index: solos[index].selection)
    return Result(
        cell=cell,
        own=[chief.epochs[-1].accuracy for chief in ready.solo.chiefs],
        solos=solos,
        rules=rules,
        references={
            "best_solo": solos[best],
            "ensemble": measured.vote(models),
            "all_data": measured.model(_only(ready.whole)),
            "federated": measured.model(_only(ready.federated)),
        },
        floors=_floors(cell, members, best, measured),
        barriers=_barriers(members, ground, measured),
        classes=labels,
        left_out=left_out,
    )


def _only(trained: Trained) -> keras.Model:
    return of.of_training(open_store(trained.training.output), trained)[1][0]


def _ground(
    study: Study, cell: Cell, trained: Trained, scratch: keras.Model, rows: _Rows
) -> tuple[Ground, list[list[int]]]:
    """What rules may use; each site has its own rows only. And the rows of each class at each site."""
    plan, sites = plans.of(trained.training), []
    known = ground_of(
        scratch, rows.test.x, chain.WIDEST, calibration=rows.calibration, seed=cell.seed,
        start=_start(trained, scratch, cell),
    )  # fmt: skip
    for index in range(cell.members):
        shard = input.read_shard(trained.training, plan, index)
        with shard.reader:
            x, y = shard.drawn(AT_HAND)
        sites.append(Site(index, x, y, scratch, known.maps))
    store = open_store(trained.training.store)
    split, _ = splits.read_split(store, trained.training.fingerprint, trained.training.split)
    return replace(known, sites=Together(sites)), split.classes


def _start(trained: Trained, scratch: keras.Model, cell: Cell) -> dict[str, np.ndarray] | None:
    """The weights that all members started from, where there are such."""
    if cell.start == "independent":
        return None
    if cell.start == "warm":
        folder, _, name = trained.training.initial.rpartition("/")
        model = scoring.from_bytes(open_store(folder).read(name), name)
    else:
        model = network.build(scratch.input_shape[1:], scratch.output_shape[-1], trained.training.seed)
    return {key: np.array(value) for key, value in weights.arrays(model).items()}


class _Measuring:
    """Measures models on the same rows."""

    def __init__(self, scratch: keras.Model, rows: _Rows, ground: Ground):
        self.scratch, self.rows, self.ground = scratch, rows, ground

    def chain(self, rule: str, members: Sequence[Member]) -> Measured:
        """A chain of rules on members."""
        links, sites = chain.read(rule), self.ground.sites
        assert sites is not None
        exchanges, sent, begun = sites.exchanges, sites.sent, time.perf_counter()
        state = chain.apply(links, members, self.ground)
        seconds = time.perf_counter() - begun
        gathered = chain.gathered(links, members)
        return replace(
            self.weights(state.base),
            seconds=seconds,
            exchanges=sites.exchanges - exchanges + (1 if gathered else 0),
            sent=sites.sent - sent + gathered * len(members),
            trains=any(link.rule.trains for link in links),
        )

    def weights(self, values: Mapping[str, np.ndarray]) -> Measured:
        """A model with these weights."""
        weights.assign(self.scratch, values)
        return self.model(self.scratch)

    def model(self, model: keras.Model) -> Measured:
        """A model."""
        return self._scores([model])

    def vote(self, models: Sequence[keras.Model]) -> Measured:
        """The soft vote of models."""
        return self._scores(models)

    def _scores(self, models: Sequence[keras.Model]) -> Measured:
        found = [
            measures.accuracy(measures.soft_vote([scoring.logits(model, part.x) for model in models]), part.y)
            for part in (self.rows.test, self.rows.selection)
        ]
        return Measured(accuracy=found[0], selection=found[1])


def _floors(cell: Cell, members: Sequence[Member], best: int, measured: _Measuring) -> dict[str, Measured]:
    """What is reached without any merge."""
    scratch, x, y = measured.scratch, measured.rows.calibration.x, measured.rows.calibration.y
    shape, classes = scratch.input_shape[1:], scratch.output_shape[-1]
    alone = network.build(shape, classes, cell.seed + UNTRAINED)
    untrained = replace(
        members[0],
        weights={name: np.array(value) for name, value in weights.arrays(alone).items()},
        statistics={},
    )
    found = {
        "solo, head_refit": measured.chain("plain_mean,head_refit", [members[best]]),
        "random layers, head_refit": measured.chain("plain_mean,head_refit", [untrained]),
    }
    _fit(alone, x, y, ALONE, cell.seed)
    found["calibration rows alone"] = replace(measured.model(alone), trains=True)
    tuned = keras.models.clone_model(scratch)
    weights.assign(tuned, members[best].weights)
    _fit(tuned, x, y, TUNING, cell.seed)
    found["best solo, tuned on calibration rows"] = replace(measured.model(tuned), trains=True)
    return found


def _fit(model: keras.Model, x: np.ndarray, y: np.ndarray, epochs: int, seed: int) -> None:
    keras.utils.set_random_seed(seed)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(network.optimizer("adam", 1e-3), loss)
    model.fit(x, y, batch_size=64, epochs=epochs, verbose=0)  # pyright: ignore[reportArgumentType]


def _barriers(members: Sequence[Member], ground: Ground, measured: _Measuring) -> list[float]:
    """How far the loss rises between the first two members, as they are and with units matched."""
    rows = measured.rows.selection

    def loss(values: Mapping[str, np.ndarray]) -> tuple[float, float]:
        weights.assign(measured.scratch, values)
        logits = scoring.logits(measured.scratch, rows.x)
        return measures.cross_entropy(logits, rows.y), measures.accuracy(logits, rows.y)

    aligned = weight_matching.apply(State(tuple(members)), ground).members
    first = members[0].weights
    return [
        landscape.line(loss, (0, 1), first, other.weights, aligned=matched).barrier
        for other, matched in ((members[1], False), (aligned[1], True))
    ]
