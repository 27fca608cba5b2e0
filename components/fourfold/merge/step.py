"""The story of the step: find the models that were trained apart, merge them by every rule, measure each."""

from collections.abc import Sequence

import numpy as np

from fourfold.cache import dataset
from fourfold.contract import keys, plan as plans
from fourfold.contract.records import Merged, ModelScore, Trained
from fourfold.contract.strict import from_json, to_json
from fourfold.merge import members as match
from fourfold.merge.rules import RULES
from fourfold.model import measures, scoring, weights
from fourfold.model.pinned import keras
from fourfold.store.objects import Store, open_store


def merge(store: str, fingerprint: str, trainings: Sequence[str], output: str) -> Merged:
    """Merges the models of the first training whose plan merges weights once, after training.

    Args:
        store: URI of the store that holds the data set.
        fingerprint: of the data set.
        trainings: URIs of trainings' outputs.
        output: URI of the folder that merged models are written below.

    Returns:
        Each rule's score, as written to the output.

    Raises:
        InvalidInputError: the models cannot be merged.
        MissingObjectError: a training did not end well.
    """
    target = open_store(output)
    target.delete(keys.MERGED)
    for uri in trainings:
        source = open_store(uri)
        trained = from_json(Trained, source.read(keys.TRAINED), keys.TRAINED)
        if plans.scenario(trained.training.scenario).merges_after_training and trained.models > 1:
            merged = _merge(store, fingerprint, source, trained, target)
            break
    else:
        merged = Merged(
            members=0, said=["No scenario trained several models apart, so there was nothing to merge."]
        )
    target.write(keys.MERGED, to_json(merged))
    return merged


def _merge(store: str, fingerprint: str, source: Store, trained: Trained, target: Store) -> Merged:
    models = [
        scoring.from_bytes(source.read(keys.model(index)), keys.model(index))
        for index in range(trained.models)
    ]
    rows = {report.model: report.rows for report in trained.reports}
    members = [_member(f"model {index}", model, rows[index]) for index, model in enumerate(models)]
    match.check(members)
    data = open_store(store)
    manifest = dataset.read_manifest(data, fingerprint)
    parts = {part: dataset.read_rows(data, manifest, part) for part in ("holdout", "test")}
    scores: dict[str, ModelScore] = {}
    for name, rule in RULES.items():
        weights.assign(models[0], rule(members))
        logits = {part: scoring.logits(models[0], x) for part, (x, _) in parts.items()}
        labels = {part: y for part, (_, y) in parts.items()}
        scores[name] = measures.score(logits, labels, weights.digest(weights.arrays(models[0])))
        target.write(f"{name}.keras", scoring.to_bytes(models[0]))
    return Merged(members=len(members), rules=scores, said=_said(members))


def _member(name: str, model: keras.Model, rows: int) -> match.Member:
    return match.Member(
        name=name,
        weights={key: np.array(value) for key, value in weights.arrays(model).items()},
        structure=tuple(weights.structure(model)),
        layer_names=tuple(weights.given_names(model)),
        rows=rows,
    )


def _said(members: Sequence[match.Member]) -> list[str]:
    statistics = [name for name in members[0].weights if "/moving_" in name]
    kept = [name for name, value in members[0].weights.items() if not match.is_floating(value)]
    said = []
    if statistics:
        said.append(f"BatchNorm's moving statistics were averaged like weights ({len(statistics)} arrays).")
    if kept:
        said.append(f"State that is not floating point was taken from the first model: {', '.join(kept)}.")
    return said
