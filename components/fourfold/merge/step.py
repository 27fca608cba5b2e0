"""The story of the step: find models that were trained apart, merge them by every rule, measure, decide."""

import time
from collections.abc import Mapping, Sequence

import numpy as np

from fourfold.cache import dataset, splits
from fourfold.contract import keys, merges, plan as plans
from fourfold.contract.datasets import DatasetManifest
from fourfold.contract.errors import DamagedObjectError
from fourfold.contract.merged import Gate, Line, Merged, RuleTold, Slice
from fourfold.contract.records import ModelScore, Trained
from fourfold.contract.strict import from_json, to_json
from fourfold.merge import ensemble, judge, landscape
from fourfold.model import measures, scoring, weights
from fourfold.model.pinned import keras
from fourfold.rules import chain, members as match, models as models_of, weight_matching
from fourfold.rules.state import Ground, Rows, State, ground_of
from fourfold.rules.table import NEEDS
from fourfold.store.formats import sha256
from fourfold.store.objects import Store, open_store

Weights = Mapping[str, np.ndarray]
LANDSCAPE_ROWS = 500
"""Hold-out rows that the loss between models is measured on."""


def merge(store: str, fingerprint: str, trainings: Sequence[str], output: str, at_sites: str = "") -> Merged:
    """Merges the models of the first training whose plan merges weights once, after training.

    Args:
        store: URI of the store that holds the data set.
        fingerprint: of the data set.
        trainings: URIs of trainings' outputs.
        output: URI of the folder that merged models are written below.
        at_sites: URI of the output of a merge at the sites of these models; empty for none.

    Returns:
        Each rule's score and what came of it, as written to the output.

    Raises:
        InvalidInputError: the models cannot be merged.
        MissingObjectError: a training did not end well.
        DamagedObjectError: an object is not what its worker wrote.
    """
    target = open_store(output)
    target.delete(keys.MERGED)
    for uri in trainings:
        source = open_store(uri)
        trained = from_json(Trained, source.read(keys.TRAINED), keys.TRAINED)
        if plans.trained_apart(trained):
            merged = _Merge(store, fingerprint, source, trained, target).run(at_sites)
            break
    else:
        merged = Merged(
            members=0, said=["No scenario trained several models apart, so there was nothing to merge."]
        )
    target.write(keys.MERGED, to_json(merged))
    return merged


