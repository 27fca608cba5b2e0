"""IDX files, gzip or plain, as MNIST comes in them. The content decides which it is, not the name.

Format: LeCun, Cortes, Burges, "The MNIST database of handwritten digits": two zero bytes, the type, the
number of dimensions, each dimension as a big-endian uint32, then the values.
"""

import gzip
import hashlib
import math
import struct
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fourfold.contract.errors import InvalidInputError

UNSIGNED_BYTE = 0x08
KINDS = {1: "labels", 3: "images"}


@dataclass(frozen=True)
class IdxFile:
    """An IDX file that was read whole and checked.

    Attributes:
        path: where it was read.
        values: uint8, [n] for labels, [n, height, width] for images.
        sha256: of the uncompressed bytes.
    """

    path: Path
    values: np.ndarray
    sha256: str


def uncompressed(path: Path) -> bytes:
    """The bytes of a file, uncompressed where it is gzip.

    Raises:
        InvalidInputError: the file cannot be read, is empty, is a web page, or is cut or damaged gzip.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InvalidInputError(f"cannot read {path}: {error.strerror or error}") from error
    if not data:
        raise InvalidInputError(f"{path} is empty: fetch it again")
    if data[:2] == b"\x1f\x8b":
        try:
            return gzip.decompress(data)
        except EOFError as error:
            raise InvalidInputError(
                f"{path} is cut: the gzip stream ends after {len(data)} bytes; fetch it again"
            ) from error
        except (gzip.BadGzipFile, zlib.error) as error:
            raise InvalidInputError(f"{path} is damaged gzip ({error}); fetch it again") from error
    if data.lstrip()[:1] == b"<":
        start = data.lstrip()[:15].decode("ascii", "replace")
        raise InvalidInputError(
            f"{path} is a web page (it starts with {start!r}), neither gzip nor IDX; fetch it again"
        )
    return data


def read(path: Path, dimensions: int) -> IdxFile:
    """Reads and checks one IDX file.

    Args:
        path: gzip or plain.
        dimensions: 1 for labels, 3 for images.

    Raises:
        InvalidInputError: the file is not whole, has bytes too many, or is not IDX of unsigned bytes with so
            many dimensions. The error names the file, what was found and what was expected.
    """
    data, wanted = uncompressed(path), KINDS[dimensions]
    if len(data) < 4:
        raise InvalidInputError(f"{path} has {len(data)} bytes: too short for an IDX file")
    zero, kind, found = struct.unpack(">HBB", data[:4])
    if zero != 0 or found == 0:
        raise InvalidInputError(
            f"{path} starts with {data[:4].hex()}, which is not the magic number of an IDX file"
        )
    if kind != UNSIGNED_BYTE:
        raise InvalidInputError(
            f"{path} holds IDX values of type 0x{kind:02x}; only unsigned bytes (0x08) are read"
        )
    if found != dimensions:
        is_what = f", which are {KINDS[found]}: are the two files swapped?" if found in KINDS else ""
        raise InvalidInputError(
            f"{path} should hold {wanted} ({dimensions} dimensions) but has {found}{is_what}"
        )
    header = 4 + 4 * dimensions
    if len(data) < header:
        raise InvalidInputError(f"{path} is cut inside its header: {len(data)} of {header} bytes")
    shape = struct.unpack(f">{dimensions}I", data[4:header])
    expected, got = math.prod(shape), len(data) - header
    if got != expected:
        fault = "is cut" if got < expected else "has bytes after its end"
        raise InvalidInputError(
            f"{path} {fault}: its header says {' x '.join(map(str, shape))} = {expected} bytes, {got} follow"
        )
    values = np.frombuffer(data, dtype=np.uint8, offset=header).reshape(shape)
    return IdxFile(path, values, hashlib.sha256(data).hexdigest())
