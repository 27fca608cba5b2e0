"""Properties of a step's gradients, in one process, and the wrong ways that must not pass for right ones."""

import functools

import keras
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings, strategies as st

from fourfold.model import network
from fourfold.worker import parts
from fourfold.worker.gradients import Gradients
from fourfold.worker.steps import Group, Steps

WIDTH, CLASSES = 5, 3
CUTS = [(), ("one",), ("two",), ("one", "two"), ("one", "two", "three")]
few = settings(max_examples=25)


def model_of(seed, regularized=False):
    keras.utils.set_random_seed(seed)
    penalty = keras.regularizers.L2(0.1) if regularized else None
    return keras.Sequential(
        [
            keras.Input((WIDTH,)),
            keras.layers.Dense(6, activation="tanh", name="one", kernel_regularizer=penalty),
            keras.layers.Dense(4, activation="tanh", name="two"),
            keras.layers.Dense(4, activation="tanh", name="three", kernel_regularizer=penalty),
            keras.layers.Dense(CLASSES, name="four"),
        ]
    )


def sgd():
    return network.optimizer("sgd", 0.5)


def built_of(cut, seed=0, regularized=False):
    model = model_of(seed, regularized)
    return parts.staged(model, sgd, cut, ["CPU:0"] * (len(cut) + 1)) if cut else parts.whole(model, sgd())


@functools.cache
def gradients_of(cut, micro_batches, seed=0, regularized=False):
    found = Gradients(built_of(cut, seed, regularized), micro_batches)
    signature = [tf.TensorSpec([None, WIDTH], tf.float32), tf.TensorSpec([None], tf.int32)]
    return tf.function(found.summed, input_signature=signature, autograph=False)


def rows_of(count, seed=0):
    random = np.random.default_rng([count, seed])
    return random.standard_normal((count, WIDTH)).astype(np.float32), random.integers(
        0, CLASSES, count
    ).astype(np.int32)


def flat(found):
    gradients, loss = found
    return np.concatenate([*(np.ravel(gradient) for gradient in gradients), [float(loss)]])


def plain(x, y, seed=0, regularized=False):
    """Sums over rows by plain Keras: the loss of a row, and what the weights cost for it."""
    model = model_of(seed, regularized)
    with tf.GradientTape() as tape:
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(y, model(x, training=True))
        loss = tf.reduce_sum(losses) + (tf.add_n(model.losses) * len(y) if regularized else 0.0)
    return flat((tape.gradient(loss, model.trainable_weights), loss))


def apart(one, other):
    return np.abs(one - other).max() / np.abs(other).max()


@few
@given(st.sampled_from(CUTS), st.sampled_from([1, 2, 3, 7]), st.integers(1, 20), st.booleans())
def test_any_cut_and_any_micro_batches_give_the_gradients_of_the_uncut_model(cut, micro, rows, regularized):
    """Also where micro-batches differ by a row (M12: 8 in 3), or some have none."""
    x, y = rows_of(rows)
    found = flat(gradients_of(cut, micro, regularized=regularized)(x, y))
    assert apart(found, plain(x, y, regularized=regularized)) < 1e-6


@few
@given(st.lists(st.integers(0, 6), min_size=1, max_size=4).filter(any), st.sampled_from(CUTS[:2]))
def test_the_sums_of_shards_are_the_sum_of_the_joined_rows(sizes, cut):
    x, y = rows_of(sum(sizes))
    ends = np.cumsum([0, *sizes])
    shards = [slice(a, b) for a, b in zip(ends, ends[1:], strict=False) if b > a]
    summed = sum(flat(gradients_of(cut, 2)(x[rows], y[rows])) for rows in shards)
    assert apart(summed, plain(x, y)) < 1e-6


def test_the_laws_are_not_met_by_wrong_ways():
    """Faults that the source names: each is far off where the right way is within rounding."""
    x, y = rows_of(12)
    right = plain(x, y)
    one, other = slice(0, 9), slice(9, 12)
    of = gradients_of((), 1)
    # Losses averaged, but each copy by its own gradient.
    assert apart(flat(of(x[one], y[one])) * 12 / 9, right) > 1e-2
    # Shards of two sizes averaged as if they were of one.
    unweighted = (flat(of(x[one], y[one])) / 9 + flat(of(x[other], y[other])) / 3) / 2 * 12
    assert apart(unweighted, right) > 1e-2
    # Copies that did not start equal.
    seeds = flat(of(x[one], y[one])) + flat(gradients_of((), 1, seed=1)(x[other], y[other]))
    assert apart(seeds, right) > 1e-2
    # Lists of gradients paired in two orders: the fourth layer's bias is not the first one's kernel, but two
    # layers of one shape would hide it.
    mine, theirs = of(x[one], y[one])[0], of(x[other], y[other])[0]
    swapped = [theirs[place] for place in (0, 1, 2, 5, 4, 3, 6, 7)]
    assert theirs[3].shape == theirs[5].shape
    wrong = [a + b for a, b in zip(mine, swapped, strict=True)]
    assert apart(np.concatenate([np.ravel(g) for g in wrong]), right[:-1]) > 1e-2


def steps_of(built, **how):
    return Steps(tf.distribute.get_strategy(), built, (WIDTH,), Group(**how))


def take(steps, x, y, rows=None):
    return steps.run(x, y, np.array([0, len(y)]), np.array([float(rows or len(y))]), 0.0)


def weights_of(built):
    return np.concatenate([np.ravel(variable.numpy()) for variable in built.trainable])


def test_a_copy_that_strayed_is_set_back_to_worker_0s_and_how_far_it_was_is_told():
    """The exchange is by hand: worker 1 gets what worker 0 has, as the sum of worker 0's and of nothing."""
    x, y = rows_of(8)
    first = built_of(("two",))
    take(steps_of(first), x, y)
    strayed = built_of(("two",))
    strayed.stages[0].trainable_variables[0].assign_add(np.full((WIDTH, 6), 0.01, np.float32))
    of_first = weights_of(first)

    def reduce(vector):
        is_weights = vector.shape[0] is not None and vector.shape[0] == len(of_first)
        return vector + (of_first if is_weights else 0.0)

    taken = take(steps_of(strayed, rank=1, copies_back=True, reduce=reduce), x, y)
    assert np.array_equal(weights_of(strayed), of_first)
    assert taken.distance == 0.0
    assert taken.drift > 0.05

    alone = built_of(("two",))
    alone.stages[0].trainable_variables[0].assign_add(np.full((WIDTH, 6), 0.01, np.float32))
    take(steps_of(alone, rank=1, reduce=lambda vector: vector), x, y)
    assert not np.array_equal(weights_of(alone), of_first)


@pytest.mark.parametrize("mu", [0.0, 0.3])
def test_the_proximal_term_pulls_by_mu_times_the_way_from_the_anchor(mu):
    x, y = rows_of(8)
    built, without = built_of(()), built_of(())
    before = weights_of(built)
    anchor = tf.Variable(tf.constant(before + 0.25, tf.float32))
    steps = Steps(tf.distribute.get_strategy(), built, (WIDTH,), Group(), proximal=mu, anchor=anchor)
    take(steps, x, y)
    take(steps_of(without), x, y)
    pulled = weights_of(without) - 0.5 * mu * (before - (before + 0.25))
    assert np.allclose(weights_of(built), pulled, atol=1e-6)
