"""What tests of several rooms share: prepared data, a process that forks workers, a real cluster."""

import os
import shutil
import subprocess
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings

from fourfold.cache import layout
from fourfold.contract.datasets import DatasetManifest
from fourfold.contract.records import Training
from fourfold.prepare.step import Prepared, prepare
from fourfold.store import s3
from fourfold.store.objects import FolderStore
from fourfold.train import processes
from fourfold_pipelines.local import worker_server

# A busy machine is no fault of the code.
settings.register_profile("no deadline", deadline=None)
settings.load_profile("no deadline")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("store")


@pytest.fixture(scope="session")
def workers() -> Iterator[None]:
    """A server that forks workers, so that tests import TensorFlow once for all of their workers."""
    with worker_server() as path:
        os.environ[processes.SERVER] = path
        yield
        del os.environ[processes.SERVER]


@pytest.fixture
def make_training(store: Path, tmp_path: Path) -> Callable[..., Training]:
    """Makes the record of a training on rows of the sample; what is not said is small."""

    def make(
        scenario: str, rows: int = 400, split: str = "contiguous", workers: int = 2, **fields
    ) -> Training:
        output = fields.pop("output", tmp_path / "output")
        return training_of(store, output, scenario, rows, split, workers, **{"epochs": 1, **fields})

    return make


def training_of(
    store: Path, output: Path | str, scenario: str, rows: int, split: str, workers: int, **fields
) -> Training:
    """The record of a training on rows of the sample; its other fields are named."""
    prepared = prepared_of(store, rows, split, workers)
    training = Training(
        scenario=scenario,
        workers=workers,
        store=str(store),
        fingerprint=prepared.manifest.fingerprint,
        split=prepared.split.id,
        output=str(output),
    )
    return replace(training, **fields)


def prepared_of(store: Path, rows: int, split: str, workers: int) -> Prepared:
    return prepare(str(store), rows=rows, holdout=100, split=split, workers=workers)


Parts = dict[str, tuple[np.ndarray, np.ndarray]]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def objects(root: Path) -> FolderStore:
    return FolderStore(root)


@pytest.fixture(scope="session")
def parts() -> Parts:
    """Rows that tell themselves apart: 47 of train, 20 of holdout, 9 of test, each [3, 2, 1] float32."""
    rng = np.random.default_rng(7)
    return {
        part: (rng.random((rows, 3, 2, 1), dtype=np.float32), np.arange(rows, dtype=np.int32) % 3)
        for part, rows in (("train", 47), ("holdout", 20), ("test", 9))
    }


def described(
    fingerprint: str = "f00d",
    shape: tuple[int, ...] = (3, 2, 1),
    rows_per_batch: int = 10,
    dtype: str = "float32",
) -> DatasetManifest:
    """The manifest, without its parts yet, of a data set."""
    return DatasetManifest(
        format=layout.FORMAT,
        fingerprint=fingerprint,
        source="made up",
        source_sha256="ab",
        normalisation="none",
        dtype=dtype,
        shape=list(shape),
        class_names=["a", "b", "c"],
        rows_per_batch=rows_per_batch,
        parts={},
    )


@pytest.fixture(scope="session")
def describe() -> Callable[[str], DatasetManifest]:
    """Makes the manifest, without its parts yet, of a data set with this fingerprint."""
    return described


NAMESPACE = "fourfold"
OVERLAY = Path(__file__).parents[1] / "manifests" / "overlays" / "kind"


def kubectl(*arguments: str, stdin: str | None = None) -> str:
    """Runs kubectl and gives what it prints."""
    done = subprocess.run(["kubectl", *arguments], input=stdin, capture_output=True, text=True, timeout=180)
    assert done.returncode == 0, f"kubectl {' '.join(arguments)}: {done.stderr}"
    return done.stdout


@pytest.fixture(scope="session")
def cluster() -> None:
    if not os.environ.get("KUBECONFIG") or not shutil.which("kubectl"):
        pytest.skip("no cluster: KUBECONFIG is not set, or kubectl is not installed")
    kubectl("version", "--request-timeout=20s")


@pytest.fixture(scope="session")
def s3_server(cluster: None) -> Iterator[s3.Settings]:
    """The SeaweedFS of the kind overlay, reached as ``fourfold run --on cluster`` reaches it."""
    from fourfold_pipelines.reach import reach

    kubectl("apply", "--server-side", "-k", str(OVERLAY))
    kubectl("-n", NAMESPACE, "rollout", "status", "deployment/seaweedfs", "--timeout=150s")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with reach(NAMESPACE) as found:
            yield s3.settings(found.environment)
