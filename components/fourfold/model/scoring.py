"""A model's logits for many rows, in batches, outside any strategy; and models from their bytes."""

import os
import tempfile
from pathlib import Path

import keras
import numpy as np

from fourfold.contract.errors import DamagedObjectError


def logits(model: keras.Model, x: np.ndarray, batch: int = 500) -> np.ndarray:
    """The model's outputs, in inference mode.

    Args:
        model: takes rows, gives logits.
        x: rows [n, ...].
        batch: rows at once.

    Returns:
        float32 [n, classes].
    """
    pieces = [model.predict_on_batch(x[start : start + batch]) for start in range(0, len(x), batch)]
    return np.concatenate(pieces).astype(np.float32)


def to_bytes(model: keras.Model) -> bytes:
    """A model as the bytes of a ``.keras`` file; nothing is left on disk."""
    with tempfile.TemporaryDirectory(prefix="fourfold-") as folder:
        path = Path(folder) / "model.keras"
        model.save(path)
        return path.read_bytes()


def from_bytes(data: bytes, name: str) -> keras.Model:
    """A model from the bytes of a ``.keras`` file. Code in the file is never run (safe mode).

    Args:
        data: the file's bytes.
        name: its key, for the error.

    Raises:
        DamagedObjectError: the bytes are not a model that can be loaded safely.
    """
    handle, path = tempfile.mkstemp(prefix="fourfold-", suffix=".keras")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        model = keras.models.load_model(path, compile=False, safe_mode=True)
    except (ValueError, OSError, KeyError, TypeError) as error:
        raise DamagedObjectError(f"{name} cannot be loaded as a .keras model: {error}") from error
    finally:
        Path(path).unlink(missing_ok=True)
    assert model is not None
    return model
