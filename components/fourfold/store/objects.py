"""Whole objects by key: the interface of a store, and the folder that keeps it.

An object is either there, whole, or not there. Nobody ever sees half of one.
"""

import os
import tempfile
from pathlib import Path
from typing import Protocol
from urllib.parse import unquote, urlsplit

from fourfold.contract.errors import InvalidInputError, MissingObjectError, StoreError


class Store(Protocol):
    """Objects by key. Keys are relative, use ``/``, and may hold any characters but ``\\``, NUL and ``..`` parts."""

    uri: str

    def read(self, key: str) -> bytes:
        """The bytes of an object.

        Raises:
            MissingObjectError: there is no such object.
            StoreError: the store did not answer.
        """
        ...

    def write(self, key: str, data: bytes) -> None:
        """Writes an object, whole, over what was there.

        Raises:
            StoreError: the store did not take it; what was there before still is.
        """
        ...

    def exists(self, key: str) -> bool:
        """Whether there is such an object."""
        ...

    def list(self, prefix: str) -> list[str]:
        """All keys below a prefix (a folder, not a part of a name), sorted."""
        ...

    def delete(self, key: str) -> None:
        """Deletes an object; no error where there is none."""
        ...

    def below(self, prefix: str) -> "Store":
        """The store whose root is ``prefix`` in this one."""
        ...


def open_store(uri: str) -> Store:
    """Opens a store.

    Args:
        uri: a path, or a URI with scheme ``file``.

    Raises:
        InvalidInputError: the URI is empty or of another scheme.
    """
    if not uri:
        raise InvalidInputError("the store's URI is empty: give a folder, such as ./store or file:///data/store")
    parts = urlsplit(uri)
    if parts.scheme == "file":
        if parts.netloc not in ("", "localhost"):
            raise InvalidInputError(f"{uri!r} names host {parts.netloc!r}: a file URI has three slashes, file:///path")
        return FolderStore(Path(unquote(parts.path)))
    if parts.scheme and "://" in uri:
        raise InvalidInputError(f"{uri!r} has the scheme {parts.scheme!r}: use a folder or file://")
    return FolderStore(Path(uri))


class FolderStore:
    """A folder as a store: an object is a file, written under another name and renamed when it is whole."""

    def __init__(self, root: Path):
        self._root = root.absolute()
        self.uri = self._root.as_uri()

    def read(self, key: str) -> bytes:
        """See ``Store``."""
        path = self._path(key)
        try:
            return path.read_bytes()
        except (FileNotFoundError, NotADirectoryError) as error:
            raise MissingObjectError(f"there is no {key} in {self.uri}") from error
        except OSError as error:
            raise StoreError(f"cannot read {key} in {self.uri}: {error.strerror or error}") from error

    def write(self, key: str, data: bytes) -> None:
        """See ``Store``."""
        path = self._path(key)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(dir=path.parent, prefix=".part-")
            part = Path(name)
            try:
                with os.fdopen(handle, "wb") as file:
                    file.write(data)
                    file.flush()
                    os.fsync(file.fileno())
                part.chmod(0o644)
                part.replace(path)
            except BaseException:
                part.unlink(missing_ok=True)
                raise
        except OSError as error:
            raise StoreError(
                f"cannot write {key} in {self.uri}: {error.strerror or error}; is the folder writable, is there room?"
            ) from error

    def exists(self, key: str) -> bool:
        """See ``Store``."""
        return self._path(key).is_file()

    def list(self, prefix: str) -> list[str]:
        """See ``Store``."""
        base = self._path(prefix) if prefix.strip("/") else self._root
        if not base.is_dir():
            return []
        files = (path for path in base.rglob("*") if path.is_file() and not path.name.startswith(".part-"))
        return sorted(path.relative_to(self._root).as_posix() for path in files)

    def delete(self, key: str) -> None:
        """See ``Store``."""
        self._path(key).unlink(missing_ok=True)

    def below(self, prefix: str) -> "FolderStore":
        """See ``Store``."""
        return FolderStore(self._path(prefix))

    def _path(self, key: str) -> Path:
        parts = key.split("/")
        if not key.strip("/") or key.startswith("/") or ".." in parts or "\\" in key or "\0" in key:
            raise InvalidInputError(
                f"{key!r} is no key: a key is relative, uses '/', and has no '..', backslash or NUL"
            )
        return self._root.joinpath(*parts)
