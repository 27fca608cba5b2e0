"""The bytes of a data set, to be read with NumPy alone.

``datasets/<fingerprint>/`` holds ``manifest.json`` (the record ``DatasetManifest``, written last) and for
each part a folder with

* ``<index>.npy``, one object a cached batch: ``x`` [rows, ...] and right after it ``y`` [rows] int32, both in
  NumPy's ``.npy`` format, C order: ``with open(path, "rb") as f: x, y = np.load(f), np.load(f)``;
* ``index.npy``, a structured array [batches] with the fields ``sha256`` (of the object, uint8 [32]),
  ``bytes`` (its size, int64) and ``classes`` (its rows of each class, int32 [classes]). Its own sha256 is in
  the manifest.

Batch ``i`` holds the rows from ``i * rows_per_batch`` on. Nothing is ever pickled. What values are divided by
to be ready is the manifest's ``scale``.
"""

import functools
import hashlib
import io
import json
import math
from collections.abc import Mapping

import numpy as np
from numpy.lib import format as npy

from fourfold.contract.caching import DTYPES
from fourfold.contract.datasets import DatasetManifest
from fourfold.contract.errors import DamagedObjectError
from fourfold.store.formats import array_from_bytes, array_to_bytes, sha256

FORMAT = 2


def fingerprint(content: Mapping[str, object]) -> str:
    """The name of a data set: a hash over everything that its content depends on.

    Args:
        content: JSON values by name; their order does not matter.

    Returns:
        32 hexadecimal digits.
    """
    text = json.dumps({"format": FORMAT, **content}, sort_keys=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def batch_to_bytes(x: np.ndarray, y: np.ndarray) -> bytes:
    """One cached batch as an object.

    Args:
        x: rows [n, ...].
        y: class numbers [n] int32.
    """
    return array_to_bytes(x) + array_to_bytes(y.astype(np.int32, copy=False))


def batch_from_bytes(
    data: bytes | memoryview, name: str, rows: int, shape: tuple[int, ...], dtype: str
) -> tuple[np.ndarray, np.ndarray]:
    """The rows of a cached batch; nothing is copied.

    Args:
        data: the object's bytes.
        name: its key, for the error.
        rows: that it must have, n.
        shape: of one row of ``x``.
        dtype: of ``x``.

    Returns:
        ``x`` [n, ...] and ``y`` [n] int32.

    Raises:
        DamagedObjectError: the bytes are no such batch.
    """
    at, arrays = 0, []
    for wanted, kind in (((rows, *shape), np.dtype(dtype)), ((rows,), np.dtype(np.int32))):
        header, count = _header(wanted, kind.str), math.prod(wanted)
        begin, end = at + len(header), at + len(header) + count * kind.itemsize
        if data[at:begin] != header or end > len(data):
            raise DamagedObjectError(f"{name} is no cached batch of {rows} rows {shape} {dtype}")
        arrays.append(np.frombuffer(data, kind, count, begin).reshape(wanted))
        at = end
    if at != len(data):
        raise DamagedObjectError(f"{name} has {len(data) - at} bytes after its rows")
    return arrays[0], arrays[1]


@functools.lru_cache(maxsize=64)
def _header(shape: tuple[int, ...], descr: str) -> bytes:
    """What a ``.npy`` of this shape and type begins with; comparing is faster than parsing."""
    buffer = io.BytesIO()
    npy.write_array_header_1_0(buffer, {"descr": descr, "fortran_order": False, "shape": shape})
    return buffer.getvalue()


def contradiction(manifest: DatasetManifest) -> str:
    """What of a manifest cannot be true, in words; empty where all of it can."""
    if manifest.dtype not in DTYPES:
        return f"its dtype {manifest.dtype!r} is none of {', '.join(DTYPES)}"
    if manifest.dtype != "uint8" and manifest.scale != 1.0 or not manifest.scale > 0:
        return f"its values of {manifest.dtype} cannot have the scale {manifest.scale}"
    for name, part in manifest.parts.items():
        classes = len(part.classes) == len(manifest.class_names) and sum(part.classes) == part.rows
        size = manifest.rows_per_batch
        if not classes or size < 1 or part.batches != -(-part.rows // size):
            return f"the rows of its part {name} do not add up"
    return ""


def index_of(classes: int) -> np.dtype:
    """The type of one entry of a part's index."""
    return np.dtype([("sha256", "u1", (32,)), ("bytes", "<i8"), ("classes", "<i4", (classes,))])


def index_from_bytes(data: bytes, name: str, manifest: DatasetManifest, part: str) -> np.ndarray:
    """The index of a part [batches].

    Raises:
        DamagedObjectError: the bytes are not those that the manifest says, or no such index.
    """
    if sha256(data) != manifest.parts[part].sha256:
        raise DamagedObjectError(f"{name} is damaged: its sha256 is not that of the manifest; prepare again")
    found, listed = array_from_bytes(data, name), manifest.parts[part]
    if found.dtype != index_of(len(manifest.class_names)) or found.shape != (listed.batches,):
        raise DamagedObjectError(f"{name} is no index of {listed.batches} cached batches")
    if found["bytes"].sum() != listed.bytes or found["classes"].sum(axis=0).tolist() != listed.classes:
        raise DamagedObjectError(f"{name} does not add up to what the manifest says; prepare again")
    return found
