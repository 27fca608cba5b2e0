"""What tests of launching share: a fake cluster whose operator and kubelet the test plays, and a launcher."""

import copy
import json
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from kubernetes.config import kube_config

from fourfold.contract import events
from fourfold.contract.pods import Pods
from fourfold.contract.records import Training
from fourfold.train import follow, launch, logs, tfjob
from fourfold.train.api import Api
from tests.train.fake_cluster import NAMESPACE, FakeCluster, status

ALWAYS = float("inf")
FORBIDDEN = status(
    403,
    'tfjobs.kubeflow.org is forbidden: User "system:serviceaccount:lab:default" cannot create resource '
    '"tfjobs" in API group "kubeflow.org" in the namespace "lab"',
    "Forbidden",
)
GONE = status(410, "too old resource version: 1000 (2000)", "Expired")
UNAVAILABLE = status(503, "apiserver is shutting down", "ServiceUnavailable")
UNKNOWN = (404, "404 page not found\n")
"""What an API server answers where a resource was never defined."""
HALF = json.dumps({"type": "MODIFIED", "object": {"metadata": {"name": "a", "uid": "1"}}}).encode()[:40]
GONE_EVENT = json.dumps({"type": "ERROR", "object": GONE[1]}).encode() + b"\n"

TRAINING = Training("solo", 2, "s3://bucket/store", "f" * 16, "s" * 16, "s3://bucket/out")


class Lab(FakeCluster):
    """A fake cluster whose operator and kubelet are the test."""

    def make_job(self, spec: str = "", **conditions: bool) -> str:
        """Makes a job of the name that the launcher will choose, of the same spec if no other is said."""
        old = tfjob.build(TRAINING, Pods(namespace=NAMESPACE), "run")
        if spec:
            old["metadata"]["annotations"][tfjob.SPEC] = spec
        name = self.put("tfjobs", old)["metadata"]["name"]
        self.set_job(name, **conditions)
        return name

    def set_job(self, name: str, **conditions: bool) -> None:
        """Sets the conditions of a job: type and whether it is true."""
        with self.changed:
            job = copy.deepcopy(self.objects["tfjobs"][name])
            job["status"] = {
                "conditions": [
                    {"type": kind, "status": str(value), "reason": f"TFJob{kind}", "message": f"it is {kind}"}
                    for kind, value in conditions.items()
                ]
            }
            self.put("tfjobs", job)

    def make_pods(self, job: str, count: int = 2, phase: str = "Running") -> list[str]:
        """Makes the pods of a job, all in one phase."""
        names = [f"{job}-worker-{index}" for index in range(count)]
        for index, name in enumerate(names):
            labels = {
                "training.kubeflow.org/job-name": job,
                "training.kubeflow.org/replica-index": str(index),
            }
            owner = {"kind": "TFJob", "name": job, "uid": self.uid(job), "controller": True}
            meta = {"name": name, "labels": labels, "ownerReferences": [owner]}
            self.put("pods", {"metadata": meta, "status": {"phase": "Pending"}})
            if phase != "Pending":
                self.set_pod(name, phase)
        return names

    def set_pod(self, name: str, phase: str, state: dict[str, Any] | None = None, **status: Any) -> None:
        """Sets a pod's status; the state is its container's."""
        state = {"running": {}} if state is None and phase == "Running" else state
        container = {"name": "tensorflow", "image": "the/image:1", "state": state or {}}
        with self.changed:
            pod = copy.deepcopy(self.objects["pods"][name])
            pod["status"] = {"phase": phase, "containerStatuses": [container], **status}
            self.put("pods", pod)

    def end_pod(self, name: str, code: int, **terminated: Any) -> None:
        """Ends a pod's program with an exit code."""
        terminated = {"exitCode": code, "finishedAt": datetime.now(UTC).isoformat(), **terminated}
        self.set_pod(name, "Failed" if code else "Succeeded", {"terminated": terminated})

    def succeed(self, job: str) -> None:
        """Ends a job and its pods well."""
        for name, pod in list(self.objects["pods"].items()):
            if pod["status"]["phase"] == "Running":
                self.end_pod(name, 0)
        self.set_job(job, Running=False, Succeeded=True)

    def followed(self, count: int = 1) -> str:
        """Waits until job and pods have been watched so often, and gives the job's name."""
        job = self.job()
        self.until(lambda: all(len(self.asked("watch", what)) >= count for what in ("tfjobs", "pods")))
        return job

    def uid(self, job: str) -> str:
        return self.objects["tfjobs"][job]["metadata"]["uid"]

    def deleted(self) -> list[tuple[str, str]]:
        """Names and uids of the jobs whose deletion was asked for."""
        return [(r.name, r.body["preconditions"]["uid"]) for r in self.asked("delete", "tfjobs")]


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lab]:
    """A fake cluster that KUBECONFIG names."""
    found = Lab(tmp_path / "kubeconfig")
    monkeypatch.setenv("KUBECONFIG", str(found.kubeconfig))
    # The client reads the variable when it is imported.
    monkeypatch.setattr(kube_config, "KUBE_CONFIG_DEFAULT_LOCATION", str(found.kubeconfig))
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    yield found
    found.stop()


@pytest.fixture
def told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[str]]:
    """What was told in events until now, as the sentences of ``said`` and the names of all others."""
    path = tmp_path / "events.jsonl"
    path.touch()
    monkeypatch.setenv(events.FILE, str(path))

    def read() -> list[str]:
        found = [json.loads(line) for line in path.read_text().splitlines() if line.endswith("}")]
        return [event.get("message", event["event"]) for event in found]

    return read


@pytest.fixture
def start(lab: Lab, told: object, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Future[None]]]:
    """Starts a launcher in a thread; its end is the future's."""
    monkeypatch.setenv(events.RUN, "run")
    for module, name in ((follow, "TOLD_AFTER"), (follow, "LOST_AFTER"), (logs, "PAUSE")):
        monkeypatch.setattr(module, name, 0.05)
    pool = ThreadPoolExecutor()

    def launcher(
        training: Training = TRAINING,
        clean: Callable[[], None] = lambda: None,
        patience: float = 2.0,
        **pods: Any,
    ) -> Future[None]:
        return pool.submit(launch.run, training, clean, Pods(**pods), Api(patience=patience))

    yield launcher
    # A launcher that a failed test left ends when its cluster does.
    lab.stop()
    pool.shutdown()
