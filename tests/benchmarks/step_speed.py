"""How fast a training step is, against its peers, in one run on the same rows.

Run by hand:

    pip install -e '.[benchmarks]' && python tests/benchmarks/step_speed.py

One worker: our step, a bare ``tf.function`` that does the same, and Keras 3 ``fit`` (20 steps an execution).
Two workers over loopback: our step, ``tf_keras`` ``fit`` under the same strategy (each worker's own shard, 20
steps an execution), and our step with the exchange left out. The contestants take turns; ratios are those of
their medians.
"""

# Keras annotates jit_compile and verbose as strings but takes what its documentation says.
# pyright: reportArgumentType=false

import functools
import json
import os
import statistics
import sys
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ["CUDA_VISIBLE_DEVICES"] = ""

import keras
import numpy as np
import tensorflow as tf

from fourfold.model import network
from fourfold.prepare import source
from fourfold.worker import cluster, parts
from fourfold.worker.steps import Group, Steps

BATCH, STEPS, ROUNDS = 100, 20, 15


def rows(count, skip=0):
    """The first rows of the sample after some, ready."""
    sample = source.read("sample")
    return sample.train_x[skip : skip + count].astype(np.float32) / np.float32(255), sample.train_y[
        skip : skip + count
    ]


def built(strategy):
    """The network and its optimiser, in the strategy's scope."""
    with strategy.scope():
        return parts.whole(network.build((28, 28, 1), 10, 0), network.optimizer("adam", 1e-3))


def ours(strategy, world, x, y, reduce=None):
    """Our step as the worker calls it, all steps of an epoch in one call."""
    steps = Steps(strategy, built(strategy), (28, 28, 1), Group(world=world, reduce=reduce))
    each = len(y) // STEPS
    bounds, totals = np.arange(STEPS + 1) * each, np.full(STEPS, each * world)
    return lambda: steps.run(x, y, bounds, totals, 0.0)


def bare(x, y):
    """What one would write by hand: one tf.function over the steps of an epoch, Keras' own optimiser."""
    own = built(tf.distribute.get_strategy())
    model, optimizer = own.whole, own.optimizers[0]

    @tf.function(input_signature=[tf.TensorSpec([None, 28, 28, 1]), tf.TensorSpec([None], tf.int32)])
    def epoch(x, y):
        losses = tf.TensorArray(tf.float32, STEPS)
        for step in tf.range(STEPS):
            batch = slice(step * BATCH, (step + 1) * BATCH)
            with tf.GradientTape() as tape:
                each = tf.nn.sparse_softmax_cross_entropy_with_logits(
                    y[batch], model(x[batch], training=True)
                )
                loss = tf.reduce_mean(each)
            gradients = tape.gradient(loss, model.trainable_variables)
            optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
            losses = losses.write(step, loss)
        return losses.stack()

    return lambda: epoch(x, y).numpy()


def keras_fit(x, y):
    """Keras 3 ``fit``, all steps of an epoch in one execution."""
    model = network.build((28, 28, 1), 10, 0)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(network.optimizer("adam", 1e-3), loss, steps_per_execution=STEPS, jit_compile=False)
    data = tf.data.Dataset.from_tensor_slices((x, y)).batch(BATCH, drop_remainder=True).cache().prefetch(2)
    return lambda: model.fit(data, epochs=1, verbose=0)


def tf_keras_fit(strategy, x, y):
    """tf_keras ``fit`` under the strategy, each worker its own shard, all steps in one execution."""
    import tf_keras  # pyright: ignore[reportMissingImports] - of the extra benchmarks

    layers = tf_keras.layers
    with strategy.scope():
        model = tf_keras.Sequential(
            [
                tf_keras.Input((28, 28, 1)),
                layers.Conv2D(8, 3, padding="same", activation="relu"),
                layers.MaxPooling2D(2),
                layers.Conv2D(16, 3, padding="same", activation="relu"),
                layers.MaxPooling2D(2),
                layers.Flatten(),
                layers.Dense(10),
            ]
        )
        loss = tf_keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(tf_keras.optimizers.Adam(1e-3), loss, steps_per_execution=STEPS, jit_compile=False)
    each = len(y) // STEPS

    def own_shard(context):
        return (
            tf.data.Dataset.from_tensor_slices((x, y))
            .batch(each, drop_remainder=True)
            .cache()
            .repeat()
            .prefetch(2)
        )

    data = strategy.distribute_datasets_from_function(own_shard)
    return lambda: model.fit(data, epochs=1, steps_per_epoch=STEPS, verbose=0)


