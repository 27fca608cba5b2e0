"""Merging beside the rows, by real worker processes; what it takes to start apart or from one model."""

from dataclasses import replace

import keras
import numpy as np
import pytest

from fourfold.contract import keys, plan as plans
from fourfold.contract.errors import FourfoldError, InvalidInputError
from fourfold.contract.merges import Merging
from fourfold.contract.records import Trained
from fourfold.model import scoring, weights
from fourfold.rules import chain, models, statistics
from fourfold.rules.sites import Site, Together
from fourfold.rules.state import ground_of
from fourfold.store.formats import arrays_from_bytes
from fourfold.store.objects import open_store
from fourfold.train.step import check, train
from fourfold.worker import input

RULES = [
    "weight_matching,sequential_regmean",
    "activation_matching,plain_mean",
    "weight_matching,repair",
    "weight_matching,head_refit:steps=3",
    "fisher",
    "regmean",
]
LACKING = "weight_matching,ties"
"""A chain that cannot be applied, since no start is known."""


@pytest.fixture(scope="session")
def apart(once) -> Trained:
    """Two solos of own starts, on 400 rows of which each has mostly one half of the classes."""
    return once("solo", 400, "skew:90,10", 2, epochs=2, initial="independent")


@pytest.fixture(scope="session")
def merged(apart, tmp_path_factory) -> Trained:
    output = tmp_path_factory.mktemp("merged")
    merging = Merging(apart.training.output, [LACKING, *RULES])
    return train(replace(apart.training, output=str(output), merging=merging))


def loaded(trained: Trained, key: str) -> keras.Model:
    return scoring.from_bytes(open_store(trained.training.output).read(key), key)


@pytest.fixture(scope="session")
def together(apart) -> dict[str, dict[str, np.ndarray]]:
    """What the same rules give where all sites are in one process."""
    plan, found, sites = plans.of(apart.training), [], []
    members = [loaded(apart, keys.model(index)) for index in range(2)]
    scratch = keras.models.clone_model(members[0])
    for index, model in enumerate(members):
        shard = input.read_shard(apart.training, plan, index)
        x, y = shard.drawn(10_000)
        key = keys.statistics(index)
        sums = arrays_from_bytes(open_store(apart.training.output).read(key), key)
        found.append(models.of_model(f"model {index}", model, len(shard.numbers), index, sums))
        sites.append((x, y))
    ground = ground_of(scratch, sites[0][0], chain.WIDEST)
    asked = [Site(index, x, y, scratch, ground.maps) for index, (x, y) in enumerate(sites)]
    ground = replace(ground, sites=Together(asked))
    return {rule: dict(chain.apply(chain.read(rule), found, ground).base) for rule in RULES}


@pytest.mark.parametrize("rule", RULES)
def test_sites_that_are_apart_merge_as_sites_in_one_process(merged, together, rule):
    """Each worker read its own shard only; the others' rows reached it as sums."""
    found = weights.arrays(loaded(merged, keys.merged(RULES.index(rule))))

    for name, value in together[rule].items():
        np.testing.assert_allclose(found[name], value, rtol=1e-5, atol=1e-6, err_msg=name)


