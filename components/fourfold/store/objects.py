"""Whole objects by key: the interface of a store, and how one is opened by its URI.

An object is either there, whole, or not there. Nobody ever sees half of one.
"""

from pathlib import Path
from typing import Protocol
from urllib.parse import unquote

from fourfold.contract.errors import InvalidInputError
from fourfold.store.folder import FolderStore


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

    def folders(self, prefix: str) -> list[str]:
        """The names of the folders right below a prefix, sorted; what is in them is not listed."""
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
        uri: a path, ``file:///path``, or ``s3://bucket/prefix`` (also ``minio://``), whose endpoint and
            credentials come from the environment (see ``store.s3``).

    Raises:
        InvalidInputError: the URI is empty, of another scheme, a file's on another host, or names no bucket.
    """
    if not uri:
        raise InvalidInputError(
            "the store's URI is empty: give a folder, such as ./store, or s3://bucket/prefix"
        )
    scheme, _, rest = uri.partition(":")
    if scheme.lower() == "file":
        host, slash, path = rest[2:].partition("/") if rest.startswith("//") else ("", "", rest)
        if host not in ("", "localhost") or not slash + path:
            raise InvalidInputError(
                f"{uri!r} names host {host!r} and path {slash + path!r}: a file URI has three slashes, file:///path"
            )
        return FolderStore(Path(unquote(slash + path)))
    if scheme.lower() in ("s3", "minio") and rest.startswith("//"):
        # The S3 client takes as long to import as all the rest of the store; a folder does without it.
        from fourfold.store.s3 import S3Store, settings

        bucket, _, prefix = rest[2:].partition("/")
        return S3Store(bucket, prefix, settings())
    if "://" in uri:
        raise InvalidInputError(
            f"{uri!r} has the scheme {scheme!r}: use a folder, file:///path or s3://bucket/prefix"
        )
    return FolderStore(Path(uri))
