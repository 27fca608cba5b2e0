"""A model cut into stages: where, into what, and that the stages together are the model."""

import functools
import itertools
import math
import subprocess
import sys
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings, strategies as st

from fourfold.contract.errors import InvalidInputError
from fourfold.model import network, stages, weights

layers = keras.layers


def chain(*parts: keras.Layer, width: int = 4) -> keras.Model:
    return keras.Sequential([keras.Input((width,)), *parts])


def default() -> keras.Model:
    return network.build((28, 28, 1), 10, seed=0)


def mlp() -> keras.Model:
    return chain(*(layers.Dense(units, activation="relu") for units in (9, 8, 7, 6, 5)), layers.Dense(3))


def residual() -> keras.Model:
    """Branches of unequal length within, so that graph order is not the order of making."""
    start = keras.Input((6,))
    stem = layers.Dense(5, name="stem")(start)
    short, long = layers.Dense(5)(stem), layers.Dense(5)(layers.Dense(5)(stem))
    joined = layers.Add(name="join")([short, long])
    return keras.Model(start, layers.Dense(3, name="head")(layers.Dense(4, name="neck")(joined)))


def shared() -> keras.Model:
    """One layer used twice, both times before the places."""
    start = keras.Input((4,))
    twice = layers.Dense(4, name="twice")
    return keras.Model(start, layers.Dense(2)(layers.Dense(3)(twice(layers.ReLU()(twice(start))))))


def nested() -> keras.Model:
    inner = chain(layers.Dense(4), layers.Dropout(0.3, seed=5), layers.Dense(4))
    start = keras.Input((4,))
    return keras.Model(start, layers.Dense(2)(inner(layers.Dense(4)(start))))


def normalised() -> keras.Model:
    return chain(layers.Dense(5), layers.BatchNormalization(), layers.ReLU(), layers.Dense(2))


def dropping() -> keras.Model:
    drop, other = layers.Dropout(0.4, seed=1), layers.Dropout(0.4)
    return chain(layers.Dense(6), drop, layers.Dense(6), other, layers.Dense(2))


def two_dtypes() -> keras.Model:
    return chain(*(layers.Dense(4, dtype=dtype) for dtype in ("mixed_float16", "mixed_float16", "float32")))


def operations() -> keras.Model:
    start: Any = keras.Input((4,))
    turned: Any = keras.ops.reshape(layers.Dense(4)(start * 2.0), (-1, 2, 2))
    return keras.Model(start, layers.Dense(2)(turned[:, 0] + 1.0))


def several() -> keras.Model:
    """Two inputs before the places, two outputs after them."""
    ends = {name: keras.Input((3,), name=name) for name in ("left", "right")}
    joined = layers.Concatenate(name="join")([layers.Dense(3)(ends["left"]), ends["right"]])
    body = layers.Dense(4, name="body")(joined)
    return keras.Model(ends, [layers.Dense(2, name="one")(body), layers.Dense(1, name="two")(body)])


def adapted() -> keras.Model:
    scale = layers.Normalization()
    scale.adapt(np.random.default_rng(2).normal(5, 3, (50, 4)).astype(np.float32))
    return chain(scale, layers.Dense(3), layers.Dense(2))


def frozen() -> keras.Model:
    model = chain(layers.Dense(4), nested(), layers.Dense(2))
    model.layers[1].layers[1].trainable = False
    model.layers[2].kernel.trainable = False
    return model


def asleep() -> keras.Model:
    model = normalised()
    model.trainable = False
    return model


PLAIN = [default, mlp, residual, shared, nested, dropping]
BUILDERS = [*PLAIN, normalised, two_dtypes, operations, several, adapted, frozen, asleep]


def rows(model: keras.Model):
    rng = np.random.default_rng(1)
    taken = model.inputs[0] if isinstance(model, keras.Sequential) else model.input
    return keras.tree.map_structure(lambda tensor: rng.random((6, *tensor.shape[1:]), np.float32), taken)


def through(parts: list[keras.Model], x, **call) -> Any:
    return functools.reduce(lambda value, stage: stage(value, **call), parts, x)