def take_turns(contestants, meet=lambda: None):
    """Seconds of each contestant, a list each; the first two rounds are not counted.

    Workers meet before each turn, so that none pays for what its peer did before.
    """
    times = {name: [] for name in contestants}
    for number in range(ROUNDS + 2):
        for name, run in contestants.items():
            meet()
            started = time.perf_counter()
            run()
            if number >= 2:
                times[name].append(time.perf_counter() - started)
    return times


def tell(title, times, ratios):
    """Prints the medians and the ratios asked for."""
    print(title)
    medians = {name: statistics.median(seconds) for name, seconds in times.items()}
    for name, seconds in times.items():
        least, most = 1e3 * min(seconds), 1e3 * max(seconds)
        print(f"  {name:<28} median {1e3 * medians[name]:7.1f} ms   min {least:7.1f}   max {most:7.1f}")
    for label, (slow, fast, goal) in ratios.items():
        best = min(times[slow]) / min(times[fast])
        print(
            f"  {label}: {medians[slow] / medians[fast]:.3f}, of the best rounds {best:.3f}   (goal {goal})"
        )


def one_worker():
    """One process, one thread."""
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(2)
    x, y = rows(BATCH * STEPS)
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    times = take_turns(
        {"ours": ours(strategy, 1, x, y), "bare tf.function": bare(x, y), "Keras 3 fit": keras_fit(x, y)}
    )
    tell(
        f"One worker, {STEPS} steps of {BATCH} rows:",
        times,
        {
            "speed of ours against bare": ("bare tf.function", "ours", "at least 0.95"),
            "speed of ours against Keras 3 fit": ("Keras 3 fit", "ours", "above 1"),
        },
    )


def two_workers():
    """Two processes over loopback, one thread each."""
    held = cluster.hold_ports(2)
    addresses = tuple(f"127.0.0.1:{sock.getsockname()[1]}" for sock in held)
    reading, writing = os.pipe()
    pids = []
    for rank in range(2):
        pid = os.fork()
        if pid == 0:
            tf.config.experimental.enable_op_determinism = lambda: None  # the peers do without it too
            cluster.start_runtime(threads=1)
            strategy = cluster.make_strategy(cluster.Role(rank, addresses))
            x, y = rows(BATCH // 2 * STEPS, skip=rank * BATCH // 2 * STEPS)
            contestants = {
                "ours": ours(strategy, 2, x, y),
                "ours without the exchange": ours(strategy, 2, x, y, reduce=lambda flat: flat),
                "tf_keras fit": tf_keras_fit(strategy, x, y),
            }
            meeting = Steps(strategy, built(strategy), (28, 28, 1), Group(world=2))
            times = take_turns(contestants, functools.partial(meeting.sum_over_group, np.ones(1)))
            if rank == 0:
                os.write(writing, json.dumps(times).encode())
            os._exit(0)
        pids.append(pid)
    for pid in pids:
        os.waitpid(pid, 0)
    tell(
        f"Two workers, {STEPS} steps of 2 x {BATCH // 2} rows:",
        json.loads(os.read(reading, 1 << 16)),
        {
            "speed of ours against tf_keras fit": ("tf_keras fit", "ours", "at least 2"),
            "speed of ours against no exchange": ("ours without the exchange", "ours", "at least 0.9"),
        },
    )


if __name__ == "__main__":
    if "one" in sys.argv[1:] or len(sys.argv) == 1:
        pid = os.fork()
        if pid == 0:
            one_worker()
            sys.stdout.flush()
            os._exit(0)
        os.waitpid(pid, 0)
    if "two" in sys.argv[1:] or len(sys.argv) == 1:
        two_workers()
