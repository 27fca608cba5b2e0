"""A store in a folder, and a small data set in it."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from fourfold.cache import layout
from fourfold.contract.datasets import DatasetManifest
from fourfold.store.objects import FolderStore

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


@pytest.fixture(scope="session")
def describe() -> Callable[[str], DatasetManifest]:
    """Makes the manifest, without its parts yet, of a data set with this fingerprint."""

    def manifest(fingerprint: str = "f00d") -> DatasetManifest:
        return DatasetManifest(
            format=layout.FORMAT,
            fingerprint=fingerprint,
            source="made up",
            source_sha256="ab",
            normalisation="none",
            dtype="float32",
            shape=[3, 2, 1],
            class_names=["a", "b", "c"],
            rows_per_batch=10,
            parts={},
        )

    return manifest
