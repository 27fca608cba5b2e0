"""Run by test_steps: takes one step on two replicas, of one process or of two, and prints it as JSON."""

import json
import os
import sys

import keras
import numpy as np
import tensorflow as tf

from fourfold.worker import cluster, parts
from fourfold.worker.steps import Group, Steps

ROWS = 10


def batchnorm_model():
    keras.utils.set_random_seed(0)
    return keras.Sequential(
        [
            keras.Input((4,)),
            keras.layers.Dense(3),
            keras.layers.BatchNormalization(momentum=0.5),
            keras.layers.Dense(2),
        ]
    )


def plain_model():
    keras.utils.set_random_seed(0)
    return keras.Sequential([keras.Input((4,)), keras.layers.Dense(8, "tanh"), keras.layers.Dense(2)])


def data():
    rng = np.random.default_rng(0)
    return rng.normal(size=(ROWS, 4)).astype(np.float32), rng.integers(0, 2, ROWS).astype(np.int32)


def step(strategy, make, world, x, y, total):
    with strategy.scope():
        built = parts.whole(make(), keras.optimizers.SGD(0.5))
    steps = Steps(strategy, built, (4,), Group(world=world))
    taken = steps.run(x, y, np.array([0, len(y)]), np.array([total]), 0.0)
    return built.whole, steps, float(taken.losses[0])


def one_process():
    """One process with two devices against one device."""
    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2
    )
    x, y = data()
    both = [
        step(tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]), plain_model, 1, x, y, ROWS),
        step(tf.distribute.OneDeviceStrategy("CPU:0"), plain_model, 1, x, y, ROWS),
    ]
    return {
        "weights": [[w.tolist() for w in m.get_weights()] for m, _, _ in both],
        "losses": [b[2] for b in both],
    }


def two_processes():
    """Two workers with BatchNorm, 7 and 3 rows; each worker's statistics before and after the average."""
    held = cluster.hold_ports(2)
    addresses = tuple(f"127.0.0.1:{sock.getsockname()[1]}" for sock in held)
    x, y = data()
    pids, pipes = [], []
    for rank, rows in enumerate((slice(0, 7), slice(7, 10))):
        reading, writing = os.pipe()
        pid = os.fork()
        if pid == 0:
            cluster.start_runtime(threads=1)
            strategy = cluster.make_strategy(cluster.Role(rank, addresses))
            model, steps, loss = step(strategy, batchnorm_model, 2, x[rows], y[rows], ROWS)
            before = [w.tolist() for w in model.get_weights()]
            steps.average_statistics(rows.stop - rows.start, ROWS)
            after = [w.tolist() for w in model.get_weights()]
            total = float(steps.sum_over_group(np.array([rank + 1.0]))[0])
            text = json.dumps({"before": before, "after": after, "loss": loss, "sum": total})
            os.write(writing, text.encode())
            os._exit(0)
        os.close(writing)
        pids.append(pid)
        pipes.append(reading)
    for pid in pids:
        os.waitpid(pid, 0)
    return [json.loads(os.read(pipe, 1 << 16)) for pipe in pipes]


if __name__ == "__main__":
    print("RESULT " + json.dumps({"one": one_process, "two": two_processes}[sys.argv[1]]()))
