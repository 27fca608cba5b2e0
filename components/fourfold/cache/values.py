"""Values as they are kept and as the model sees them: the normalisation, where it is cheapest.

As float32 and float16 they are kept ready. As uint8 they are kept as they came, at a quarter of the bytes,
and divided when read: one operation a value, the same as up front, so the result has the same bits.
"""

import numpy as np

from fourfold.contract.caching import DTYPES
from fourfold.contract.errors import InvalidInputError


def kept(x: np.ndarray, dtype: str, scale: float = 255.0) -> np.ndarray:
    """Values as cached batches keep them.

    Args:
        x: as they came, [n, ...] uint8.
        dtype: wanted.
        scale: what values are divided by to be ready.

    Returns:
        [n, ...] in that dtype.

    Raises:
        InvalidInputError: the dtype is unknown, or cannot keep the values as they came.
    """
    if dtype not in DTYPES:
        raise InvalidInputError(f"unknown dtype {dtype!r} for cached batches: use {', '.join(DTYPES)}")
    if dtype == "uint8":
        if x.dtype != np.uint8:
            raise InvalidInputError(
                f"cached batches of uint8 keep values as they came, and these came as {x.dtype}: use float32"
            )
        return x
    return ready(x, scale).astype(dtype, copy=False)


def kept_scale(dtype: str, scale: float = 255.0) -> float:
    """What values kept in this dtype are divided by when they are read."""
    return scale if dtype == "uint8" else 1.0


def ready(x: np.ndarray, scale: float) -> np.ndarray:
    """Values as the model sees them.

    Args:
        x: as they are kept, [n, ...].
        scale: the manifest's.

    Returns:
        [n, ...] float32; ``x`` itself where it is that already.
    """
    if scale == 1.0:
        return x.astype(np.float32, copy=False)
    return np.divide(x, np.float32(scale), dtype=np.float32)
