"""The story of the step: read a training's scores, check that they belong to these rows, measure."""

from collections.abc import Mapping

import numpy as np

from fourfold.cache import dataset
from fourfold.contract import keys, plan as plans
from fourfold.contract.datasets import DatasetManifest
from fourfold.contract.errors import DamagedObjectError, MissingObjectError
from fourfold.contract.records import (
    Distances,
    Evaluation,
    ModelScore,
    Trained,
    WorkerReport,
)
from fourfold.contract.strict import finite, from_json
from fourfold.evaluate import distances
from fourfold.model import measures
from fourfold.store.formats import arrays_from_bytes, sha256
from fourfold.store.objects import Store, open_store


def evaluate(store: str, fingerprint: str, trained_at: str) -> Evaluation:
    """Measures one scenario.

    Args:
        store: URI of the store that holds the data set.
        fingerprint: of the data set.
        trained_at: URI of a training's output.

    Raises:
        MissingObjectError: the training's output is not there.
        DamagedObjectError: its scores or features are not those that its workers wrote.
    """
    data, output = open_store(store), open_store(trained_at)
    manifest = dataset.read_manifest(data, fingerprint)
    trained = _trained(output)
    labels = {part: dataset.read_rows(data, manifest, part)[1] for part in ("holdout", "test")}
    members = [_scores(output, trained, index, manifest) for index in range(trained.models)]
    digests = {report.model: report.digests[-1] for report in trained.reports}
    models = [measures.score(member, labels, digests[index]) for index, member in enumerate(members)]
    voted = _voted(members) if len(members) > 1 else None
    vote = _score(voted, labels) if voted else None
    apart, said = _distances(output, trained)
    if voted and vote and plans.scenario(trained.training.scenario).votes:
        accuracy, loss = vote.accuracy, vote.loss
        # The vote is probabilities already, and what is measured below takes logits.
        with np.errstate(divide="ignore"):
            speakers = [np.log(voted["test"])]
    else:
        accuracy, loss = float(np.mean([m.accuracy for m in models])), _mean([m.loss for m in models])
        speakers = [member["test"] for member in members]
    table = sum(measures.confusion(each, labels["test"], len(manifest.class_names)) for each in speakers)
    roc, auc = measures.roc(np.concatenate(speakers), np.tile(labels["test"], len(speakers)))
    return Evaluation(
        trained=trained,
        accuracy=accuracy,
        loss=loss,
        models=models,
        vote=vote,
        confusion=np.asarray(table).tolist(),
        class_names=manifest.class_names,
        test_rows=len(labels["test"]),
        roc=roc.tolist(),
        auc=auc,
        distances=apart,
        said=said,
    )


def _trained(output: Store) -> Trained:
    try:
        return from_json(Trained, output.read(keys.TRAINED), keys.TRAINED)
    except MissingObjectError as error:
        raise MissingObjectError(
            f"{error}: the training's output is not where it should be. Where Kubeflow took the training "
            "from its cache and the objects have been deleted since, run again without caching"
        ) from error


def _voted(members: list[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """The probabilities that the members agree on, [n, classes], for hold-out and test rows."""
    return {part: measures.soft_vote([member[part] for member in members]) for part in ("holdout", "test")}


def _score(voted: Mapping[str, np.ndarray], labels: Mapping[str, np.ndarray]) -> ModelScore:
    return ModelScore(
        accuracy=measures.accuracy(voted["test"], labels["test"]),
        loss=finite(measures.vote_loss(voted["test"], labels["test"])),
        holdout_accuracy=measures.accuracy(voted["holdout"], labels["holdout"]),
        holdout_loss=finite(measures.vote_loss(voted["holdout"], labels["holdout"])),
    )


def _distances(output: Store, trained: Trained) -> tuple[Distances | None, list[str]]:
    """How far apart the models are along training, where features were taken; and what to say of it."""
    chiefs = trained.chiefs
    if len(chiefs) < 2 or not any(keys.probes(chief.model) in chief.objects for chief in chiefs):
        return None, []
    members = [_features(output, trained, chief, chiefs[0].probed) for chief in chiefs]
    if len({member.shape for member in members}) > 1:
        raise DamagedObjectError(
            f"the features in {output.uri} are of shapes {[member.shape for member in members]}, "
            "and must be of one; train again"
        )
    values = distances.between(members)
    if not np.isfinite(values).all():
        return None, ["Features of the models are not all numbers: how far apart they are is not known."]
    pairs = [list(pair) for pair in distances.pairs(len(members))]
    found = Distances(chiefs[0].probed, pairs, values.tolist(), rows=members[0].shape[1])
    alike = distances.equal(values, len(members))
    votes = plans.scenario(trained.training.scenario).votes
    return found, [_equal(group) for group in alike] if votes else []


def _equal(group: list[int]) -> str:
    named = f"{', '.join(map(str, group[:-1]))} and {group[-1]}"
    return (
        f"Members {named} are equal (distance 0 throughout): their vote adds nothing; "
        "give them other --starts."
    )


def _features(output: Store, trained: Trained, chief: WorkerReport, steps: list[int]) -> np.ndarray:
    """A model's features of fixed rows after ``steps``, float32 [steps, rows, n]."""
    key = keys.probes(chief.model)
    if key not in chief.objects or chief.probed != steps:
        raise DamagedObjectError(
            f"{key} in {output.uri} should hold features after steps {steps}, as those of the other models, "
            f"and its worker took some after {chief.probed}; train again"
        )
    features = _arrays(output, trained, key).get("features")
    if features is None or features.ndim != 3 or not features.size or len(features) != len(steps):
        raise DamagedObjectError(
            f"{key} in {output.uri} holds no features for {len(steps)} steps; train again"
        )
    return features


def _arrays(output: Store, trained: Trained, key: str) -> dict[str, np.ndarray]:
    """The arrays of an object, if it is what its worker wrote."""
    expected = next((r.objects[key] for r in trained.reports if key in r.objects), None)
    data = output.read(key)
    if sha256(data) != expected:
        raise DamagedObjectError(f"{key} in {output.uri} is not what its worker wrote; train again")
    return arrays_from_bytes(data, key)


def _scores(output: Store, trained: Trained, index: int, manifest: DatasetManifest) -> dict[str, np.ndarray]:
    key = keys.scores(index)
    scores = _arrays(output, trained, key)
    for part in ("holdout", "test"):
        shape = (manifest.rows(part), len(manifest.class_names))
        if part not in scores or scores[part].shape != shape:
            raise DamagedObjectError(
                f"{key} in {output.uri} holds no {part} scores of shape {shape}; train again"
            )
    return scores


def _mean(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if len(known) == len(values) else None
