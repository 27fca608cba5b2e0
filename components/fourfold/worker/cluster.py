"""Who this worker is, who its peers are, and the strategy that joins them.

One rule for the chief: the task named ``chief`` (or ``master``) if there is one, else worker 0. The chief has
rank 0.
"""

import json
import os
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass

from fourfold.contract.errors import InvalidInputError
from fourfold.contract.plan import Plan

CHIEF_TASKS = ("chief", "master")


@dataclass(frozen=True)
class Role:
    """A worker's place among all workers of the training.

    Attributes:
        rank: index among all workers; 0 is the chief.
        addresses: ``host:port`` of every worker, by rank; one empty address for a worker that was told no
            cluster.
    """

    rank: int
    addresses: tuple[str, ...]

    @property
    def world(self) -> int:
        """How many workers there are."""
        return len(self.addresses)

    @property
    def beside(self) -> int:
        """How many workers are on this one's machine, this one among them."""
        hosts = [address.rpartition(":")[0] for address in self.addresses]
        return hosts.count(hosts[self.rank])

    def in_group(self, plan: Plan) -> "Role":
        """The role within the processes that this one talks to: all of them, or itself alone."""
        return self if plan.processes_talk else Role(0, (self.addresses[self.rank],))

    def tf_config(self) -> str:
        """The role as ``TF_CONFIG``; empty for a worker that was told no cluster."""
        if not self.addresses[0]:
            return ""
        task = {"type": "worker", "index": self.rank}
        return json.dumps({"cluster": {"worker": list(self.addresses)}, "task": task})

    def peers(self) -> list[tuple[int, str]]:
        """Rank and address of every other worker."""
        return [(rank, address) for rank, address in enumerate(self.addresses) if rank != self.rank]


def read_tf_config(text: str | None) -> Role:
    """Reads the role from ``TF_CONFIG``.

    Args:
        text: the variable; None, empty or without a cluster means one worker (the operator sets none for one
            worker).

    Raises:
        InvalidInputError: it is not JSON, names a task that is not in the cluster, or a kind of task that
            does not train.
    """
    if not text or not text.strip():
        return Role(0, ("",))
    try:
        config = json.loads(text)
        cluster = config.get("cluster") or {}
        tasks = {kind: list(addresses) for kind, addresses in cluster.items()}
        task = config.get("task") or {}
    except (ValueError, AttributeError, TypeError) as error:
        raise InvalidInputError(f"TF_CONFIG is not the JSON of a cluster: {text!r} ({error})") from error
    if not tasks:
        return Role(0, ("",))
    extra = sorted(set(tasks) - {*CHIEF_TASKS, "worker"})
    if extra:
        raise InvalidInputError(
            f"TF_CONFIG has tasks of kind {', '.join(extra)}: "
            "this program trains with chief and worker tasks only"
        )
    chiefs = [address for kind in CHIEF_TASKS for address in tasks.get(kind, [])]
    if len(chiefs) > 1:
        raise InvalidInputError(f"TF_CONFIG names {len(chiefs)} chiefs: there can be one at most")
    addresses = tuple([*chiefs, *tasks.get("worker", [])])
    kind, index = task.get("type"), task.get("index", 0)
    rank = int(index) if kind in CHIEF_TASKS else len(chiefs) + int(index)
    if kind not in {*CHIEF_TASKS, "worker"} or not 0 <= rank < len(addresses) or not tasks.get(kind):
        raise InvalidInputError(f"TF_CONFIG's task {task} is not in its cluster {cluster}")
    return Role(rank, addresses)