class _Merge:
    """One merge of one training's models."""

    def __init__(self, store: str, fingerprint: str, source: Store, trained: Trained, target: Store):
        self.trained, self.target = trained, target
        self.members, models = models_of.of_training(source, trained)
        match.check(self.members)
        data = open_store(store)
        self.manifest: DatasetManifest = dataset.read_manifest(data, fingerprint)
        self.parts = {
            part: Rows(*dataset.read_rows(data, self.manifest, part)) for part in ("holdout", "test")
        }
        split, _ = splits.read_split(data, fingerprint, trained.training.split)
        self.classes = split.classes
        # Rules that learn from pooled rows see one half, what is handed on is decided by the other.
        holdout = self.parts["holdout"]
        middle = len(holdout.y) // 2
        self.calibration = Rows(holdout.x[:middle], holdout.y[:middle]) if middle else None
        self.selection = Rows(holdout.x[middle:], holdout.y[middle:])
        self.models, self.scratch = models, keras.models.clone_model(models[0])
        self.scores: dict[str, ModelScore] = {}
        self.chosen: dict[str, float] = {}
        self.told: list[RuleTold] = []
        self.found: dict[str, dict[str, np.ndarray]] = {}

    def run(self, at_sites: str) -> Merged:
        ground = ground_of(
            self.scratch, self.parts["holdout"].x, chain.WIDEST,
            calibration=self.calibration, seed=self.trained.training.seed,
        )  # fmt: skip
        said: list[str] = []
        for rule in merges.RULES:
            links = chain.read(rule)
            if lacking := chain.missing(links, self.members, ground):
                said.append(f"{rule} was left out: {lacking}.")
                continue
            started = time.perf_counter()
            state = chain.apply(links, self.members, ground)
            self._keep(rule, state.base, time.perf_counter() - started, state.said, 0, 0)
        if at_sites and not (asked := open_store(at_sites)).exists(keys.NOTHING):
            said += self._from_sites(asked)
        lines, plane = self._landscape(ground)
        solos = [self._accuracy(member.weights) for member in self.members]
        gate = self._gate(solos)
        said = [*_said(self.members), *said, judge.said_of(gate)]
        return Merged(
            members=len(self.members),
            rules=self.scores,
            said=said,
            told=self.told,
            lines=lines,
            slice=plane,
            gate=gate,
            causes=judge.causes(
                lines,
                self.classes,
                self.manifest.class_names,
                self.chosen,
                solos,
                [chief.epochs[-1].accuracy for chief in self.trained.chiefs],
            ),
        )

    def _from_sites(self, source: Store) -> list[str]:
        """Takes what the sites merged together; gives what they had to say."""
        done = from_json(Trained, source.read(keys.TRAINED), keys.TRAINED)
        chief = done.reports[0]
        for index, told in enumerate(chief.merges):
            key = keys.merged(index)
            data = source.read(key)
            if sha256(data) != chief.objects.get(key):
                raise DamagedObjectError(f"{key} in {source.uri} is not what its worker wrote; merge again")
            values = weights.arrays(scoring.from_bytes(data, key))
            self._keep(told.rule, values, told.seconds, told.said, told.exchanges, told.sent)
        return chief.said

    def _keep(
        self, rule: str, values: Weights, seconds: float, said: Sequence[str], exchanges: int, sent: int
    ) -> None:
        """Scores a merge and writes its model."""
        weights.assign(self.scratch, values)
        logits = {part: scoring.logits(self.scratch, rows.x) for part, rows in self.parts.items()}
        labels = {part: rows.y for part, rows in self.parts.items()}
        self.found[rule] = {name: np.array(value) for name, value in values.items()}
        self.scores[rule] = measures.score(logits, labels, weights.digest(weights.arrays(self.scratch)))
        self.chosen[rule] = measures.accuracy(logits["holdout"][-len(self.selection.y) :], self.selection.y)
        self.target.write(f"{merges.file_name(rule)}.keras", scoring.to_bytes(self.scratch))
        links = chain.read(rule)
        gathered = chain.gathered(links, self.members)
        self.told.append(
            RuleTold(
                rule=rule,
                needs=list(dict.fromkeys(NEEDS[link.rule.needs] for link in links)),
                exchanges=exchanges + (1 if gathered else 0),
                sent=sent + gathered,
                seconds=seconds,
                trains=any(link.rule.trains for link in links),
                classes=_by_class(logits["test"], labels["test"], len(self.manifest.class_names)),
                said=list(said),
            )
        )

    def _accuracy(self, values: Weights) -> float:
        weights.assign(self.scratch, values)
        return measures.accuracy(scoring.logits(self.scratch, self.selection.x), self.selection.y)

    def _landscape(self, ground: Ground) -> tuple[list[Line], Slice | None]:
        """The loss along the line between the first two members, and on a plane with a third point."""
        holdout = self.parts["holdout"]
        x, y = holdout.x[:LANDSCAPE_ROWS], holdout.y[:LANDSCAPE_ROWS]

        def measure(values: Weights) -> tuple[float, float]:
            weights.assign(self.scratch, values)
            logits = scoring.logits(self.scratch, x)
            return measures.cross_entropy(logits, y), measures.accuracy(logits, y)

        aligned = weight_matching.apply(State(tuple(self.members)), ground).members
        a, b = self.members[0].weights, self.members[1].weights
        lines = [
            landscape.line(measure, (0, 1), a, b, aligned=False),
            landscape.line(measure, (0, 1), a, aligned[1].weights, aligned=True),
        ]
        points: dict[str, Weights] = {"solo 0": a, "solo 1": b}
        if len(self.members) > 2:
            points["solo 2"] = self.members[2].weights
        elif merges.CHOSEN in self.found:
            points["merged"] = self.found[merges.CHOSEN]
        else:
            points["aligned solo 1"] = aligned[1].weights
        return lines, landscape.plane(measure, points)

    def _gate(self, solos: Sequence[float]) -> Gate:
        """Decides by the members' accuracies and its own what is handed on, and writes it."""
        x, y = self.selection.x, self.selection.y
        rule = (
            merges.CHOSEN if merges.CHOSEN in self.chosen else max(self.chosen, key=self.chosen.__getitem__)
        )
        vote = measures.soft_vote([scoring.logits(model, x) for model in self.models])
        gate = judge.gate(rule, self.chosen[rule], solos, measures.accuracy(vote, y), merges.MARGIN, len(y))
        if gate.handed_on == judge.VOTE:
            self.target.write(keys.HANDED_ON, scoring.to_bytes(ensemble.of(self.models)))
        else:
            best = self.members[int(np.argmax(solos))].weights
            weights.assign(self.scratch, self.found[rule] if gate.handed_on == judge.MERGE else best)
            self.target.write(keys.HANDED_ON, scoring.to_bytes(self.scratch))
        return gate


def _by_class(logits: np.ndarray, labels: np.ndarray, classes: int) -> list[float]:
    table = measures.confusion(logits, labels, classes)
    counts = np.maximum(np.bincount(labels, minlength=classes), 1)
    return (np.diag(table) / counts).tolist()


def _said(members: Sequence[match.Member]) -> list[str]:
    statistics = [name for name in members[0].weights if "/moving_" in name]
    kept = [name for name, value in members[0].weights.items() if not match.is_floating(value)]
    said = []
    if statistics:
        said.append(
            f"BatchNorm's moving statistics were averaged like weights ({len(statistics)} arrays) "
            "where no rule of a chain computes them."
        )
    if kept:
        first = chain.ordered(members)[0].name
        said.append(f"State that is not floating point was taken from {first}: {', '.join(kept)}.")
    return said