def every_cut(model: keras.Model):
    """No place, each place alone, and all of them."""
    found = stages.places(model)
    return [(), *((place,) for place in found), tuple(found)]


@pytest.mark.parametrize("build", BUILDERS)
@pytest.mark.parametrize("training", [False, True])
def test_the_stages_together_are_the_model(build, training):
    model = build()
    x = rows(model)
    for at in every_cut(model):
        parts = stages.cut(model, at)  # With the seeds' state, so that masks are the same.

        theirs = keras.tree.flatten(through(parts, x, training=training))

        assert len(parts) == len(at) + 1
        for mine, other in zip(keras.tree.flatten(model(x, training=training)), theirs, strict=True):
            assert mine.dtype == other.dtype
            np.testing.assert_allclose(other, mine, rtol=0, atol=1e-6)


@pytest.mark.parametrize("number", [1, 2, 3, 4])
def test_an_mlp_in_one_to_four_stages(number):
    model = mlp()
    parts = stages.cut(model, stages.choose(model, number))
    assert len(parts) == number
    np.testing.assert_allclose(through(parts, rows(model)), through([model], rows(model)), rtol=0, atol=1e-6)


@pytest.mark.parametrize("build", BUILDERS)
def test_every_variable_has_one_counterpart_in_the_order_of_the_model(build):
    model = build()
    for at in every_cut(model):
        parts = stages.cut(model, at)
        found = stages.pairs(model, parts)

        assert list(map(id, model.variables)) == [id(variable) for variable, _ in found]
        assert len({id(either) for pair in found for either in pair}) == 2 * len(found)
        for variable, other in found:
            assert variable.trainable == other.trainable
            np.testing.assert_array_equal(variable.numpy(), other.numpy())
        counterpart = {id(variable): id(other) for variable, other in found}
        trained = [id(variable) for part in parts for variable in part.trainable_variables]
        assert trained == [counterpart[id(variable)] for variable in model.trainable_variables]


@pytest.mark.parametrize("build", [default, residual, shared, nested, normalised])
def test_cutting_and_measuring_leave_the_model_as_it_was(build):
    model = build()

    def state() -> list:
        values = [variable.numpy().tolist() for variable in model.variables]
        return [values, weights.structure(model), stages.places(model), stages.names(model)]

    before = state()
    through(stages.cut(model, stages.places(model)), rows(model), training=True)
    stages.measure_costs(model, 2)

    assert state() == before


def gradients(tape, loss, variables) -> list:
    return tape.gradient(loss, [variable.value for variable in variables])


@pytest.mark.parametrize("build", PLAIN)
def test_one_tape_over_the_stages_gives_the_gradients_of_the_model(build):
    model = build()
    parts = stages.cut(model, stages.places(model))
    found = []
    for chained in ([model], parts):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(through(chained, rows(model), training=True)))
        found.append(gradients(tape, loss, [each for part in chained for each in part.trainable_variables]))

    for mine, theirs in zip(*found, strict=True):
        np.testing.assert_allclose(theirs, mine, rtol=0, atol=1e-6)


def test_a_tape_that_begins_after_the_handoff_does_not_reach_the_first_stage():
    """The wrong way: two tapes, each over its stage, and nothing handed back. The first never learns."""
    model = default()
    first, second = stages.cut(model, ["flatten"])
    with tf.GradientTape() as begin, tf.GradientTape() as end:
        loss = tf.reduce_mean(tf.square(through([second], tf.stop_gradient(first(rows(model))))))

    assert gradients(begin, loss, first.trainable_variables) == [None] * 4
    assert all(each is not None for each in gradients(end, loss, second.trainable_variables))


def test_names_are_those_of_a_fresh_process():
    assert stages.names(default()) == stages.names(default()) == [
        "conv2d", "max_pooling2d", "conv2d_1", "max_pooling2d_1", "flatten", "dense",
    ]  # fmt: skip
    assert stages.names(operations()) == ["multiply", "dense", "reshape", "get_item", "add", "dense_1"]
    assert stages.names(nested()) == ["dense", "sequential", "dense_1"]


