"""What can be read: the sample in this package, MNIST by name, or a folder with four IDX files."""

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fourfold.contract.errors import InvalidInputError
from fourfold.prepare import download, idx

SAMPLE = Path(__file__).parent / "sample"
FOLDER = "FOURFOLD_DATA"
MIRRORS = "FOURFOLD_MIRRORS"


@dataclass(frozen=True)
class Source:
    """A source that was read whole and checked.

    Attributes:
        name: for people.
        sha256: over the uncompressed bytes of all its files.
        train_x: uint8 [n, height, width, 1].
        train_y: int32 [n].
        test_x: uint8 [m, height, width, 1].
        test_y: int32 [m].
        class_names: by class number.
    """

    name: str
    sha256: str
    train_x: np.ndarray
    train_y: np.ndarray
    test_x: np.ndarray
    test_y: np.ndarray
    class_names: tuple[str, ...]


def read(data: str) -> Source:
    """Reads and checks a source.

    Args:
        data: ``sample`` (the first 10,000 training and 2,000 test rows of MNIST), ``mnist`` (all of it, from
            the folder that FOURFOLD_DATA names, else downloaded), or the path of a folder with the four IDX
            files.

    Raises:
        InvalidInputError: there is no such source, or something in it is wrong.
        FourfoldError: MNIST could not be downloaded.
    """
    if data == "sample":
        return read_idx_folder(SAMPLE, name="MNIST sample")
    if data == "mnist":
        return read_idx_folder(_mnist_folder(), name="MNIST", md5s=download.MD5_OF_UNCOMPRESSED)
    folder = Path(data)
    if not data or not folder.is_dir():
        raise InvalidInputError(
            f"--data {data!r} is no folder: use 'sample', 'mnist', or the path of a folder with the four IDX "
            f"files ({', '.join(download.MD5_OF_UNCOMPRESSED)}, each plain or .gz)"
        )
    return read_idx_folder(folder, name=folder.resolve().name)


def _mnist_folder() -> Path:
    named = os.environ.get(FOLDER)
    if named and all(_find(Path(named), name) for name in download.MD5_OF_UNCOMPRESSED):
        return Path(named)
    folder = Path(named) if named else cache_folder() / "mnist"
    mirrors = os.environ.get(MIRRORS, "").split() or download.MIRRORS
    download.fetch_mnist(folder, mirrors)
    return folder


def cache_folder() -> Path:
    """Where downloads go: ``$XDG_CACHE_HOME/fourfold``, else ``~/.cache/fourfold``."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path("~/.cache").expanduser()) / "fourfold"


def read_idx_folder(folder: Path, name: str, md5s: dict[str, str] | None = None) -> Source:
    """Reads four IDX files.

    Args:
        folder: holds the files, each plain or gzip.
        name: for people.
        md5s: expected MD5 of each uncompressed file, where it is known.

    Raises:
        InvalidInputError: a file is missing, broken, or does not belong to the others.
    """
    paths = {}
    for file in download.MD5_OF_UNCOMPRESSED:
        path = _find(folder, file)
        if path is None:
            raise InvalidInputError(
                f"{folder} has no {file} and no {file}.gz: an IDX source is these four files: "
                f"{', '.join(download.MD5_OF_UNCOMPRESSED)}"
            )
        paths[file] = path
    if md5s:
        for file, path in paths.items():
            found = download.md5(idx.uncompressed(path))
            if found != md5s[file]:
                raise InvalidInputError(
                    f"{path} is not MNIST's {file} (MD5 {found}, expected {md5s[file]}): name the folder "
                    "itself in --data to read other data"
                )
    train_images, train_labels, test_images, test_labels = (
        idx.read(path, dimensions=3 if "images" in file else 1) for file, path in paths.items()
    )
    _belong_together(train_images, train_labels)
    _belong_together(test_images, test_labels)
    if train_images.values.shape[1:] != test_images.values.shape[1:]:
        raise InvalidInputError(
            f"{train_images.path} has images of {train_images.values.shape[1:]} and {test_images.path} of "
            f"{test_images.values.shape[1:]}: they must have one size"
        )
    files = (train_images, train_labels, test_images, test_labels)
    class_names = tuple(str(digit) for digit in range(10))
    return Source(
        name=name,
        sha256=hashlib.sha256("".join(file.sha256 for file in files).encode()).hexdigest(),
        train_x=train_images.values[..., np.newaxis],
        train_y=check_labels(train_labels.values, len(class_names), str(train_labels.path)),
        test_x=test_images.values[..., np.newaxis],
        test_y=check_labels(test_labels.values, len(class_names), str(test_labels.path)),
        class_names=class_names,
    )


def _find(folder: Path, file: str) -> Path | None:
    return next((path for path in (folder / file, folder / f"{file}.gz") if path.is_file()), None)


def _belong_together(images: idx.IdxFile, labels: idx.IdxFile) -> None:
    if len(images.values) != len(labels.values):
        raise InvalidInputError(
            f"{images.path} has {len(images.values)} images but {labels.path} has {len(labels.values)} labels"
        )
    if not len(labels.values):
        raise InvalidInputError(f"{images.path} has no rows")


def check_labels(labels: np.ndarray, classes: int, name: str) -> np.ndarray:
    """Checks class numbers.

    Args:
        labels: [n], any numeric dtype.
        classes: how many classes there are.
        name: of the source, for the error.

    Returns:
        The labels as int32 [n].

    Raises:
        InvalidInputError: a label is not a whole number from 0 to ``classes - 1``; the error says which row.
    """
    if labels.ndim != 1 or labels.dtype.kind not in "iuf":
        raise InvalidInputError(
            f"{name}: labels must be one whole number a row, got {labels.dtype} {labels.shape}"
        )
    with np.errstate(invalid="ignore"):
        wrong = ~((labels >= 0) & (labels < classes) & (labels == np.floor(labels)))
    if wrong.any():
        row = int(np.flatnonzero(wrong)[0])
        raise InvalidInputError(
            f"{name}: label of row {row} is {labels[row]}, allowed are whole numbers from 0 to {classes - 1} "
            f"({int(wrong.sum())} such rows)"
        )
    return labels.astype(np.int32)


def check_values(x: np.ndarray, name: str) -> None:
    """Refuses values that are not finite.

    Raises:
        InvalidInputError: a value is NaN or infinite; the error says which row.
    """
    if x.dtype.kind == "f":
        wrong = ~np.isfinite(x).reshape(len(x), -1).all(axis=1)
        if wrong.any():
            row = int(np.flatnonzero(wrong)[0])
            raise InvalidInputError(f"{name}: row {row} holds NaN or infinity ({int(wrong.sum())} such rows)")
