"""The order in which an epoch takes the rows of a shard: a function of seed and epoch alone.

An order is given as windows: places in the shard, window after window. The rows of one window lie in memory
together; the next window is read while this one is used.
"""

import numpy as np

from fourfold.contract.caching import LIST
from fourfold.contract.errors import InvalidInputError


def windows(
    order: str,
    seed: int,
    epoch: int,
    shard: int,
    owners: np.ndarray,
    window: int = 0,
    given: np.ndarray | None = None,
    ahead: int = 0,
) -> list[np.ndarray]:
    """The windows of one epoch; together they hold every place once.

    Args:
        order: ``rows``: every row dealt anew each epoch; with a window, cached batches come in a new order
            and rows are dealt among as many of them as the window has. ``batches``: cached batches in a new
            order each epoch, rows within one as they are. ``frozen``: the shard's own order. ``reverse``:
            that one backwards. ``list:...``: as given.
        seed: of the run.
        epoch: counted from 0.
        shard: index of the shard.
        owners: cached batch of each place, ascending [n] int64.
        window: cached batches of a window; 0 for a single window of all.
        given: for ``list``, places in the order wanted [n] int64.
        ahead: cached batches that are read ahead; where batches come one after another, a window needs no
            more.

    Returns:
        Places, int64, window after window.
    """
    deal = np.random.default_rng([seed, epoch, shard])
    places = np.arange(len(owners), dtype=np.int64)
    if order.startswith(LIST):
        assert given is not None
        return _cut(given, owners[given], window)
    if order == "rows" and not window:
        return [deal.permutation(len(owners))]
    starts = np.flatnonzero(np.diff(owners, prepend=-1))
    batches = np.split(places, starts[1:]) if len(places) else []
    if order == "rows":
        mixed = [batches[index] for index in deal.permutation(len(batches))]
        return [deal.permutation(group) for group in _grouped(mixed, window)]
    if order == "batches":
        batches = [batches[index] for index in deal.permutation(len(batches))]
    elif order == "reverse":
        batches = [batch[::-1] for batch in reversed(batches)]
    return _grouped(batches, min(window, max(1, ahead)) if window else len(batches))


def _grouped(batches: list[np.ndarray], size: int) -> list[np.ndarray]:
    """Puts so many batches each into one window."""
    return [np.concatenate(batches[first : first + size]) for first in range(0, len(batches), size or 1)]


def _cut(places: np.ndarray, owners: np.ndarray, window: int) -> list[np.ndarray]:
    """Cuts an order into windows of at most so many cached batches each."""
    if not window:
        return [places]
    cuts, seen = [], set()
    for at, owner in enumerate(owners.tolist()):
        if owner not in seen and len(seen) == window:
            cuts.append(at)
            seen = set()
        seen.add(owner)
    return np.split(places, cuts)


def read_list(data: bytes, name: str, rows: int) -> np.ndarray:
    """An order that a user gave: every row number of the training part once.

    Args:
        data: a ``.npy`` of whole numbers [n], or text with a number a line; what follows a ``#`` is left out.
        name: of the file, for the errors.
        rows: that there are, n.

    Returns:
        Row numbers [n] int64.

    Raises:
        InvalidInputError: it cannot be read, or a row is missing, there twice, or not there at all.
    """
    numbers = _from_npy(data, name) if data.startswith(b"\x93NUMPY") else _from_text(data, name)
    hint = f"an order names each of the {rows:,} training rows, 0 to {rows - 1:,}, once"
    if len(numbers) and not 0 <= numbers.min() <= numbers.max() < rows:
        wrong = int(np.flatnonzero((numbers < 0) | (numbers >= rows))[0])
        raise InvalidInputError(f"{name} names row {numbers[wrong]} (its entry {wrong}): {hint}")
    times = np.bincount(numbers, minlength=rows)
    for wrong, what in ((times > 1, "more than once"), (times == 0, "not at all")):
        if wrong.any():
            raise InvalidInputError(
                f"{name} names {wrong.sum():,} rows {what}, the first of them {wrong.argmax()}: {hint}"
            )
    return numbers


def _from_npy(data: bytes, name: str) -> np.ndarray:
    from fourfold.store.formats import array_from_bytes

    found = array_from_bytes(data, name)
    if found.ndim != 1 or found.dtype.kind not in "iu":
        raise InvalidInputError(f"{name} holds {found.dtype} {found.shape}: an order is whole numbers [rows]")
    return found.astype(np.int64)


def _from_text(data: bytes, name: str) -> np.ndarray:
    numbers = []
    for line, text in enumerate(data.decode("utf-8", "replace").splitlines(), start=1):
        for word in text.partition("#")[0].replace(",", " ").split():
            if not word.isascii() or not word.removeprefix("-").isdigit() or len(word) > 18:
                raise InvalidInputError(
                    f"{name}, line {line}: {word[:40]!r} is no row number; an order is a .npy of whole "
                    "numbers, or text with a number a line"
                )
            numbers.append(int(word))
    return np.array(numbers, np.int64)