def test_a_count_makes_way_for_a_name_that_a_user_gave():
    named = chain(layers.Dense(4), layers.ReLU(name="dense"), layers.Dense(3), layers.ReLU(name="dense_2"))

    assert stages.names(named) == ["dense_1", "dense", "dense_3", "dense_2"]


def masked() -> keras.Model:
    start = keras.Input((5,), dtype="int32")
    read = layers.LSTM(3)(layers.Embedding(7, 3, mask_zero=True)(start))
    return keras.Model(start, layers.Dense(2)(read))


def tied() -> keras.Model:
    """A layer, and a model that has it, too."""
    inner = layers.Dense(4)
    return chain(layers.ReLU(), inner, layers.ReLU(), chain(inner), layers.ReLU())


@pytest.mark.parametrize(
    ("build", "expected"),
    [
        (default, ["conv2d", "max_pooling2d", "conv2d_1", "max_pooling2d_1", "flatten"]),
        (residual, ["stem", "join", "neck"]),
        (shared, ["re_lu", "dense"]),
        (several, ["join", "body"]),
        (tied, ["re_lu", "sequential"]),
        (masked, ["lstm"]),
        (operations, ["multiply", "dense", "reshape", "get_item", "add"]),
    ],
)
def test_a_place_is_where_one_tensor_crosses(build, expected):
    assert stages.places(build()) == expected


def test_no_place_is_where_more_crosses():
    start, late, twice = keras.Input((4,)), keras.Input((4,)), layers.Dense(4)
    first = layers.Dense(4)(start)
    second = layers.Dense(4)(first)
    for model in [
        keras.Model(start, layers.Add()([second, start])),
        keras.Model([start, late], layers.Add()([second, late])),
        keras.Model(start, [first, second]),
        chain(layers.Embedding(7, 3, mask_zero=True), layers.Dense(2)),  # The output would lose its mask.
        keras.Model(start, twice(layers.ReLU()(layers.Dense(4)(twice(start))))),
    ]:
        assert stages.places(model) == []


LIST = "it can be cut after: conv2d, max_pooling2d, conv2d_1, max_pooling2d_1, flatten$"


@pytest.mark.parametrize(
    ("number", "at", "message"),
    [
        (2, ["fltten"], f"'fltten', which is no layer; did you mean 'flatten'. {LIST}"),
        (2, ["dense"], f"'dense', but one tensor alone must cross there.*; {LIST}"),
        (2, ["conv2d", "flatten"], f"at must have 1 names for 2 stages, got .'conv2d', 'flatten'.; {LIST}"),
        (3, ["flatten", "conv2d"], f"in graph order, each once, got .'flatten', 'conv2d'.; {LIST}"),
        (3, ["flatten", "flatten"], f"in graph order, each once, got .'flatten', 'flatten'.; {LIST}"),
        (0, [], "stages must be 1 or more, got 0"),
        (7, [], f"stages must be 6 or fewer here, got 7; {LIST}"),
    ],
)
def test_what_is_no_cut_is_refused_with_what_would_do(number, at, message):
    with pytest.raises(InvalidInputError, match=message):
        stages.choose(default(), number, at)


def test_costs_that_are_not_of_each_layer_or_are_no_costs_are_refused():
    full = dict.fromkeys(stages.names(mlp()), 1.0)
    for change in ({"dnse": 1.0}, {"dense": -1}, {"dense": math.nan}):
        with pytest.raises(InvalidInputError, match="costs must.*got.*'dn?e?n?se'"):
            stages.choose(mlp(), 2, costs=full | change)


def test_a_model_without_a_graph_is_refused():
    own_call = type("OwnCall", (keras.Model,), {"call": lambda self, x: x})
    for model in (own_call(), keras.Sequential([layers.Dense(2)])):
        with pytest.raises(InvalidInputError, match="must be Sequential or functional, and built"):
            stages.names(model)


def test_what_cannot_be_made_again_is_refused():
    attached = residual()
    attached.extra = layers.Dense(2)
    attached.extra.build((None, 2))
    for model, message in [
        (chain(layers.Lambda(lambda x: x, name="code")), "(?s)'code' cannot be made again.*whose get_config"),
        (tied(), "use one layer twice"),
        (attached, "in no layer of the model's graph"),
    ]:
        with pytest.raises(InvalidInputError, match=message):
            stages.cut(model, [])


