"""Features of a few fixed rows, taken along training, to see how far apart models are."""

import numpy as np

from fourfold.cache import dataset
from fourfold.contract.datasets import DatasetManifest
from fourfold.model.pinned import keras
from fourfold.store.formats import arrays_to_bytes
from fourfold.store.objects import Store

ROWS = 8
A_EPOCH = 4
"""Times in an epoch."""


class Probes:
    """Takes what reaches a model's last layer.

    Args:
        model: whose features are taken.
        store: of the data set.
        manifest: likewise; the rows are its first hold-out rows.
    """

    def __init__(self, model: keras.Model, store: Store, manifest: DatasetManifest):
        count = min(ROWS, manifest.rows("holdout"))
        self._rows, _ = dataset.read_rows(store, manifest, "holdout", np.arange(count, dtype=np.int64))
        given = model.layers[-1].input
        self._given = keras.Model(model.inputs, given if isinstance(given, list) else [given])
        self.steps: list[int] = []
        self._features: list[np.ndarray] = []

    def take(self, step: int) -> None:
        """Takes features after a step, counted from 1 over all epochs; 0 is the start."""
        found = self._given([self._rows], training=False)
        flat = [np.asarray(each, np.float32).reshape(len(self._rows), -1) for each in found]
        self.steps.append(step)
        self._features.append(np.concatenate(flat, axis=1))

    def state(self) -> dict[str, np.ndarray]:
        """What was taken so far, as arrays: ``steps`` int64 [T], ``features`` float32 [T, rows, n]."""
        return {"steps": np.array(self.steps, np.int64), "features": np.stack(self._features)}

    def restore(self, state: dict[str, np.ndarray]) -> None:
        """Goes on from what was taken before, as of ``state``."""
        self.steps = state["steps"].tolist()
        self._features = list(state["features"])

    def to_bytes(self) -> bytes:
        """The features as an object of the store: ``features`` float32 [T, rows, n]."""
        return arrays_to_bytes({"features": np.stack(self._features)})


def marks(steps: int) -> list[int]:
    """Steps of an epoch, counted from 1, after which features are taken; the last is among them."""
    return sorted({max(1, round(steps * part / A_EPOCH)) for part in range(1, A_EPOCH + 1)})
