"""How the rows of a data set are dealt to shards, and the order that a user gave; beside the batches."""

import numpy as np

from fourfold.contract import keys
from fourfold.contract.datasets import Split
from fourfold.contract.errors import DamagedObjectError, MissingObjectError
from fourfold.contract.strict import from_json, to_json
from fourfold.store.formats import array_from_bytes, array_to_bytes, sha256
from fourfold.store.objects import Store


def write_split(
    store: Store, name: str, split: Split, shards: list[np.ndarray], order: np.ndarray | None = None
) -> None:
    """Writes a split beside its data set, the description last; one that is there already stays.

    Args:
        store: that holds the data set.
        name: the data set's fingerprint.
        split: its description.
        shards: row numbers [n_k] int64 of each shard.
        order: that a user gave: every row number once, [n] int64.
    """
    try:
        if read_split(store, name, split.id)[0] == split:
            if order is not None:
                read_order(store, name, split)
            return
    except (MissingObjectError, DamagedObjectError):
        pass  # None there, or one to be replaced.
    store.write(keys.split_rows(name, split.id), array_to_bytes(np.concatenate(shards).astype(np.int64)))
    if order is not None:
        store.write(keys.split_order(name, split.id), array_to_bytes(order.astype(np.int64)))
    store.write(keys.split(name, split.id), to_json(split))


def read_split(store: Store, name: str, split_id: str) -> tuple[Split, list[np.ndarray]]:
    """Reads a split, verified.

    Returns:
        Its description and the row numbers [n_k] int64 of each shard.

    Raises:
        MissingObjectError: there is no such split.
        DamagedObjectError: its row numbers are not those of the description.
    """
    key = keys.split(name, split_id)
    split = from_json(Split, store.read(key), key)
    rows = _numbers(store, keys.split_rows(name, split_id), split.rows_sha256)
    if sum(split.sizes) != len(rows):
        raise DamagedObjectError(
            f"{key} is damaged: its sizes {split.sizes} do not make {len(rows)} rows; prepare the data again"
        )
    return split, np.split(rows, np.cumsum(split.sizes)[:-1])


def read_order(store: Store, name: str, split: Split) -> np.ndarray | None:
    """The order that was given with a split, every row number of the training part once, [n] int64.

    Returns:
        The order; None where none was given.

    Raises:
        MissingObjectError: it is not there any more.
        DamagedObjectError: it is not that of the description.
    """
    if not split.order_sha256:
        return None
    return _numbers(store, keys.split_order(name, split.id), split.order_sha256)


def _numbers(store: Store, key: str, digest: str) -> np.ndarray:
    data = store.read(key)
    if sha256(data) != digest:
        raise DamagedObjectError(f"{key} is damaged; prepare the data again")
    return array_from_bytes(data, key)