def test_the_default_network_is_cut_before_its_dense_layer():
    assert stages.choose(default(), 1) == ()
    assert stages.choose(default(), 2) == ("flatten",)
    assert stages.choose(default(), 2, ["conv2d"]) == ("conv2d",)
    assert stages.handoffs(default(), ["conv2d", "flatten"]) == [(28, 28, 8), (784,)]


kept = functools.cache(lambda build: build())


@given(st.data(), st.sampled_from([default, mlp, residual, several]))
@settings(max_examples=60)
def test_the_choice_is_the_best_of_all(data, build):
    model = kept(build)
    named, found = stages.names(model), stages.places(model)
    number = data.draw(st.integers(1, len(found) + 1))
    costs = {name: data.draw(st.integers(0, 3) | st.floats(0, 9)) for name in named}

    def rank(at):
        ends = [0, *(named.index(place) + 1 for place in at), len(named)]
        spans = itertools.pairwise(ends)
        worst = max(math.fsum(costs[name] for name in named[start:stop]) for start, stop in spans)
        return worst, sum(math.prod(shape) for shape in stages.handoffs(model, at)), [-end for end in ends]

    assert stages.choose(model, number, costs=costs) == min(
        itertools.combinations(found, number - 1), key=rank
    )


def test_costs_are_measured_for_every_layer():
    start = keras.Input((512,))
    uneven = [layers.Dense(1, name="tiny")(start), layers.Dense(4096, name="large")(start)]
    costs = stages.measure_costs(keras.Model(start, layers.Concatenate(name="both")(uneven)), 64)

    assert costs["large"] > costs["tiny"] >= 0
    for build in (masked, shared, several, operations):
        measured = stages.measure_costs(build(), 2)
        assert list(measured) == stages.names(build())
        assert min(measured.values()) >= 0
    assert set(stages.measure_costs(mlp(), 1, clock=itertools.count().__next__).values()) == {1}


@pytest.mark.parametrize("build", [default, nested, normalised, dropping])
def test_pull_and_push_carry_every_value(build):
    model = build()
    parts = stages.cut(model, stages.places(model))
    for carry, side in [(stages.pull, 1), (stages.push, 0)]:
        for number, pair in enumerate(stages.pairs(model, parts)):
            pair[side].assign(pair[side] + number + 1)
        expected = [pair[side].numpy() for pair in stages.pairs(model, parts)]

        carry(model, parts)

        for value, pair in zip(expected, stages.pairs(model, parts), strict=True):
            np.testing.assert_array_equal([pair[0].numpy(), pair[1].numpy()], [value, value])


def test_the_same_network_built_again_fits_the_stages_of_the_first():
    first, second = dropping(), dropping()
    assert first.layers[0].name != second.layers[0].name

    stages.pull(second, stages.cut(first, ["dropout"]))

    assert weights.digest(weights.arrays(second)) == weights.digest(weights.arrays(first))
    with pytest.raises(InvalidInputError, match=r"dense/kernel float32 \(4, 6\)"):
        stages.pull(mlp(), stages.cut(first, ["dropout"]))


def test_what_is_said_of_batch_normalization():
    assert stages.said(default()) == stages.said(asleep()) == []
    assert "(batch_normalization)" in stages.said(normalised())[0]
    assert "(sequential)" in stages.said(chain(normalised(), layers.Dense(2)))[0]


PROGRAM = """
import sys; sys.path.insert(0, "components")
import tensorflow as tf
cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
from fourfold.model import network, stages
model = network.build((8, 8, 1), 3, 0)
parts = stages.cut(model, ["flatten"], lambda stage: tf.device(f"CPU:{stage}"))
print([sorted({variable.value.device[-5:] for variable in part.variables}) for part in parts])
stages.pull(model, parts)
"""


def test_variables_live_on_the_device_of_their_stage():
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=120)

    assert done.stdout.strip() == "[['CPU:0'], ['CPU:1']]", done.stderr
