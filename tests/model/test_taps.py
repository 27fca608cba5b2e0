"""Taps show what goes through layers, whatever models they lie in, and leave nothing changed."""

import keras
import numpy as np
import pytest

from fourfold.model import linear, taps
from tests.rules import models

layers = keras.layers
Seen = list[tuple[str, np.ndarray, np.ndarray]]


def watched(model: keras.Model, names: list[str], x: np.ndarray, batch: int = 250) -> Seen:
    seen: Seen = []
    found, _ = linear.maps(model)
    told = {name: found[name].layer for name in names}
    taps.watch(model, told, x, lambda *each: seen.append(each), batch)
    return seen


@pytest.mark.parametrize("kind", models.KINDS)
def test_what_comes_out_is_the_layers_own_map_of_what_goes_in_before_its_activation(kind):
    model = models.KINDS[kind]()
    values, x = models.drawn(model, 1), models.rows(model, 1, 8)
    models.logits(model, values, x)
    maps, said = linear.maps(model)
    names = [name for name in maps if not name.endswith("Embedding")]

    for name, given, made in watched(model, names, x):
        rows, matrix = maps[name].rows(given), maps[name].matrix(values)
        by_hand = np.einsum("nbd,bdo->nbo", rows, matrix).reshape(made.shape)
        np.testing.assert_allclose(made, by_hand, rtol=1e-3, atol=1e-4)
    assert not said or kind == "cnn"


@pytest.mark.parametrize("batch", [3, 8])
@pytest.mark.parametrize("kind", models.KINDS)
def test_every_row_is_seen_once_in_its_order_however_batches_are_cut(kind, batch):
    model = models.KINDS[kind]()
    x = models.rows(model, 1, 8)
    for name in linear.maps(model)[0]:
        whole, pieces = watched(model, [name], x), watched(model, [name], x, batch)
        uses = len(whole)

        for use in range(uses):
            for place in (1, 2):
                got = np.concatenate([np.asarray(each[place]) for each in pieces[use::uses]])
                np.testing.assert_allclose(got, np.asarray(whole[use][place]), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("count", [4, 600])
def test_a_layer_that_is_used_twice_is_seen_twice_also_within_a_model_in_the_model(count):
    model = models.shared()
    x = models.rows(model, 1, count)
    batches = -(-count // 250)

    for name in ("3:Dense", "4:Sequential/1:Dense", "4:Sequential/0:Dense"):
        assert len(watched(model, [name], x)) == 2 * batches


def test_layers_are_seen_in_the_order_in_which_the_model_uses_them():
    """Keras lists a branch's layers by depth, the graph by their making; what counts is the run."""
    model = models.text()
    found, _ = linear.maps(model)
    layers_of = {name: each.layer for name, each in reversed(found.items())}

    order = taps.order(model, layers_of, models.rows(model, 1, 3))

    assert order == [
        "1:Embedding", "2:Conv1D", "3:Sequential/0:Dense", "3:Sequential/1:Dense", "5:Dense",
    ]  # fmt: skip


def test_nothing_beyond_the_last_layer_asked_for_runs_once_its_uses_are_known():
    class Counted(layers.Layer):
        runs = 0

        def call(self, x):
            Counted.runs += 1
            return x

    model = keras.Sequential([keras.Input((5,)), layers.Dense(4), Counted(), layers.Dense(2)])
    Counted.runs = 0

    assert len(watched(model, ["0:Dense"], models.rows(model, 1, 8), batch=2)) == 4
    assert Counted.runs == 1


def test_training_state_and_dropout_are_those_of_inference():
    model = keras.Sequential(
        [keras.Input((5,)), layers.Dropout(0.9), layers.BatchNormalization(), layers.Dense(2)]
    )
    x = models.rows(model, 1, 40)
    before = model.get_weights()

    ((_, given, _),) = watched(model, ["1:BatchNormalization"], x)

    np.testing.assert_allclose(given, x)
    for a, b in zip(before, model.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("fails", [False, True])
def test_taps_are_taken_off_also_when_somebody_who_looks_fails(fails):
    model = models.plain()
    x, seen = models.rows(model, 1, 3), []
    found, _ = linear.maps(model)
    first = found["0:Dense"].layer
    activation, before = first.activation, model(x).numpy()

    def see(name, given, made):
        seen.append(name)
        if fails:
            raise KeyError(name)

    told = {name: each.layer for name, each in found.items()}
    if fails:
        with pytest.raises(KeyError):
            taps.watch(model, told, x, see)
    else:
        taps.watch(model, told, x, see)
    count = len(seen)

    np.testing.assert_array_equal(model(x).numpy(), before)
    assert len(seen) == count
    assert first.activation is activation
    assert linear.maps(model)[0].keys() == found.keys()
