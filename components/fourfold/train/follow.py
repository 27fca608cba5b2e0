"""Follows a TFJob to its end: its status, its pods, their logs, and the time that it takes.

Threads list and watch and read logs, and put what they find into one queue; one loop takes it out and
decides.
"""

import contextlib
import queue
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, NoReturn

from fourfold.contract import events, exits
from fourfold.contract.errors import ClusterError, WorkerFailedError
from fourfold.contract.pods import Pods
from fourfold.contract.records import Training
from fourfold.train import logs, verdict
from fourfold.train.api import Api, WatchEndedError

TAIL = 20
"""Lines of a failed pod that are told."""
TOLD_AFTER = 3.0
"""Seconds that something must be in the way before it is told: most of it goes by."""
LOST_AFTER = 1.0
"""Seconds after which a pod that ended is told, if the job has not ended meanwhile."""
NO_PODS_AFTER = 15.0
"""Seconds that the operator is given to make the pods before it is told that it has not."""
ASK_EVERY = 10.0
"""Seconds between two questions why there are no pods."""
DOUBTFUL_SECONDS = 60.0
"""How long something that seldom goes away, such as an image that is not found, may be in the way."""
GRACE = 30.0
"""Seconds beyond its deadline after which a job is ended by us, where the operator has not."""
CAUSE_SECONDS = 5.0
"""For which the pod that made a job fail is waited for."""
REST_SECONDS = 1.0
"""For which the rest of the logs is waited for when the job has ended."""