def test_all_workers_end_with_the_same_weights_and_say_what_they_sent(merged):
    first, second = merged.reports

    assert first.digests == second.digests
    assert len(set(first.digests)) == len(RULES)
    told = {each.rule: each for each in second.merges}
    assert list(told) == RULES
    assert told["weight_matching,sequential_regmean"].exchanges == 3
    assert told["weight_matching,head_refit:steps=3"].exchanges == 4
    assert second.said == [f"{LACKING} was left out: ties needs the weights that all members started from."]
    assert told["fisher"].exchanges == told["fisher"].sent == 0
    classes, inputs = 10, 785
    convolutions = 10 * 11 // 2 + 10 * 8 + 73 * 74 // 2 + 73 * 16
    # Products of inputs with each other are symmetric: one triangle is sent.
    sums = 8 * (convolutions + classes * (inputs * (inputs + 1) // 2 + inputs))
    assert told["weight_matching,sequential_regmean"].sent == sums


def test_a_merge_of_models_that_lack_classes_is_better_than_their_mean(apart, merged, store):
    """On the sample's test rows; the rule is no use where it is not."""
    from fourfold.cache import dataset

    data = open_store(str(store))
    manifest = dataset.read_manifest(data, apart.training.fingerprint)
    x, y = dataset.read_rows(data, manifest, "test")

    def accuracy(key: str) -> float:
        return float(np.mean(np.argmax(scoring.logits(loaded(merged, key), x), axis=1) == y))

    fitted, matched = accuracy(keys.merged(0)), accuracy(keys.merged(1))
    assert fitted > matched


def test_statistics_are_those_of_the_sites_own_rows(apart):
    for index in range(2):
        key = keys.statistics(index)
        sums = arrays_from_bytes(open_store(apart.training.output).read(key), key)
        shard = input.read_shard(apart.training, plans.of(apart.training), index)
        x, _ = shard.drawn(statistics.GRAM_ROWS)
        kinds = {name.partition("/")[0] for name in sums}
        assert kinds == {"fisher", "gram"}
        # Of the first layer's bias each row has a 1; of the last one, so has the model that was saved.
        assert sums["gram/5:Dense"][0, -1, -1] == pytest.approx(1)
        patches = np.lib.stride_tricks.sliding_window_view(
            np.pad(x[..., 0], ((0, 0), (1, 1), (1, 1))), (3, 3), axis=(1, 2)
        ).reshape(-1, 9)
        expected = patches.T.astype(np.float64) @ patches / len(x)
        np.testing.assert_allclose(sums["gram/0:Conv2D"][0, :9, :9], expected, rtol=1e-4)
        assert all((value >= 0).all() for name, value in sums.items() if name.startswith("fisher/"))


def test_rows_are_drawn_once_each_and_the_same_again(apart):
    shard = input.read_shard(apart.training, plans.of(apart.training), 1)

    x, y = shard.drawn(50)
    again, _ = shard.drawn(50)
    everything, labels = shard.drawn(10_000)

    assert x.shape == (50, 28, 28, 1)
    np.testing.assert_array_equal(x, again)
    np.testing.assert_array_equal(x, everything[:50])
    assert len(everything) == len(shard.numbers) == len(labels)
    assert len({row.tobytes() for row in everything}) == len(everything)
    assert len(set(y.tolist())) > 3


def test_models_that_start_apart_have_other_weights_from_the_first(once):
    shared = once("solo", 400, "contiguous", 2, epochs=1)
    other = once("solo", 400, "contiguous", 2, epochs=1, initial="independent")

    def distance(trained: Trained) -> float:
        a, b = (weights.arrays(loaded(trained, keys.model(index))) for index in range(2))
        return float(np.sqrt(sum(np.square(a[name] - b[name]).sum() for name in a)))

    assert distance(other) > 3 * distance(shared)


def test_a_warm_start_is_the_model_that_was_named(once):
    first = once("sequential", 400, epochs=1)
    uri = f"{first.training.output}/{keys.model(0)}"

    warm = once("solo", 400, "contiguous", 2, epochs=1, initial=uri, learning_rate=1e-9)

    for index in range(2):
        found = weights.arrays(loaded(warm, keys.model(index)))
        for name, value in weights.arrays(loaded(first, keys.model(0))).items():
            np.testing.assert_allclose(found[name], value, atol=1e-5)


def test_starts_that_there_are_not_are_refused(make_training):
    with pytest.raises(InvalidInputError, match="unknown initial 'sideways': use one of shared, independent"):
        check(make_training("solo", initial="sideways"))


def test_copies_of_one_model_share_their_start_whatever_is_asked(once):
    shared = once("federated", 400, "contiguous", 2, epochs=1)
    asked = once("federated", 400, "contiguous", 2, epochs=1, initial="independent")

    assert shared.reports[0].digests == asked.reports[0].digests


def test_a_warm_start_for_other_rows_is_refused(make_training, workers, tmp_path):
    keras.Sequential([keras.Input((4,)), keras.layers.Dense(3)]).save(tmp_path / "other.keras")

    with pytest.raises(FourfoldError, match=r"takes rows of shape \(4,\) and tells 3 classes apart"):
        train(make_training("solo", initial=str(tmp_path / "other.keras")))


def test_models_for_other_workers_and_unknown_rules_are_refused(once, apart, make_training, workers):
    three = make_training("solo", workers=3, merging=Merging(apart.training.output, ["plain_mean"]))
    with pytest.raises(FourfoldError, match="holds 2 models, and 3 workers are to merge one each"):
        train(three)

    wrong = replace(apart.training, output=three.output, merging=Merging(apart.training.output, ["plane"]))
    with pytest.raises(FourfoldError, match=r"unknown rule 'plane'(.|\n)*plain_mean"):
        train(wrong)


def test_a_damaged_model_is_named_and_nothing_is_written(apart, make_training, workers, tmp_path):
    source, copy = open_store(apart.training.output), open_store(str(tmp_path / "copy"))
    for key in source.list(""):
        copy.write(key, source.read(key))
    copy.write(keys.statistics(1), source.read(keys.statistics(1))[:-1] + b"!")
    asked = replace(apart.training, output=str(tmp_path / "out"), merging=Merging(copy.uri, ["plain_mean"]))

    with pytest.raises(FourfoldError, match=r"statistics-1\.safetensors in .* is not what its worker wrote"):
        train(asked)

    assert not open_store(str(tmp_path / "out")).exists(keys.TRAINED)
