"""MNIST from a list of mirrors. A file has its name only once its content is known to be right."""

import hashlib
import os
import tempfile
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path

from fourfold.contract.errors import FourfoldError, InvalidInputError
from fourfold.prepare import idx

MIRRORS = (
    "https://storage.googleapis.com/cvdf-datasets/mnist/",
    "https://ossci-datasets.s3.amazonaws.com/mnist/",
    "http://yann.lecun.com/exdb/mnist/",
)

MD5_OF_UNCOMPRESSED = {
    "train-images-idx3-ubyte": "6bbc9ace898e44ae57da46a324031adb",
    "train-labels-idx1-ubyte": "a25bea736e30d166cdddb491f175f624",
    "t10k-images-idx3-ubyte": "2646ac647ad5339dbf082846283269ea",
    "t10k-labels-idx1-ubyte": "27ae3e4e09519cfbb04c329615203637",
}
"""The published MD5 of MNIST's four files; it tells a wrong file from a right one and is no defence against an attacker."""


def md5(data: bytes) -> str:
    """The MD5 of bytes, in hexadecimal."""
    return hashlib.md5(data, usedforsecurity=False).hexdigest()


def fetch_mnist(folder: Path, mirrors: Sequence[str] = MIRRORS, seconds: float = 30.0) -> None:
    """Puts MNIST's four files into a folder; those that are there and right stay.

    Args:
        folder: made if missing.
        mirrors: base URLs, tried in turn for each file.
        seconds: how long a mirror may be silent.

    Raises:
        FourfoldError: no mirror gave a right file; the error says what each of them did.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidInputError(f"cannot make {folder} for MNIST: {error.strerror or error}") from error
    for name, digest in MD5_OF_UNCOMPRESSED.items():
        target = folder / f"{name}.gz"
        if target.exists() and _is_right(target, digest):
            continue
        faults = []
        for mirror in mirrors:
            fault = _fetch(mirror.rstrip("/") + f"/{name}.gz", target, digest, seconds)
            if fault is None:
                break
            faults.append(fault)
        else:
            raise FourfoldError(
                f"MNIST's {name}.gz could not be fetched:\n  " + "\n  ".join(faults) + "\n"
                "Put the four files into a folder by hand and name it in FOURFOLD_DATA, or use --data sample."
            )


def _is_right(path: Path, digest: str) -> bool:
    try:
        return md5(idx.uncompressed(path)) == digest
    except InvalidInputError:
        return False


def _fetch(url: str, target: Path, digest: str, seconds: float) -> str | None:
    """Fetches one file; returns what was wrong, or None."""
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=".part-")
    part = Path(name)
    try:
        with os.fdopen(handle, "wb") as file, urllib.request.urlopen(url, timeout=seconds) as answer:
            while piece := answer.read(1 << 20):
                file.write(piece)
        found = md5(idx.uncompressed(part))
        if found != digest:
            return f"{url}: the content is not MNIST's (MD5 {found}, expected {digest})"
        part.replace(target)
        return None
    except (OSError, urllib.error.URLError, InvalidInputError) as error:
        return f"{url}: {str(error).replace(str(part), 'what came')}"
    finally:
        part.unlink(missing_ok=True)