class Follow:
    """One TFJob that is followed.

    Args:
        api: of the cluster.
        training: what the job trains.
        pods: what its pods were given.
        job: as created or found.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        api: Api,
        training: Training,
        pods: Pods,
        job: dict[str, Any],
        clock: Callable[[], float] = time.monotonic,
    ):
        self._api, self._training, self._given, self._clock = api, training, pods, clock
        self._name, self._uid = job["metadata"]["name"], job["metadata"]["uid"]
        self._replicas = job["spec"]["tfReplicaSpecs"]["Worker"]["replicas"]
        self._job: dict[str, Any] | None = job
        # All pods that were ever seen, as they were last, by uid; and which of them are there.
        self._pods: dict[str, dict[str, Any]] = {}
        self._present: set[str] = set()
        self._queue: queue.SimpleQueue[tuple[str, str, Any]] = queue.SimpleQueue()
        self._readers: dict[str, threading.Thread] = {}
        self._memories: dict[str, logs.Memory] = defaultdict(logs.Memory)
        self._tails: dict[str, deque[str]] = defaultdict(lambda: deque(maxlen=TAIL))
        self._causes: dict[str, str] = {}
        self._since: dict[str, float] = {}
        # Pods that ended without success, in the order in which that was noticed, and when.
        self._lost: dict[str, float] = {}
        self._told: set[str] = set()
        self._why = ""
        self._stopped = threading.Event()
        age = verdict.seconds(job, datetime.now(UTC))
        self._deadline = clock() + pods.deadline_seconds - age + GRACE

    def until_end(self) -> None:
        """Waits for the job's success.

        Raises:
            ClusterError: the job can be followed no more.
            WorkerFailedError: it failed, was deleted, did not start, or took too long.
        """
        for kind, listing, watching in (
            ("job", self._api.list_jobs, self._api.watch_jobs),
            ("pod", self._api.list_pods, self._api.watch_pods),
        ):
            threading.Thread(target=self._feed, args=(kind, listing, watching), daemon=True).start()
        try:
            while not self._has_ended():
                self._take(0.2)
        finally:
            self._stopped.set()

    def _has_ended(self) -> bool:
        if self._job is None:
            raise WorkerFailedError(
                f"{self._what} was deleted while it was waited for; run again to train anew"
            )
        outcome = verdict.outcome(self._job)
        if outcome is None:
            self._tell_lost()
            self._check_start()
            if self._clock() > self._deadline:
                self._give_up(f"did not end within {self._given.deadline_seconds:,} s", exits.FAILED)
            return False
        self._read_rest(outcome)
        if outcome == "failed":
            self._failed(self._job)
        return True

    @property
    def _what(self) -> str:
        return f"{self._training.scenario}: TFJob {self._name} in namespace {self._api.namespace}"

    # What the threads do.

    def _feed(self, kind: str, listing: Callable, watching: Callable) -> None:
        """Lists, watches, and lists again when the watch ends."""
        pause = 0.1
        while not self._stopped.is_set():
            began = time.monotonic()
            try:
                items, version = listing(self._name)
                self._queue.put((kind, "LISTED", items))
                for change, item in watching(self._name, version):
                    self._queue.put((kind, change, item))
            except WatchEndedError:
                pause = min(5.0, 2 * pause) if time.monotonic() - began < 5 else 0.1
                self._stopped.wait(pause)
            except ClusterError as error:
                self._queue.put(("error", "", error))
                return

    def _read(self, uid: str, pod: str) -> None:
        """Reads a pod's log."""
        memory = self._memories[pod]
        for line in logs.read(self._api, pod, lambda: self._may_write(uid), self._stopped, memory):
            self._queue.put(("log", uid, line))

    def _may_write(self, uid: str) -> bool:
        return uid in self._present and verdict.phase(self._pods[uid]) not in ("Succeeded", "Failed")

    # What the loop does.

    def _take(self, seconds: float) -> None:
        """Takes in what the threads have found, waiting for it at most so long."""
        try:
            while True:
                kind, change, item = self._queue.get(timeout=seconds)
                seconds = 0.0
                if kind == "error":
                    raise item
                if kind == "log":
                    self._take_line(change, item)
                elif kind == "job":
                    self._take_job(change, item)
                else:
                    self._take_pods(change, item)
        except queue.Empty:
            return

    def _take_job(self, change: str, item: Any) -> None:
        jobs = item if change == "LISTED" else [] if change == "DELETED" else [item]
        self._job = next((job for job in jobs if job["metadata"]["uid"] == self._uid), None)

    def _take_pods(self, change: str, item: Any) -> None:
        found = item if change == "LISTED" else [item]
        given = {pod["metadata"]["uid"]: pod for pod in found if verdict.is_owned(pod, self._uid)}
        self._pods.update(given)
        if change == "LISTED":
            self._present = set(given)
        elif change == "DELETED":
            self._present -= set(given)
        else:
            self._present |= set(given)
        for uid, pod in self._pods.items():
            if uid not in self._lost and verdict.is_lost(pod, uid in self._present):
                self._lost[uid] = self._clock()
        for uid, pod in given.items():
            if uid not in self._readers and verdict.has_started(pod):
                name = pod["metadata"]["name"]
                self._readers[uid] = threading.Thread(target=self._read, args=(uid, name), daemon=True)
                self._readers[uid].start()

    def _take_line(self, uid: str, line: str) -> None:
        event = events.decode(line)
        name = self._pods[uid]["metadata"]["name"]
        if event is None:
            self._tails[name].append(line)
            who = f"[{self._training.scenario} {verdict.worker(self._pods[uid])}]"
            print(line if line.startswith(who) else f"{who} {line}", flush=True)
            return
        kind = event.pop("event")
        if kind == "started":
            self._causes.pop(name, None)
        try:
            if kind == "worker-failed":
                self._causes[name] = event["message"]
            else:
                events.say(kind, **event)
        except (TypeError, ValueError, LookupError):
            print(line, flush=True)

    def _tell_lost(self) -> None:
        """Tells which pods ended without success, by name, where that did not end the job."""
        for uid, noticed in self._lost.items():
            if self._clock() - noticed >= LOST_AFTER:
                self._say_after(
                    0.0, f"lost {uid}", f"{self._training.scenario}: {verdict.loss(self._pods[uid])}"
                )

    def _check_start(self) -> None:
        """Tells what is in the way of the pods, and gives up where waiting does not help."""
        present = [self._pods[uid] for uid in self._present]
        if len([pod for pod in present if verdict.has_started(pod)]) >= self._replicas:
            self._since.pop("start", None)
            return
        why = ""
        for pod in present:
            blocked, uid = verdict.blocker(pod), pod["metadata"]["uid"]
            if blocked is None:
                continue
            reason, sentence = blocked
            why = f"{verdict.worker(pod)} (pod {pod['metadata']['name']}) {sentence}"
            self._say_after(TOLD_AFTER, f"blocked {uid} {reason}", f"{self._training.scenario}: {why}")
            limit = DOUBTFUL_SECONDS if reason in verdict.DOUBTFUL else TOLD_AFTER
            if reason in verdict.DOUBTFUL | verdict.HOPELESS and self._has_been(f"doubtful {uid}", limit):
                self._give_up(f"cannot start: {why}", exits.INVALID_INPUT)
        if len(present) < self._replicas and self._has_been("no pods", NO_PODS_AFTER):
            if not self._why or self._has_been("asked", ASK_EVERY):
                self._since.pop("asked", None)
                self._why = self._why_no_pods()
            why = self._why
            self._say_after(0.0, why, f"{self._training.scenario}: {why}")
        elif len(present) >= self._replicas:
            self._since.pop("no pods", None)
            self._why = ""
        if self._has_been("start", self._given.start_seconds):
            why = why or "its pods are pending, and nothing says why"
            self._give_up(f"did not start within {self._given.start_seconds:,} s: {why}", exits.PEER_MISSING)

    def _why_no_pods(self) -> str:
        complaints: list[str] = []
        with contextlib.suppress(ClusterError):
            complaints = self._api.complaints(self._uid)
        if complaints:
            return f"the pods of TFJob {self._name} are not made: {complaints[0]}"
        if self._job is not None and not verdict.is_taken_up(self._job):
            return (
                f"no training operator has taken up TFJob {self._name}: does it run, and does it watch "
                f"namespace {self._api.namespace}? (kubectl -n kubeflow get pods)"
            )
        return f"the operator has not made all pods of TFJob {self._name} yet"

    def _has_been(self, what: str, seconds: float) -> bool:
        """Whether something has been so for so long."""
        return self._clock() - self._since.setdefault(what, self._clock()) >= seconds

    def _say_after(self, seconds: float, what: str, message: str) -> None:
        """Says something once, when it has been so for so long."""
        if what not in self._told and self._has_been(what, seconds):
            self._told.add(what)
            events.say("said", message=message, scenario=self._training.scenario)

    def _read_rest(self, outcome: verdict.Outcome) -> None:
        """Waits for what the pods wrote last, and, where the job failed, for the pod that was the cause."""
        began = self._clock()
        while self._clock() - began < REST_SECONDS and any(r.is_alive() for r in self._readers.values()):
            self._take(0.05)
        while outcome == "failed" and not self._lost and self._clock() - began < CAUSE_SECONDS:
            self._take(0.05)
        self._take(0.0)

    def _give_up(self, why: str, code: int) -> NoReturn:
        then = "it was deleted"
        try:
            self._api.delete_job(self._name, self._uid)
        except ClusterError as error:
            then = f"it is left behind: {error}"
        ended = "".join(f"\n  {verdict.loss(self._pods[uid])}" for uid in list(self._lost)[-self._replicas :])
        raise WorkerFailedError(f"{self._what} {why}; {then}{ended}", code)

    def _failed(self, job: dict[str, Any]) -> NoReturn:
        """Tells why: the pod that was the cause, what it ended with, and its last lines."""
        begin = f"{self._what} failed ({verdict.reason(job)})"
        if verdict.seconds(job, datetime.now(UTC)) >= self._given.deadline_seconds:
            limit = f"it did not end within {self._given.deadline_seconds:,} s (deadline_seconds)"
            raise WorkerFailedError(f"{begin}: {limit}", exits.FAILED)
        pod = verdict.cause(self._pods.values())
        if pod is None:
            lost = min((self._pods[uid] for uid in self._lost), key=verdict.follows, default=None)
            why = verdict.loss(lost) if lost else "no pod says why"
            raise WorkerFailedError(f"{begin}: {why}", exits.PEER_LOST)
        uid, name, code = pod["metadata"]["uid"], pod["metadata"]["name"], verdict.exit_code(pod)
        kept = ""
        if uid in self._present:
            look = f"kubectl -n {self._api.namespace} logs {name}"
            kept = f"\nIts pods are kept for {self._given.ttl_seconds:,} s: {look}"
        tail = list(self._tails[name]) or verdict.last_lines(pod)[-TAIL:]
        lines = "".join(f"\n  | {line}" for line in tail)
        said = self._causes.get(name) or (f"its last lines:{lines}" if lines else "it left no lines")
        raise WorkerFailedError(
            f"{begin}: {verdict.worker(pod)} (pod {name}) ended: {verdict.how_it_ended(pod)}; {said}{kept}",
            code or exits.FAILED,
        )
