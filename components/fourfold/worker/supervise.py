"""The parent of the workers: forks them, passes on what they print, and ends all when one fails.

A worker that waits in a collective serves no signal and no deadline; its parent does. TensorFlow is imported
once, before the fork, and its runtime starts in the children only.
"""

import contextlib
import os
import selectors
import signal
import socket
import sys
import time
import traceback
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from fourfold.contract import events, exits, lifetime, plan as plans
from fourfold.contract.errors import FourfoldError, InvalidInputError
from fourfold.contract.records import Training
from fourfold.worker import checkpoint, cluster

TAIL = 20
"""Lines of a failed worker that are told."""


@dataclass(frozen=True)
class Roles:
    """The workers that this parent starts.

    Attributes:
        roles: one a worker.
        held: sockets that hold their ports.
        in_pod: True where this is a pod's one worker, which is then called by the pod's name.
    """

    roles: list[cluster.Role]
    held: list[socket.socket] = field(default_factory=list)
    in_pod: bool = False


@dataclass
class Child:
    """A worker process.

    Attributes:
        role: its place.
        pid: its process id.
        pipe: what it prints.
        started: True once it has met its peers.
        code: what it ended with, negative for a signal; None while it runs.
        tail: its last lines.
        rest: the beginning of a line that is not whole yet.
    """

    role: cluster.Role
    pid: int
    pipe: int
    started: bool = False
    code: int | None = None
    tail: deque[str] = field(default_factory=lambda: deque(maxlen=TAIL))
    rest: bytes = b""


def local_roles(training: Training) -> Roles:
    """All workers of a training, on free ports of this machine."""
    count = plans.of(training).processes
    held = cluster.hold_ports(count)
    addresses = tuple(f"127.0.0.1:{sock.getsockname()[1]}" for sock in held)
    return Roles([cluster.Role(rank, addresses) for rank in range(count)], held)


def pod_role(training: Training, environ: Mapping[str, str]) -> Roles:
    """The one worker of this pod, from ``TF_CONFIG``.

    Raises:
        InvalidInputError: the cluster has not as many workers as the training.
    """
    role = cluster.read_tf_config(environ.get("TF_CONFIG"))
    count = plans.of(training).processes
    if role.world != count:
        raise InvalidInputError(
            f"TF_CONFIG has {role.world} workers, {training.scenario} trains with {count}"
        )
    return Roles([role], in_pod=True)


