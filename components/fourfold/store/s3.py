"""Any S3 server as a store (SeaweedFS, MinIO, AWS). Knows nothing of a server beyond plain S3.

The endpoint and the credentials come from the environment, by the names that AWS's own tools use:
``AWS_ENDPOINT_URL_S3`` (else ``AWS_ENDPOINT_URL``, else AWS itself), ``AWS_ACCESS_KEY_ID``,
``AWS_SECRET_ACCESS_KEY``, ``AWS_SESSION_TOKEN``, ``AWS_REGION``. They are never part of a URI, so that no log
can hold them.
"""

import io
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import minio
import urllib3

from fourfold.contract import keys
from fourfold.contract.errors import InvalidInputError, MissingObjectError, StoreDeniedError, StoreError

T = TypeVar("T")

AWS = "https://s3.amazonaws.com"
PART_BYTES = 16 * 1024 * 1024
"""Objects above this size are sent in parts of it; S3 allows 10,000 parts."""
MISSING = {"NoSuchKey", "NoSuchBucket", "NoSuchUpload"}
OURS = {"BucketAlreadyOwnedByYou"}
"""Answers to making a bucket that somebody of ours made meanwhile."""
AWAY = {"ServiceUnavailable", "SlowDown", "InternalError", "RequestTimeout"}
"""Answers of a server that may do better later."""
DENIED = {"AccessDenied", "InvalidAccessKeyId", "SignatureDoesNotMatch", "BucketAlreadyExists"}
"""Answers that stay the same."""
ANSWERED: set[str] = set()
"""Endpoints that have answered this process."""


class _AwayError(StoreError):
    """The server does not answer, or says that it cannot now."""


@dataclass(frozen=True)
class Settings:
    """How a server is reached.

    Attributes:
        host: ``host`` or ``host:port``.
        secure: whether by TLS.
        access_key: or empty, for anonymous access.
        secret_key: likewise; never shown.
        session_token: or empty.
        region: or empty.
        connect_seconds: how long a connection may take.
        read_seconds: how long the server may be silent.
        tries: how often a request is sent before it counts as failed.
        patience_seconds: how long a server that has answered this process before is waited for.
    """

    host: str
    secure: bool
    access_key: str = ""
    secret_key: str = ""
    session_token: str = ""
    region: str = ""
    connect_seconds: float = 5.0
    read_seconds: float = 30.0
    tries: int = 5
    patience_seconds: float = 60.0

    def __repr__(self) -> str:
        return f"Settings({self.endpoint})"

    @property
    def endpoint(self) -> str:
        """The endpoint as a URL."""
        return f"http{'s' if self.secure else ''}://{self.host}"


def endpoint(text: str) -> tuple[str, bool]:
    """Reads an endpoint.

    Args:
        text: ``http://host:port``, ``https://host``, or ``host:port``, which means plain HTTP except on port
            443 and for AWS.

    Returns:
        Host (with port, if one was named) and whether to use TLS.

    Raises:
        InvalidInputError: it is empty, of another scheme, or has a path, a query or credentials.
    """
    wanted = "an endpoint is http://host:port or https://host, with nothing after it"
    scheme, mark, rest = text.strip().rpartition("://")
    if mark and scheme.lower() not in ("http", "https"):
        raise InvalidInputError(f"endpoint {text!r} has the scheme {scheme!r}: {wanted}")
    host = rest.removesuffix("/")
    if not host or any(character in host for character in "/?#@ "):
        raise InvalidInputError(
            f"endpoint {text!r} cannot be used: {wanted}; the bucket belongs into the store's URI"
        )
    secure = scheme.lower() == "https" if mark else host.endswith(":443") or host.endswith("amazonaws.com")
    return host, secure