def wait_for_names(
    role: Role,
    seconds: float,
    resolve: Callable[[str], object] = socket.gethostbyname,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> list[str]:
    """Waits until every peer's host name is known; a pod's name may come seconds after its peers start.

    Args:
        role: of this worker.
        seconds: how long to wait.
        resolve: looks a host name up; raises OSError while it is unknown.
        clock: monotonic seconds.
        sleep: waits.

    Returns:
        The names that are still unknown, empty if all are known.
    """
    deadline = clock() + seconds
    unknown = sorted({address.rsplit(":", 1)[0] for _, address in role.peers()})
    while True:
        still = []
        for host in unknown:
            try:
                resolve(host.strip("[]"))
            except OSError:
                still.append(host)
        unknown = still
        if not unknown or clock() >= deadline:
            return unknown
        sleep(0.5)


def absent_peers(role: Role, seconds: float = 1.0) -> list[str]:
    """The peers that do not accept a connection now, as people name them."""
    absent = []
    for rank, address in role.peers():
        host, port = address.rsplit(":", 1)
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=seconds).close()
        except OSError as error:
            absent.append(f"worker {rank} at {address} ({error.strerror or error})")
    return absent


def hold_ports(count: int) -> list[socket.socket]:
    """Finds free ports on loopback and holds them, so that nobody else is given them meanwhile.

    The sockets are bound but do not listen; TensorFlow binds the same ports because both sides allow sharing
    (``TF_GRPC_REUSE_PORT``).

    Returns:
        Bound sockets, to be closed when the workers have ended.
    """
    held = []
    for _ in range(count):
        sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        if hasattr(socket, "SO_REUSEPORT"):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        sock.bind(("127.0.0.1", 0))
        held.append(sock)
    if not hasattr(socket, "SO_REUSEPORT"):
        for sock in held:
            sock.close()
    return held


def start_runtime(threads: int, stages: int = 1) -> list[str]:
    """Sets TensorFlow's runtime up, which must not have started yet.

    Args:
        threads: of one operation, and, for each stage, operations at once; fixed, since the last bits of
            results depend on their number.
        stages: that a device each is wanted for.

    Returns:
        The device of each stage: a GPU each, in turn where there are too few, or logical devices of the CPU.
    """
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(threads)
    tf.config.threading.set_inter_op_parallelism_threads(threads * stages)
    tf.config.experimental.enable_op_determinism()
    # Ports on loopback are held until the workers have them.
    os.environ["TF_GRPC_REUSE_PORT"] = "true"
    gpus = tf.config.list_physical_devices("GPU")
    if gpus or stages == 1:
        return [f"GPU:{stage % len(gpus)}" if gpus else "CPU:0" for stage in range(stages)]
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * stages)
    return [f"CPU:{stage}" for stage in range(stages)]


def resolver(role: Role):
    """A cluster resolver that gives the strategy one GPU of this worker, and leaves the others alone.

    The strategy asks every resolver but its own for the number of accelerators; its own counts all there are.
    """
    import tensorflow as tf

    gpus = min(1, len(tf.config.list_physical_devices("GPU")))
    return tf.distribute.cluster_resolver.SimpleClusterResolver(
        tf.train.ClusterSpec({"worker": list(role.addresses)}),
        task_type="worker",
        task_id=role.rank,
        num_accelerators={"GPU": gpus},
        rpc_layer="grpc",
    )


def make_strategy(role: Role, one_device: bool = False):
    """Makes the strategy that joins a group of workers.

    Args:
        role: within the group.
        one_device: take one device of this worker, also where it has several GPUs: they are for its stages.

    Returns:
        A ``tf.distribute.MultiWorkerMirroredStrategy`` for several workers, a ``MirroredStrategy`` over the
        devices of one.
    """
    import tensorflow as tf

    if role.world == 1:
        devices = [device.name for device in tf.config.list_logical_devices("GPU")] or ["CPU:0"]
        return tf.distribute.MirroredStrategy(devices[:1] if one_device else devices)
    os.environ["TF_CONFIG"] = role.tf_config()
    kinds = tf.distribute.experimental.CommunicationImplementation
    # RING fixes the order of the sums; AUTO may pick another, with other last bits, at each step.
    options = tf.distribute.experimental.CommunicationOptions(
        implementation=kinds.AUTO if tf.config.list_physical_devices("GPU") else kinds.RING
    )
    return tf.distribute.MultiWorkerMirroredStrategy(
        cluster_resolver=resolver(role) if one_device else None, communication_options=options
    )
