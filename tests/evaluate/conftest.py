"""Scores as the train step leaves them, with a known share of right rows."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fourfold.cache import dataset
from fourfold.contract import keys
from fourfold.contract.records import Epoch, Evaluation, Trained, Training, WorkerReport
from fourfold.contract.strict import to_json
from fourfold.evaluate.step import evaluate
from fourfold.prepare.step import Prepared, prepare
from fourfold.store.formats import arrays_to_bytes, sha256
from fourfold.store.objects import open_store

TEST_ROWS, HOLDOUT_ROWS = 2000, 20


@pytest.fixture(scope="module")
def store(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("evaluate-store")


@pytest.fixture(scope="module")
def prepared(store) -> Prepared:
    return prepare(str(store), rows=50, holdout=HOLDOUT_ROWS)


@pytest.fixture(scope="module")
def labels(store, prepared) -> dict[str, np.ndarray]:
    source = open_store(str(store))
    return {part: dataset.read_rows(source, prepared.manifest, part)[1] for part in ("test", "holdout")}


def scores(labels: dict[str, np.ndarray], right: float, seed: int) -> dict[str, np.ndarray]:
    """Random logits in which about a share ``right`` of the rows is raised at the right class."""
    rng = np.random.default_rng(seed)
    made = {}
    for part, y in labels.items():
        logits = rng.normal(size=(len(y), 10)).astype(np.float32)
        logits[np.arange(len(y)), y] += 9 * (rng.random(len(y)) < right)
        made[part] = logits
    return made


Write = Callable[..., str]


@pytest.fixture
def write(store, prepared, tmp_path) -> Write:
    """Writes what the train step would have left: the record, each model's scores, and features if given."""

    def write(
        *members: dict[str, np.ndarray],
        scenario: str = "solo",
        features: Sequence[np.ndarray | None] = (),
        probed: Sequence[list[int]] = (),
        **fields: Any,
    ) -> str:
        target, reports = open_store(str(tmp_path / "trained")), []
        asked = Training(
            scenario, len(members), str(store), prepared.manifest.fingerprint, prepared.split.id, ""
        )
        for index, member in enumerate(members):
            data = arrays_to_bytes(member)
            objects = {keys.scores(index): data}
            taken = features[index] if features else None
            if taken is not None:
                objects[keys.probes(index)] = arrays_to_bytes({"features": taken})
            for key, content in objects.items():
                target.write(key, content)
            epochs = [Epoch(1.0, 0.5, 0.1, 25)]
            reports.append(
                WorkerReport(index, str(index), index, 25, epochs, ["old", f"digest-{index}"],
                             objects={key: sha256(content) for key, content in objects.items()},
                             probed=probed[index] if probed else [], **fields)
            )  # fmt: skip
        count = len(members)
        target.write(keys.TRAINED, to_json(Trained(asked, count, 1, count, 100, 1, reports)))
        return target.uri

    return write


@pytest.fixture
def measure(store, prepared, write) -> Callable[..., Evaluation]:
    def measure(*members: dict[str, np.ndarray], **fields: Any) -> Evaluation:
        return evaluate(str(store), prepared.manifest.fingerprint, write(*members, **fields))

    return measure
