"""The step on two models that were really trained, each on its own rows; only the workers are left out."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

from fourfold.cache import dataset, splits
from fourfold.contract import keys, merges
from fourfold.contract.errors import DamagedObjectError, InvalidInputError, MissingObjectError
from fourfold.contract.merged import Merged
from fourfold.contract.records import Epoch, Trained, Training, WorkerReport
from fourfold.contract.strict import from_json, to_json
from fourfold.merge import publish
from fourfold.merge.step import merge
from fourfold.model import network, scoring, weights
from fourfold.prepare.step import Prepared, prepare
from fourfold.store.objects import open_store

BARE = ["plain_mean", "weighted_mean", "weight_matching,plain_mean", "greedy_soup"]
"""What can be merged without anything that sites gathered."""


@pytest.fixture(scope="module")
def store(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("merge-store")


@pytest.fixture(scope="module")
def prepared(store) -> Prepared:
    return prepare(str(store), rows=50, holdout=20, split="sizes:60,40")


@pytest.fixture(scope="module")
def models(store, prepared) -> list[bytes]:
    """Two models from one start, each trained on its own shard for a moment."""
    source = open_store(str(store))
    _, shards = splits.read_split(source, prepared.manifest.fingerprint, prepared.split.id)
    trained = []
    for shard in shards:
        x, y = dataset.read_rows(source, prepared.manifest, "train", shard)
        model = network.build((28, 28, 1), 10, seed=0)
        model.compile(network.optimizer("adam", 3e-3), keras.losses.SparseCategoricalCrossentropy(True))
        for _ in range(12):
            model.train_on_batch(x, y)
        trained.append(scoring.to_bytes(model))
    return trained


def training(store: Path, prepared: Prepared, scenario: str = "solo") -> Training:
    return Training(scenario, 2, str(store), prepared.manifest.fingerprint, prepared.split.id, output="")


def write(folder: Path, asked: Training, models: list[bytes], rows: tuple[int, ...] = (30, 20)) -> str:
    """Writes what the train step would have left of separate models."""
    target = open_store(str(folder))
    reports = []
    for index, data in enumerate(models):
        target.write(keys.model(index), data)
        reports.append(
            WorkerReport(index, str(index), index, rows[index], [Epoch(1.0, 0.5, 0.1, rows[index])], ["d"])
        )
    trained = Trained(asked, len(models), 1, len(models), asked.batch, 1, reports)
    target.write(keys.TRAINED, to_json(trained))
    return str(folder)


@pytest.fixture
def run(store, prepared, models, tmp_path):
    """Merges the two models, or those given."""

    def run(models: list[bytes] = models, rows: tuple[int, ...] = (30, 20)) -> Merged:
        uri = write(tmp_path / "solo", training(store, prepared), models, rows)
        return merge(str(store), prepared.manifest.fingerprint, [uri], str(tmp_path / "merged"))

    return run


def loaded(path: Path) -> Any:
    """A model as plain Keras loads it."""
    return keras.models.load_model(path)


@pytest.fixture(scope="module")
def done(store, prepared, models, tmp_path_factory) -> tuple[Merged, Path]:
    """The two models merged once, for tests that only look."""
    folder = tmp_path_factory.mktemp("done")
    uri = write(folder / "solo", training(store, prepared), models, rows=(30, 10))
    merged = merge(str(store), prepared.manifest.fingerprint, [uri], str(folder / "merged"))
    return merged, folder / "merged"


def test_every_rule_is_scored_and_written_whole(done):
    merged, folder = done

    assert merged.members == 2
    assert list(merged.rules) == BARE
    files = {"merged.json", keys.HANDED_ON, *(f"{merges.file_name(rule)}.keras" for rule in BARE)}
    assert {path.name for path in folder.iterdir()} == files
    assert from_json(Merged, (folder / keys.MERGED).read_bytes()) == merged


@pytest.mark.parametrize("rule", BARE)
def test_what_plain_keras_loads_reaches_what_was_reported(done, store, prepared, rule):
    score = done[0].rules[rule]

    model = loaded(done[1] / f"{merges.file_name(rule)}.keras")

    for part, accuracy, loss in (
        ("test", score.accuracy, score.loss),
        ("holdout", score.holdout_accuracy, score.holdout_loss),
    ):
        x, y = dataset.read_rows(open_store(str(store)), prepared.manifest, part)
        logits = model.predict(x, verbose=0)
        assert np.mean(np.argmax(logits, axis=1) == y) == pytest.approx(accuracy)
        losses: Any = keras.losses.sparse_categorical_crossentropy(y, logits, from_logits=True)
        assert float(np.mean(losses)) == pytest.approx(loss, rel=1e-4)
    assert weights.digest(weights.arrays(model)) == score.weights_sha256


def test_the_merged_weights_are_those_means(done, models):
    a, b = (weights.arrays(scoring.from_bytes(data, "m")) for data in models)

    for rule, share in (("plain_mean", 0.5), ("weighted_mean", 0.75)):
        merged = weights.arrays(loaded(done[1] / f"{rule}.keras"))
        for name, value in merged.items():
            np.testing.assert_allclose(value, share * a[name] + (1 - share) * b[name], rtol=1e-5, atol=1e-7)


def test_a_model_merged_with_itself_stays_itself(run, models):
    merged = run(models=[models[0]] * 2)

    digest = weights.digest(weights.arrays(scoring.from_bytes(models[0], "m")))
    assert {score.weights_sha256 for score in merged.rules.values()} == {digest}


def test_a_missing_model_is_named_and_no_older_merge_is_left(store, prepared, models, tmp_path):
    uri = write(tmp_path / "solo", training(store, prepared), models)
    (tmp_path / "solo" / "model-1.keras").unlink()
    older = tmp_path / "merged" / keys.MERGED
    older.parent.mkdir()
    older.write_bytes(to_json(Merged(members=2)))

    with pytest.raises(MissingObjectError, match=r"model-1\.keras"):
        merge(str(store), prepared.manifest.fingerprint, [uri], str(tmp_path / "merged"))

    assert not older.exists()


def test_a_damaged_model_is_named(run, models):
    with pytest.raises(DamagedObjectError, match=r"model-1\.keras"):
        run(models=[models[0], models[1][: len(models[1]) // 2]])


def test_a_model_of_another_structure_is_refused(run, models):
    other = scoring.to_bytes(network.build((28, 28, 1), 9, seed=0))

    with pytest.raises(
        InvalidInputError, match=r"model 1 has not the structure of model 0(.|\n)*Dense \(9,\)"
    ):
        run(models=[models[0], other])


def test_a_training_that_did_not_end_well_is_refused(tmp_path):
    with pytest.raises(MissingObjectError, match=r"trained\.json"):
        merge("unused", "unused", [str(tmp_path / "solo")], str(tmp_path / "merged"))


def test_statistics_and_state_of_real_layers_are_averaged_and_kept(run, tmp_path):
    """BatchNorm's mean is averaged; Normalization's int64 count stays what it is in the first member."""
    layers = keras.layers
    members = []
    for value in (0, 10):
        model = keras.Sequential([
            keras.Input((28, 28, 1)), layers.Normalization(), layers.BatchNormalization(),
            layers.Dropout(0.5), layers.Flatten(), layers.Dense(10),
        ])  # fmt: skip
        model.layers[0].count.assign(value + 1)
        model.layers[1].moving_mean.assign([value])
        members.append(scoring.to_bytes(model))

    said = " ".join(run(models=members, rows=(25, 25)).said)

    merged = loaded(tmp_path / "merged" / "weighted_mean.keras")
    assert merged.layers[1].moving_mean.numpy().tolist() == [5]
    assert merged.layers[0].count.dtype == "int64"
    assert int(merged.layers[0].count.numpy()) in (1, 11)
    assert "moving statistics were averaged" in said
    assert "0:Normalization/count" in said


@pytest.mark.parametrize("scenarios", [[], ["sequential"], ["sequential", "data_parallel"]])
def test_without_models_trained_apart_it_says_so(store, prepared, models, tmp_path, scenarios):
    uris = [
        write(tmp_path / name, training(store, prepared, name), models[:1], rows=(50,)) for name in scenarios
    ]

    merged = merge(str(store), prepared.manifest.fingerprint, uris, str(tmp_path / "merged"))

    assert (merged.members, merged.rules) == (0, {})
    assert "nothing to merge" in merged.said[0]
    assert from_json(Merged, (tmp_path / "merged" / keys.MERGED).read_bytes()) == merged


def test_one_solo_model_is_not_merged(store, prepared, models, tmp_path):
    asked = replace(training(store, prepared), workers=1)
    uri = write(tmp_path / "solo", asked, models[:1], rows=(50,))

    assert merge(str(store), prepared.manifest.fingerprint, [uri], str(tmp_path / "merged")).members == 0


def test_the_solo_training_is_found_among_others(store, prepared, models, tmp_path):
    uris = [
        write(tmp_path / "sequential", training(store, prepared, "sequential"), models[:1], rows=(50,)),
        write(tmp_path / "solo", training(store, prepared), models),
    ]

    assert merge(str(store), prepared.manifest.fingerprint, uris, str(tmp_path / "merged")).members == 2


def test_kfp_gets_an_accuracy_a_rule_and_strict_json(store, prepared, models, tmp_path):
    from kfp import dsl

    uri = write(tmp_path / "solo", training(store, prepared), models)
    output, metrics = dsl.Model(uri=str(tmp_path / "merged")), dsl.Metrics()

    publish.run(
        str(store), prepared.manifest.fingerprint, "", [uri], "", output.path, output.metadata, metrics
    )

    gate = from_json(Merged, (tmp_path / "merged" / keys.MERGED).read_bytes()).gate
    assert gate is not None
    assert output.metadata == {
        "framework": "keras",
        "members": 2,
        "handed_on": gate.handed_on,
        "handed_on_file": keys.HANDED_ON,
    }
    assert set(metrics.metadata) == {f"{merges.file_name(rule)}_accuracy" for rule in BARE}
    json.dumps(metrics.metadata, allow_nan=False)