def preload() -> None:
    """Imports what the workers need, TensorFlow among it, before they are forked."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")
    # TensorFlow imports Keras, with the backend that a user's environment names, unless it is there already.
    import fourfold.model.pinned
    import fourfold.worker.loop  # noqa: F401


def run(training: Training, workers: Roles, abandoned: Callable[[], bool] = lambda: False) -> int:
    """Starts the workers and waits for them.

    Args:
        training: what to train.
        workers: to start.
        abandoned: tells that nobody waits for the result any more.

    Returns:
        The exit code of the group, as in ``contract.exits``.
    """
    parent = os.getppid()
    plan = plans.of(training)
    if workers.in_pod:
        if checkpoint.is_done(training, plan, workers.roles[0].rank):
            print(f"{training.scenario}: all was done before this process was started again", flush=True)
            return exits.OK
        group = workers.roles[0].in_group(plan)
        unknown = cluster.wait_for_names(group, training.start_seconds)
        if unknown:
            _tell_failure(
                training,
                f"the names of peers stayed unknown for {training.start_seconds:g} s: {', '.join(unknown)}",
            )
            return exits.PEER_MISSING
    preload()
    signals = {signal.SIGTERM, signal.SIGINT}
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    children = [_fork(training, role, workers.in_pod) for role in workers.roles]
    watch = _Watch(training, plan, children, abandoned)
    for number in signals:
        signal.signal(number, watch.interrupted)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, signals)
    lifetime.end_with_parent(watch.orphaned, parent)
    try:
        return watch.until_end()
    finally:
        watch.end_all()
        for sock in workers.held:
            sock.close()


class _Watch:
    """Waits for the children; the first that fails decides."""

    def __init__(
        self, training: Training, plan: plans.Plan, children: list[Child], abandoned: Callable[[], bool]
    ):
        self.training, self.plan, self.children, self.abandoned = training, plan, children, abandoned
        self.stopped = False
        self.selector = selectors.DefaultSelector()
        for child in children:
            self.selector.register(child.pipe, selectors.EVENT_READ, child)

    def interrupted(self, number: int, frame: object) -> None:
        """Signal handler: ends the workers; the wait then returns."""
        self.stopped = True

    def orphaned(self) -> None:
        """Called when this parent's own parent is gone."""
        self.end_all(seconds=0.0)
        os._exit(exits.TERMINATED)

    def until_end(self) -> int:
        """Passes on what the children print until all have ended or one has failed."""
        deadline = time.monotonic() + self.training.start_seconds
        while any(child.code is None for child in self.children):
            self._listen(0.1)
            self._reap()
            if self.stopped or self.abandoned():
                self.end_all()
                return exits.TERMINATED
            if any(child.code for child in self.children):
                return self._failed()
            if time.monotonic() > deadline and not all(child.started for child in self.children):
                return self._not_started()
        self._listen(0.0)
        return self._failed() if any(child.code for child in self.children) else exits.OK

    def _listen(self, seconds: float) -> None:
        for key, _ in self.selector.select(seconds):
            child: Child = key.data
            data = os.read(child.pipe, 1 << 16)
            if not data:
                self.selector.unregister(child.pipe)
            *lines, child.rest = (child.rest + data).split(b"\n")
            if not data and child.rest:
                lines, child.rest = [child.rest], b""
            for line in lines:
                self._pass_on(child, line.decode("utf-8", "replace"))

    def _pass_on(self, child: Child, line: str) -> None:
        event = events.decode(line)
        if event is None:
            child.tail.append(line)
            line = f"[{self.training.scenario} worker {child.role.rank}] {line}"
        elif event["event"] == "started":
            child.started = True
        print(line, flush=True)

    def _reap(self) -> None:
        for child in self.children:
            if child.code is None:
                pid, status = os.waitpid(child.pid, os.WNOHANG)
                if pid:
                    child.code = os.waitstatus_to_exitcode(status)

    def _failed(self) -> int:
        """Tells why; a worker that lost its peer is not the cause where another one failed by itself."""
        until = time.monotonic() + 0.5
        while time.monotonic() < until:
            self._listen(0.1)
            self._reap()
        failed = [child for child in self.children if child.code]
        cause = min(failed, key=lambda child: child.code in (exits.PEER_LOST, -signal.SIGABRT))
        others = f" of {self.plan.processes}" if self.plan.processes > 1 else ""
        tail = "".join(f"\n  | {line}" for line in cause.tail)
        assert cause.code is not None
        _tell_failure(
            self.training,
            f"{self.training.scenario}: worker {cause.role.rank}{others} (process {cause.pid}) ended: "
            f"{exits.describe(cause.code)}" + (f"; its last lines:{tail}" if tail else ""),
        )
        self.end_all()
        if cause.code > 0:
            return cause.code
        # A worker that was killed takes its peers with it; whoever restarts the group may try again.
        return 128 - cause.code

    def _not_started(self) -> int:
        waiting = [child for child in self.children if not child.started]
        absent = cluster.absent_peers(waiting[0].role.in_group(self.plan))
        self.end_all()
        who = "; no answer from " + ", ".join(absent) if absent else ""
        _tell_failure(
            self.training,
            f"{self.training.scenario}: worker {waiting[0].role.rank} did not meet its peers within "
            f"{self.training.start_seconds:g} s{who}",
        )
        return exits.PEER_MISSING

    def end_all(self, seconds: float = 2.0) -> None:
        """Ends every child that still runs: asks first, then kills."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            for child in self.children:
                if child.code is None:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(child.pid, number)
            until = time.monotonic() + (seconds if number == signal.SIGTERM else 10.0)
            while any(child.code is None for child in self.children) and time.monotonic() < until:
                with contextlib.suppress(ChildProcessError):
                    self._reap()
                time.sleep(0.02)


def _tell_failure(training: Training, message: str) -> None:
    events.tell("worker-failed", scenario=training.scenario, message=message)


def _fork(training: Training, role: cluster.Role, in_pod: bool) -> Child:
    parent = os.getpid()
    reading, writing = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid:
        os.close(writing)
        return Child(role, pid, reading)
    code = exits.FAILED
    try:
        os.close(reading)
        os.dup2(writing, 1)
        os.dup2(writing, 2)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM, signal.SIGINT})
        lifetime.end_with_parent(parent=parent)
        pod = os.environ.get("HOSTNAME", "") if in_pod else ""
        code = _work(training, role, pod or str(os.getpid()))
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _work(training: Training, role: cluster.Role, process: str) -> int:
    """A child's life: trains, and turns what goes wrong into an exit code."""
    from fourfold.worker.loop import train

    try:
        train(training, role, process)
        return exits.OK
    except FourfoldError as error:
        print(f"fourfold: {error}", flush=True)
        return exits.of(error)
    except Exception as error:
        code = _code_of(error)
        if code == exits.FAILED:
            traceback.print_exc()
        else:
            print(f"fourfold: {exits.describe(code)}: {str(error).splitlines()[0]}", flush=True)
        return code


def _code_of(error: Exception) -> int:
    """The exit code for an error of TensorFlow."""
    import tensorflow as tf

    text = str(error)
    if "Could not start gRPC server" in text or "address already in use" in text.lower():
        return exits.PORT_IN_USE
    lost = (
        tf.errors.UnavailableError,
        tf.errors.AbortedError,
        tf.errors.CancelledError,
        tf.errors.DeadlineExceededError,
    )
    if isinstance(error, lost) or (isinstance(error, tf.errors.OpError) and "Collective" in text):
        return exits.PEER_LOST
    return exits.FAILED
