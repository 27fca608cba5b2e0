"""The store: an object is written, read back and deleted."""

import contextlib
import secrets
from collections.abc import Iterator

from fourfold.contract.errors import FourfoldError, InvalidInputError, StoreDeniedError
from fourfold.store.objects import Store, open_store
from fourfold_pipelines.doctor.findings import Finding, ok, wrong

ENDPOINT = "AWS_ENDPOINT_URL_S3"
"""Names the server, in the environment and in the manifests' ConfigMap."""
ACCOUNT = (
    "give an account that may read, write and delete there: in the Secret that pods are given, or as "
    "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
)
ELSEWHERE = "mend what stands there, or name another store with --store"


def check(uri: str) -> Iterator[Finding]:
    """Writes, reads back and deletes a small object of a name of its own.

    Args:
        uri: of the store; endpoint and account come from the environment.
    """
    try:
        store = open_store(uri)
    except FourfoldError as error:
        yield _failed(uri, "cannot be opened", error)
        return
    yield _tried(uri, store)


def _tried(uri: str, store: Store) -> Finding:
    key, data = f"doctor-{secrets.token_hex(8)}", secrets.token_bytes(1024)
    what = "cannot be written"
    try:
        store.write(key, data)
        what = "was written and cannot be read back"
        try:
            same = store.read(key) == data
        except FourfoldError:
            with contextlib.suppress(FourfoldError):
                store.delete(key)
            raise
        what = "lets nothing be deleted"
        store.delete(key)
        if not same:
            return wrong(f"store {uri}: what was read back is not what was written", "do not use this store")
        if store.exists(key):
            return wrong(
                f"store {uri}: what was deleted is still there",
                f"look at the object {key}; a store that keeps what is deleted cannot be used",
            )
    except FourfoldError as error:
        return _failed(uri, what, error)
    return ok(f"store {uri}: written, read back, deleted")


def _failed(uri: str, what: str, error: FourfoldError) -> Finding:
    do = ACCOUNT if isinstance(error, StoreDeniedError) else ELSEWHERE
    if isinstance(error, InvalidInputError):
        do = "mend what is said there (--store, or the environment)"
    return wrong(f"store {uri} {what}: {error}", do)
