"""A model's logits for many rows, in batches, outside any strategy; and models from their bytes."""

import os
import tempfile
import zipfile
from pathlib import Path

import numpy as np

from fourfold.contract.errors import DamagedObjectError
from fourfold.model.pinned import keras


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
        with zipfile.ZipFile(path) as archive:
            if broken := archive.testzip():
                raise DamagedObjectError(f"{name} is damaged: the checksum of {broken} in it is wrong")
        model = keras.models.load_model(path, compile=False, safe_mode=True)
    except DamagedObjectError:
        raise
    except Exception as error:  # zipfile, zlib, h5py and Keras raise many kinds on bytes that are no model.
        raise DamagedObjectError(f"{name} cannot be loaded as a .keras model: {error}") from error
    finally:
        Path(path).unlink(missing_ok=True)
    if not isinstance(model, keras.Model):
        raise DamagedObjectError(f"{name} holds a {type(model).__name__}, not a model")
    return model
