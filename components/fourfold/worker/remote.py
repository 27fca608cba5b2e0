"""Stages on processes of their own: worker 0 computes on all, the others lend it their devices."""

import json
import socket
import time
from collections.abc import Callable

from fourfold.contract import events, keys
from fourfold.contract.errors import MissingObjectError, PeerLostError
from fourfold.contract.records import Training
from fourfold.contract.strict import to_json
from fourfold.store.objects import Store, open_store
from fourfold.worker import cluster

LOST_SECONDS = 3.0
"""How long worker 0 may not be reached before it counts as lost."""


def connect(role: cluster.Role, stages: int) -> list[str]:
    """Connects worker 0 with the processes that hold the other stages; waits until they are there.

    Args:
        role: of worker 0 among all processes, one a stage.
        stages: how many.

    Returns:
        The device of each stage.
    """
    import tensorflow as tf

    # Without the name and the index it waits for ever.
    tf.config.experimental_connect_to_cluster(
        tf.train.ClusterSpec({"worker": list(role.addresses)}),
        job_name="worker",
        task_index=role.rank,
        protocol="grpc",
    )
    gpus = [device.name for device in tf.config.list_logical_devices("GPU")]
    tasks = [f"/job:worker/replica:0/task:{stage}" for stage in range(stages)]
    return [
        next((name for name in gpus if name.startswith(f"{task}/")), f"{task}/device:CPU:0") for task in tasks
    ]


def hold_stage(
    training: Training,
    role: cluster.Role,
    process: str,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Lends worker 0 this process's devices, until its report is there: not that of an earlier try.

    Args:
        training: what is trained.
        role: of this process among all, one a stage.
        process: what it is called in the results.
        clock: monotonic seconds.
        sleep: waits.

    Raises:
        PeerLostError: worker 0 came not, or is gone.
    """
    import tensorflow as tf

    output = open_store(training.output)
    left = _read(output, keys.worker(0))
    output.write(keys.stage(role.rank), to_json({"process": process}))
    cluster.start_runtime(training.threads)
    config = tf.compat.v1.ConfigProto(
        intra_op_parallelism_threads=training.threads, inter_op_parallelism_threads=training.threads
    )
    server = tf.distribute.Server(
        tf.train.ClusterSpec({"worker": list(role.addresses)}),
        job_name="worker",
        task_index=role.rank,
        protocol="grpc",
        config=config,
    )
    assert server.target
    events.tell("started", scenario=training.scenario, worker=role.rank, workers=role.world, process=process)
    last = clock() + training.start_seconds
    while (report := _read(output, keys.worker(0))) is None or report == left:
        if reaches(role.addresses[0]):
            last = clock() + LOST_SECONDS
        elif clock() > last:
            raise PeerLostError(f"worker 0 at {role.addresses[0]} is not there any more")
        sleep(0.5)


def _read(output: Store, key: str) -> bytes | None:
    """The bytes of an object, if it is there."""
    try:
        return output.read(key)
    except MissingObjectError:
        return None


def reaches(address: str) -> bool:
    """Whether somebody accepts connections at ``host:port``."""
    host, port = address.rsplit(":", 1)
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=1.0).close()
    except OSError:
        return False
    return True


def names(output: Store, stages: int) -> list[str]:
    """What the processes are called that hold the stages after the first."""
    found = (_read(output, keys.stage(stage)) for stage in range(1, stages))
    return [json.loads(said)["process"] if said else "?" for said in found]
