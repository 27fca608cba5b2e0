"""Whole objects by key: the interface of a store, and the folder that keeps it.

An object is either there, whole, or not there. Nobody ever sees half of one.
"""

import os
import tempfile
from pathlib import Path
from typing import Protocol
from urllib.parse import unquote

from fourfold.contract.errors import InvalidInputError, MissingObjectError, StoreError

_PART = ".part-"
"""How the name of a file begins that is still being written; no object has such a name."""


class Store(Protocol):
    r"""Objects by key.

    Keys are relative, use ``/``, and hold any characters but ``\`` and NUL; no part is empty, ``.`` or
    ``..``, or begins like a file that is still being written.
    """

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
        """All keys below a prefix (a folder, not a part of a name; ``""`` for all), sorted."""
        ...

    def delete(self, key: str) -> None:
        """Deletes an object; no error where there is none.

        Raises:
            StoreError: the store did not let it go.
        """
        ...

    def below(self, prefix: str) -> "Store":
        """The store whose root is ``prefix`` in this one."""
        ...


def open_store(uri: str) -> Store:
    """Opens a store.

    Args:
        uri: a path, or a URI with scheme ``file``.

    Raises:
        InvalidInputError: the URI is empty, of another scheme, or a file's on another host.
    """
    if not uri:
        raise InvalidInputError(
            "the store's URI is empty: give a folder, such as ./store or file:///data/store"
        )
    scheme, _, rest = uri.partition(":")
    if scheme.lower() == "file":
        host, slash, path = rest[2:].partition("/") if rest.startswith("//") else ("", "", rest)
        if host not in ("", "localhost") or not slash + path:
            raise InvalidInputError(
                f"{uri!r} names host {host!r} and path {slash + path!r}: a file URI has three slashes, file:///path"
            )
        return FolderStore(Path(unquote(slash + path)))
    if "://" in uri:
        raise InvalidInputError(f"{uri!r} has the scheme {scheme!r}: use a folder or file:///path")
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
            handle, name = tempfile.mkstemp(dir=path.parent, prefix=_PART)
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
                f"cannot write {key} in {self.uri}: {error.strerror or error}; "
                "is the folder writable, is there room?"
            ) from error

    def exists(self, key: str) -> bool:
        """See ``Store``."""
        return self._path(key).is_file()

    def list(self, prefix: str) -> list[str]:
        """See ``Store``."""
        base = self._path(prefix.rstrip("/")) if prefix.strip("/") else self._root
        if not base.is_dir():
            return []
        files = (path for path in base.rglob("*") if path.is_file() and not path.name.startswith(_PART))
        return sorted(path.relative_to(self._root).as_posix() for path in files)

    def delete(self, key: str) -> None:
        """See ``Store``."""
        try:
            self._path(key).unlink(missing_ok=True)
        except NotADirectoryError:
            return
        except OSError as error:
            raise StoreError(f"cannot delete {key} in {self.uri}: {error.strerror or error}") from error

    def below(self, prefix: str) -> "FolderStore":
        """See ``Store``."""
        return FolderStore(self._path(prefix.rstrip("/")))

    def _path(self, key: str) -> Path:
        parts = key.split("/")
        wrong = any(part in ("", ".", "..") or part.startswith(_PART) for part in parts)
        if wrong or "\\" in key or "\0" in key:
            raise InvalidInputError(
                f"{key!r} is no key: a key is relative, uses '/', has no empty, '.', '..' or '{_PART}' part, "
                "no backslash and no NUL"
            )
        return self._root.joinpath(*parts)