def settings(environment: Mapping[str, str] = os.environ) -> Settings:
    """Reads the settings from the environment.

    Raises:
        InvalidInputError: the endpoint cannot be used, or only one of the two keys is there.
    """
    named = environment.get("AWS_ENDPOINT_URL_S3") or environment.get("AWS_ENDPOINT_URL") or AWS
    host, secure = endpoint(named)
    access, secret = environment.get("AWS_ACCESS_KEY_ID", ""), environment.get("AWS_SECRET_ACCESS_KEY", "")
    if bool(access) != bool(secret):
        absent = "AWS_SECRET_ACCESS_KEY" if access else "AWS_ACCESS_KEY_ID"
        raise InvalidInputError(
            f"{absent} is not set, its counterpart is: set both, or neither for anonymous access"
        )
    return Settings(
        host=host,
        secure=secure,
        access_key=access,
        secret_key=secret,
        session_token=environment.get("AWS_SESSION_TOKEN", ""),
        region=environment.get("AWS_REGION", ""),
    )


class S3Store:
    """A bucket, or a prefix in it, as a store. An object appears when its last byte has been taken, whole."""

    def __init__(self, bucket: str, prefix: str, how: Settings):
        prefix = prefix.strip("/")
        if not bucket:
            raise InvalidInputError("an S3 URI names a bucket: s3://bucket/prefix")
        self.uri = f"s3://{bucket}/{prefix}".rstrip("/")
        self._bucket, self._how = bucket, how
        self._root = "/".join([*keys.parts(prefix), ""]) if prefix else ""
        retries = urllib3.Retry(
            total=how.tries - 1,
            backoff_factor=0.2,
            status_forcelist=(500, 502, 503, 504),
            allowed_methods=None,
        )
        pool = urllib3.PoolManager(
            timeout=urllib3.Timeout(connect=how.connect_seconds, read=how.read_seconds),
            maxsize=16,
            retries=retries,
        )
        try:
            self._client = minio.Minio(
                how.host,
                access_key=how.access_key or None,
                secret_key=how.secret_key or None,
                session_token=how.session_token or None,
                secure=how.secure,
                region=how.region or None,
                http_client=pool,
            )
        except ValueError as error:
            raise InvalidInputError(f"endpoint {how.endpoint} cannot be used: {error}") from error

    def read(self, key: str) -> bytes:
        """See ``Store``."""
        name = self._name(key)

        def get() -> bytes:
            answer = self._client.get_object(self._bucket, name)
            try:
                data = answer.read()
                expected = answer.headers.get("Content-Length")
            finally:
                answer.close()
                answer.release_conn()
            if expected is not None and len(data) != int(expected):
                raise _AwayError(f"{key} in {self.uri} came short: {len(data)} of {expected} bytes")
            return data

        return self._do(get, f"read {key}", key)

    def write(self, key: str, data: bytes) -> None:
        """See ``Store``."""
        name = self._name(key)

        def put() -> None:
            try:
                self._put(name, data)
            except minio.error.S3Error as error:
                if error.code != "NoSuchBucket":
                    raise
                self._make_bucket()
                self._put(name, data)

        self._do(put, f"write {key}")

    def exists(self, key: str) -> bool:
        """See ``Store``."""
        name = self._name(key)
        try:
            self._do(lambda: self._client.stat_object(self._bucket, name), f"look for {key}", key)
        except MissingObjectError:
            return False
        return True

    def folders(self, prefix: str) -> list[str]:
        """See ``Store``."""
        found = self._below(prefix, False)
        return sorted(name.rstrip("/").rpartition("/")[2] for name, is_folder in found if is_folder)

    def list(self, prefix: str) -> list[str]:
        """See ``Store``."""
        return sorted(
            name.removeprefix(self._root) for name, is_folder in self._below(prefix, True) if not is_folder
        )

    def delete(self, key: str) -> None:
        """See ``Store``."""
        name = self._name(key)
        try:
            self._do(lambda: self._client.remove_object(self._bucket, name), f"delete {key}", key)
        except MissingObjectError:
            return

    def below(self, prefix: str) -> "S3Store":
        """See ``Store``."""
        return S3Store(self._bucket, self._root + "/".join(keys.parts(prefix.rstrip("/"))), self._how)

    def _below(self, prefix: str, deep: bool) -> Sequence[tuple[str, bool]]:
        """Names below a prefix, and whether each is a folder; right below it, or as deep as there are any."""
        below = prefix.strip("/")
        start = self._root + ("/".join([*keys.parts(below), ""]) if below else "")

        def names() -> Sequence[tuple[str, bool]]:
            found = self._client.list_objects(self._bucket, prefix=start, recursive=deep)
            return [(item.object_name, bool(item.is_dir)) for item in found if item.object_name]

        try:
            return self._do(names, f"list {prefix}", prefix)
        except MissingObjectError:
            return []

    def _name(self, key: str) -> str:
        return self._root + "/".join(keys.parts(key))

    def _put(self, name: str, data: bytes) -> None:
        self._client.put_object(self._bucket, name, io.BytesIO(data), len(data), part_size=PART_BYTES)

    def _make_bucket(self) -> None:
        try:
            self._client.make_bucket(self._bucket)
        except minio.error.S3Error as error:
            if error.code not in OURS:
                raise

    def _do(self, request: Callable[[], T], what: str, key: str = "") -> T:
        """Sends a request, and sends it again while a server that has answered before is away.

        A server that never answered is a wrong address more often than one that is away, and is told soon.
        """
        first = time.monotonic()
        while True:
            try:
                answer = self._send(request, what, key)
                ANSWERED.add(self._how.endpoint)
                return answer
            except _AwayError as away:
                waited = time.monotonic() - first
                if self._how.endpoint not in ANSWERED or waited > self._how.patience_seconds:
                    raise StoreError(str(away)) from away.__cause__
                time.sleep(1.0)
            except StoreError:
                ANSWERED.add(self._how.endpoint)
                raise

    def _send(self, request: Callable[[], T], what: str, key: str) -> T:
        """Sends a request; what goes wrong becomes an error that names the store, never an account's key."""
        where = f"{self.uri} at {self._how.endpoint}"
        try:
            return request()
        except minio.error.S3Error as error:
            if key and error.code in MISSING:
                raise MissingObjectError(f"there is no {key} in {where}") from error
            kind = (
                _AwayError if error.code in AWAY else StoreDeniedError if error.code in DENIED else StoreError
            )
            raise kind(f"cannot {what} in {where}: {_why(error)}") from error
        except minio.error.InvalidResponseError as error:
            raise StoreError(
                f"cannot {what} in {where}: what answers there is no S3 server; is the endpoint right "
                "(AWS_ENDPOINT_URL_S3)?"
            ) from error
        except (minio.error.MinioException, urllib3.exceptions.HTTPError, OSError) as error:
            cause = type(error).__name__
            if isinstance(error, urllib3.exceptions.MaxRetryError) and error.reason is not None:
                cause = type(error.reason).__name__
                if isinstance(error.reason, urllib3.exceptions.ResponseError):
                    cause = str(error.reason)  # too many 500 error responses
            raise _AwayError(
                f"cannot {what} in {where}: no good answer in {self._how.tries} tries ({cause}); "
                "is the endpoint right (AWS_ENDPOINT_URL_S3), is the server up?"
            ) from error
        except ValueError as error:
            raise InvalidInputError(f"cannot {what} in {where}: {error}") from error


def _why(error: minio.error.S3Error) -> str:
    """What an S3 server's answer means for the user; its message, which may quote a key, is left out."""
    hints = {
        "AccessDenied": "the credentials (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY) may not do this",
        "InvalidAccessKeyId": "the server does not know AWS_ACCESS_KEY_ID",
        "SignatureDoesNotMatch": "AWS_SECRET_ACCESS_KEY is not the one that belongs to AWS_ACCESS_KEY_ID",
        "BucketAlreadyExists": "the bucket belongs to somebody else: choose another name",
        "NoSuchBucket": "there is no such bucket",
    }
    return f"{error.code}: {hints[error.code]}" if error.code in hints else str(error.code)
