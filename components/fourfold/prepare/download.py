"""MNIST from a list of mirrors. A file has its name only once its content is known to be right."""

import hashlib
import http.client
import shutil
import tempfile
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
"""The published MD5 of MNIST's files: tells a wrong file from a right one, is no defence against attack."""


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
        InvalidInputError: the folder cannot be written.
        FourfoldError: no mirror gave a right file; the error says what each of them did.
    """
    wrong = {
        name: digest
        for name, digest in MD5_OF_UNCOMPRESSED.items()
        if not _is_right(folder / f"{name}.gz", digest)
    }
    if not wrong:
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
        parts = tempfile.TemporaryDirectory(dir=folder, prefix=".part-")
    except OSError as error:
        raise InvalidInputError(f"cannot write MNIST into {folder}: {error.strerror or error}") from error
    with parts as part_folder:
        for name, digest in wrong.items():
            _fetch_any(mirrors, Path(part_folder) / f"{name}.gz", folder, digest, seconds)


def _is_right(path: Path, digest: str) -> bool:
    try:
        return md5(idx.uncompressed(path)) == digest
    except InvalidInputError:
        return False


def _fetch_any(mirrors: Sequence[str], part: Path, folder: Path, digest: str, seconds: float) -> None:
    """Fetches one file from the first mirror that gives it right, and moves it into the folder."""
    faults = []
    for mirror in mirrors:
        fault = _fetch(f"{mirror.rstrip('/')}/{part.name}", part, digest, seconds)
        if fault is None:
            part.replace(folder / part.name)
            return
        faults.append(fault)
    raise FourfoldError(
        f"MNIST's {part.name} could not be fetched:\n  " + "\n  ".join(faults) + "\n"
        "Put the four files into a folder by hand and name it in FOURFOLD_DATA, or use --data sample."
    )


def _fetch(url: str, part: Path, digest: str, seconds: float) -> str | None:
    """Fetches one file to ``part``; returns what was wrong, or None."""
    try:
        with part.open("wb") as file, urllib.request.urlopen(url, timeout=seconds) as answer:
            shutil.copyfileobj(answer, file)
        found = md5(idx.uncompressed(part))
    except (OSError, ValueError, http.client.HTTPException) as error:
        return f"{url}: {str(error).replace(str(part), 'what came') or type(error).__name__}"
    return None if found == digest else f"{url}: the content is not MNIST's (MD5 {found}, expected {digest})"
