"""Arrays as bytes: ``.npy`` for cached batches, safetensors for named arrays. Nothing is ever unpickled."""

import hashlib
import io
import tokenize

import numpy as np
import safetensors
import safetensors.numpy
from numpy.lib import format as npy

from fourfold.contract.errors import DamagedObjectError


def sha256(data: bytes | memoryview) -> str:
    """The SHA-256 of bytes, in hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def array_to_bytes(array: np.ndarray) -> bytes:
    """An array in NumPy's ``.npy`` format, C order."""
    buffer = io.BytesIO()
    npy.write_array(buffer, np.asarray(array, order="C"), allow_pickle=False)
    return buffer.getvalue()


def array_from_bytes(data: bytes, name: str) -> np.ndarray:
    """The array in ``.npy`` bytes.

    Args:
        data: the object's bytes.
        name: its key, for the error.

    Raises:
        DamagedObjectError: the bytes are not a whole ``.npy`` of plain numbers.
    """
    buffer = io.BytesIO(data)
    try:
        array = npy.read_array(buffer, allow_pickle=False)
    except (ValueError, EOFError, TypeError, SyntaxError, tokenize.TokenError) as error:
        # NumPy reads the header as Python: a damaged one may be no Python, or name no dtype.
        raise DamagedObjectError(f"{name} is not a .npy array: {error}") from error
    if buffer.tell() != len(data):
        raise DamagedObjectError(f"{name} has {len(data) - buffer.tell()} bytes after its array")
    return array


def arrays_to_bytes(arrays: dict[str, np.ndarray]) -> bytes:
    """Named arrays in the safetensors format."""
    return safetensors.numpy.save({name: np.asarray(array, order="C") for name, array in arrays.items()})


def arrays_from_bytes(data: bytes, name: str) -> dict[str, np.ndarray]:
    """The named arrays in safetensors bytes.

    Raises:
        DamagedObjectError: the bytes are not a whole safetensors file of types that NumPy has.
    """
    try:
        return safetensors.numpy.load(data)
    except (safetensors.SafetensorError, ValueError) as error:
        raise DamagedObjectError(f"{name} is not a safetensors file: {error}") from error
    except KeyError as error:
        raise DamagedObjectError(f"{name} holds values of type {error}, which NumPy does not have") from error
