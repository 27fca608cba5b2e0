"""A folder as a store."""

import os
import tempfile
from pathlib import Path

from fourfold.contract import keys
from fourfold.contract.errors import MissingObjectError, StoreError


def write_file(path: str, data: bytes) -> None:
    """Writes a file, whole or not at all, and its folder where there is none.

    Raises:
        StoreError: it cannot be written.
    """
    file = Path(path)
    FolderStore(file.parent).write(file.name, data)


def read_file_into(path: Path, buffer: bytearray) -> memoryview:
    """Reads a file into a buffer, which grows as it must; gives the part of it that holds the file.

    Memory that is used again costs a third of the time of memory that is new.

    Raises:
        OSError: it cannot be read.
    """
    handle = os.open(path, os.O_RDONLY)
    try:
        size, done = os.fstat(handle).st_size, 0
        if len(buffer) < size:
            buffer.extend(bytes(size - len(buffer)))
        view = memoryview(buffer)[:size]
        while done < size and (count := os.readv(handle, [view[done:]])):
            done += count
        return view[:done]
    finally:
        os.close(handle)


class FolderStore:
    """A folder as a store: an object is a file, written under another name and renamed when it is whole."""

    def __init__(self, root: Path):
        self._root = root.absolute()
        self.uri = self._root.as_uri()

    def read(self, key: str) -> bytes:
        """See ``Store``."""
        path = self.path(key)
        try:
            return path.read_bytes()
        except (FileNotFoundError, NotADirectoryError) as error:
            raise MissingObjectError(f"there is no {key} in {self.uri}") from error
        except OSError as error:
            raise StoreError(f"cannot read {key} in {self.uri}: {error.strerror or error}") from error

    def write(self, key: str, data: bytes) -> None:
        """See ``Store``."""
        path = self.path(key)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(dir=path.parent, prefix=keys.PART)
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
        return self.path(key).is_file()

    def folders(self, prefix: str) -> list[str]:
        """See ``Store``."""
        base = self.path(prefix.rstrip("/")) if prefix.strip("/") else self._root
        if not base.is_dir():
            return []
        # As in other stores, there is no folder without an object.
        folders = (path for path in base.iterdir() if path.is_dir())
        return sorted(path.name for path in folders if any(below.is_file() for below in path.rglob("*")))

    def list(self, prefix: str) -> list[str]:
        """See ``Store``."""
        base = self.path(prefix.rstrip("/")) if prefix.strip("/") else self._root
        if not base.is_dir():
            return []
        files = (path for path in base.rglob("*") if path.is_file() and not path.name.startswith(keys.PART))
        return sorted(path.relative_to(self._root).as_posix() for path in files)

    def delete(self, key: str) -> None:
        """See ``Store``."""
        try:
            self.path(key).unlink(missing_ok=True)
        except NotADirectoryError:
            return
        except OSError as error:
            raise StoreError(f"cannot delete {key} in {self.uri}: {error.strerror or error}") from error

    def below(self, prefix: str) -> "FolderStore":
        """See ``Store``."""
        return FolderStore(self.path(prefix.rstrip("/")))

    def path(self, key: str) -> Path:
        """The file that an object is, or would be.

        Raises:
            InvalidInputError: the key is none.
        """
        return self._root.joinpath(*keys.parts(key))
