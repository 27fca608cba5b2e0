"""What the tests on the cluster share: data in its store, and launchers as processes."""

import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fourfold.contract.records import Trained
from fourfold.contract.strict import from_json
from fourfold.prepare.step import Prepared, prepare
from fourfold.store import s3
from fourfold.train import tfjob
from tests.conftest import NAMESPACE, kubectl

PROGRAM = Path(__file__).with_name("launcher_program.py")
STORE = "s3://fourfold-tests"
WAYS = {"members": 3, "stages": 2, "micro_batches": 4, "local_steps": 0, "ways": "{}", "cache": "{}"}


@pytest.fixture(scope="session")
def store_environment(s3_server: s3.Settings) -> dict[str, str]:
    return {
        "AWS_ENDPOINT_URL_S3": s3_server.endpoint,
        "AWS_ACCESS_KEY_ID": s3_server.access_key,
        "AWS_SECRET_ACCESS_KEY": s3_server.secret_key,
    }


@pytest.fixture(scope="session")
def prepared(store_environment: dict[str, str]) -> Prepared:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in store_environment.items():
            patch.setenv(name, value)
        return prepare(STORE, rows=2000, holdout=100)


@dataclasses.dataclass
class Launcher:
    """A launcher that runs.

    Attributes:
        run: what its run is called.
        process: its process.
        log: what it prints.
        output: where it leaves what the training yields.
    """

    run: str
    process: subprocess.Popen
    log: Path
    output: Path

    @property
    def said(self) -> str:
        return self.log.read_text()

    def wait_for(self, text: str, seconds: float = 90.0) -> None:
        until = time.monotonic() + seconds
        while text not in self.said:
            assert self.process.poll() is None or text in self.said, f"ended without {text!r}:\n{self.said}"
            assert time.monotonic() < until, f"{text!r} did not come:\n{self.said}"
            time.sleep(0.1)

    def wait(self, seconds: float = 180.0) -> int:
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            pytest.fail(f"the launcher did not end:\n{self.said}")

    def jobs(self) -> list[dict[str, Any]]:
        return objects("tfjobs", f"{tfjob.RUN}={tfjob.label(self.run)}")

    def trained(self) -> Trained:
        return from_json(Trained, (self.output / "trained.json").read_bytes())


def objects(kind: str, selector: str) -> list[dict[str, Any]]:
    """What there is of a kind in the tests' namespace."""
    return json.loads(kubectl("-n", NAMESPACE, "get", kind, "-l", selector, "-o", "json"))["items"]


@pytest.fixture
def launch(
    prepared: Prepared, store_environment: dict[str, str], tmp_path: Path
) -> Iterator[Callable[..., Launcher]]:
    """Starts launchers; what they leave in the cluster is deleted afterwards."""
    started: list[Launcher] = []

    def start(
        scenario: str = "sequential",
        run: str | None = None,
        environment: dict[str, str] | None = None,
        command: list[str] | None = None,
        **said: Any,
    ) -> Launcher:
        given = {"namespace": NAMESPACE, "cpu": "100m", "memory": "1500Mi", "deadline_seconds": 300}
        number = len(started)
        way = {name: said.pop(name) for name in WAYS if name in said}
        name = run or f"test-{os.getpid()}-{tmp_path.name}"
        arguments = {
            "store": STORE, "fingerprint": prepared.manifest.fingerprint, "split_id": prepared.split.id,
            "scenario": scenario, "workers": 2, "epochs": said.pop("epochs", 1), "batch": 100,
            "optimizer": said.pop("optimizer", "adam"), "learning_rate": said.pop("learning_rate", 1e-3),
            "seed": 0, **{**WAYS, **way}, "pods": json.dumps({**given, **said}), "command": command,
            "output": str(tmp_path / f"output-{number}"), "uri": str(tmp_path / f"output-{number}"),
        }  # fmt: skip
        log = tmp_path / f"launcher-{number}.log"
        with log.open("wb") as file:
            process = subprocess.Popen(
                [sys.executable, str(PROGRAM), json.dumps(arguments)],
                stdout=file,
                stderr=subprocess.STDOUT,
                env={**os.environ, **store_environment, "FOURFOLD_RUN": name, **(environment or {})},
            )
        launcher = Launcher(name, process, log, Path(arguments["output"]))
        started.append(launcher)
        return launcher

    yield start
    for launcher in started:
        if launcher.process.poll() is None:
            launcher.process.send_signal(signal.SIGKILL)
        launcher.process.wait()
    for label in {tfjob.label(launcher.run) for launcher in started}:
        kubectl("-n", NAMESPACE, "delete", "tfjobs", "-l", f"{tfjob.RUN}={label}", "--wait=false")
