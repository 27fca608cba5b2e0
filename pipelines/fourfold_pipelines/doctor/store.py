"""The store: an object is written, read back and deleted."""

import secrets
from collections.abc import Iterator

from fourfold.contract.errors import FourfoldError
from fourfold.store.objects import open_store
from fourfold_pipelines.doctor.findings import Finding, ok, wrong


def check(uri: str) -> Iterator[Finding]:
    """Writes, reads back and deletes a small object of a name of its own.

    Args:
        uri: of the store; endpoint and account come from the environment.
    """
    key, data = f"doctor/{secrets.token_hex(8)}", secrets.token_bytes(1024)
    done = "opened"
    try:
        store = open_store(uri)
        store.write(key, data)
        done = "written"
        if store.read(key) != data:
            yield wrong(f"store {uri}: what was read back is not what was written", "do not use this store")
            return
        done = "read"
        store.delete(key)
        if store.exists(key):
            yield wrong(f"store {uri}: what was deleted is still there", f"look at the object {key}")
            return
    except FourfoldError as error:
        what = {
            "opened": "cannot be written",
            "written": "was written and cannot be read back",
            "read": "lets nothing be deleted",
        }[done]
        yield wrong(f"store {uri} {what}", str(error))
    else:
        yield ok(f"store {uri}: written, read back, deleted")
