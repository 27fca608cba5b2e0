"""The story of the step: read a training's scores, check that they belong to these rows, measure."""

from collections.abc import Mapping

import numpy as np

from fourfold.contract import keys
from fourfold.contract.errors import DamagedObjectError, MissingObjectError
from fourfold.contract.records import DatasetManifest, Evaluation, ModelScore, Trained, finite, from_json
from fourfold.model import measures
from fourfold.store import cache
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
        DamagedObjectError: its scores are not those that its workers wrote.
    """
    data, output = open_store(store), open_store(trained_at)
    manifest = cache.read_manifest(data, fingerprint)
    trained = _trained(output)
    labels = {part: cache.read_rows(data, manifest, part)[1] for part in ("holdout", "test")}
    members = [_scores(output, trained, index, manifest) for index in range(trained.models)]
    digests = {report.model: report.digests[-1] for report in trained.reports}
    models = [measures.score(member, labels, digests[index]) for index, member in enumerate(members)]
    table = sum(
        measures.confusion(member["test"], labels["test"], len(manifest.class_names)) for member in members
    )
    stacked = np.concatenate([member["test"] for member in members])
    roc, auc = measures.roc(stacked, np.tile(labels["test"], len(members)))
    return Evaluation(
        trained=trained,
        accuracy=float(np.mean([model.accuracy for model in models])),
        loss=_mean([model.loss for model in models]),
        models=models,
        vote=_vote(members, labels) if len(members) > 1 else None,
        confusion=np.asarray(table).tolist(),
        class_names=manifest.class_names,
        test_rows=len(labels["test"]),
        roc=roc.tolist(),
        auc=auc,
    )


def _trained(output: Store) -> Trained:
    try:
        return from_json(Trained, output.read(keys.TRAINED), keys.TRAINED)
    except MissingObjectError as error:
        raise MissingObjectError(
            f"{error}: the training's output is not where it should be. Where Kubeflow took the training "
            "from its cache and the objects have been deleted since, run again without caching"
        ) from error


def _vote(members: list[dict[str, np.ndarray]], labels: Mapping[str, np.ndarray]) -> ModelScore:
    voted = {part: measures.soft_vote([member[part] for member in members]) for part in labels}
    return ModelScore(
        accuracy=measures.accuracy(voted["test"], labels["test"]),
        loss=finite(measures.vote_loss(voted["test"], labels["test"])),
        holdout_accuracy=measures.accuracy(voted["holdout"], labels["holdout"]),
        holdout_loss=finite(measures.vote_loss(voted["holdout"], labels["holdout"])),
    )


def _scores(output: Store, trained: Trained, index: int, manifest: DatasetManifest) -> dict[str, np.ndarray]:
    key = keys.scores(index)
    expected = next((r.objects[key] for r in trained.reports if key in r.objects), None)
    data = output.read(key)
    if sha256(data) != expected:
        raise DamagedObjectError(f"{key} in {output.uri} is not what its worker wrote; train again")
    scores = arrays_from_bytes(data, key)
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
