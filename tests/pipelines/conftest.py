"""Files that the command ``fourfold merge`` takes."""

from pathlib import Path

import numpy as np
import pytest

from tests.pipelines.merging import network, rows


@pytest.fixture
def two_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two models, a.keras and b.keras, with their rows a.npz and b.npz, and rows h.npz of neither."""
    monkeypatch.chdir(tmp_path)
    for seed, name in enumerate(("a", "b", "h")):
        x, y = rows(seed, 90 if name != "b" else 60)
        np.savez(f"{name}.npz", x=x, y=y)
        if name != "h":
            network(seed).save(f"{name}.keras")
    return tmp_path
