"""Deals the training rows to shards. Pure: row numbers from labels, a rule and a seed."""

import hashlib
from collections.abc import Callable

import numpy as np

from fourfold.contract.datasets import Split
from fourfold.contract.errors import InvalidInputError
from fourfold.store.formats import array_to_bytes, sha256

RULES = "contiguous | sizes:80,20 | dirichlet:0.5 | skew:90,10 | disjoint"
LARGEST = 1_000_000_000
"""The largest number that a rule may have; beyond what anyone needs, below where sums of floats go wrong."""


def split(
    rule: str,
    labels: np.ndarray,
    classes: int,
    workers: int,
    seed: int,
    order: np.ndarray | None = None,
) -> tuple[Split, list[np.ndarray]]:
    """Deals rows to shards: every row to exactly one, no shard empty.

    Args:
        rule: ``contiguous``: blocks of equal size; where rows do not divide, the first blocks have one more.
            ``sizes:80,20``: blocks in these proportions, one number a worker.
            ``dirichlet:A``: each class is dealt in proportions drawn from Dir(A, ..., A) (Hsu, Qi, Brown,
                2019).
            ``skew:P,Q`` (P + Q = 100): classes are dealt to owners in blocks; of each class the owner gets P
            % of the rows, the others share Q %.
            ``disjoint``: each class has one owner, who gets all its rows.
        labels: [n] int32.
        classes: number of classes.
        workers: number of shards, W.
        seed: for rules that draw.
        order: that a user gave: every row number once, [n] int64.

    Returns:
        The description, and the row numbers of each shard, ascending, [n_k] int64.

    Raises:
        InvalidInputError: the rule is unknown or does not fit, a shard would be empty, ``workers`` is below
            1, or ``seed`` below 0.
    """
    name, _, argument = rule.partition(":")
    rows = len(labels)
    if workers < 1 or seed < 0:
        raise InvalidInputError(f"workers must be at least 1 and seed at least 0, got {workers} and {seed}")
    if rows < workers:
        raise InvalidInputError(
            f"{rows} rows cannot be dealt to {workers} workers, each needs at least one: "
            "take more rows or fewer workers"
        )
    deal = _RULES.get(name)
    if deal is None or (bool(argument) != (name in _WITH_ARGUMENT)):
        raise InvalidInputError(f"unknown split {rule!r}: use one of {RULES}")
    shards, said = deal(argument, rule, labels, classes, workers, np.random.default_rng([seed, 0x5917]))
    counts = [np.bincount(labels[shard], minlength=classes).tolist() for shard in shards]
    sizes = [len(shard) for shard in shards]
    empty = [str(index) for index, size in enumerate(sizes) if size == 0]
    if empty:
        raise InvalidInputError(
            f"split {rule!r} leaves worker {', '.join(empty)} without rows (rows a worker: {sizes}; "
            f"rows a class: {np.bincount(labels, minlength=classes).tolist()}): "
            "use more rows, fewer workers or a milder split"
        )
    digest = sha256(array_to_bytes(np.concatenate(shards).astype(np.int64)))
    drawn = seed if name in _DRAWN else 0
    ordered = "" if order is None else sha256(array_to_bytes(order.astype(np.int64)))
    named = f"{rule}:{drawn}:{digest}:{sizes}{ordered and f':{ordered}'}"
    name_of = hashlib.sha256(named.encode()).hexdigest()[:16]
    return Split(name_of, rule, drawn, sizes, counts, digest, said, ordered), shards


def _numbers(argument: str, rule: str) -> list[float]:
    try:
        numbers = [float(part) for part in argument.split(",")]
    except ValueError as error:
        raise InvalidInputError(
            f"split {rule!r}: {argument!r} are not numbers; use one of {RULES}"
        ) from error
    if not all(0 <= number <= LARGEST for number in numbers):
        raise InvalidInputError(f"split {rule!r}: its numbers must be from 0 to {LARGEST:,}")
    return numbers


def _blocks(rows: int, shares: list[float]) -> list[np.ndarray]:
    """Row numbers in consecutive blocks by largest remainder, the earlier block first where equal."""
    exact = np.array(shares) / sum(shares) * rows
    sizes = np.floor(exact + 1e-9).astype(int)
    for index in np.argsort(-(exact - sizes), kind="stable")[: rows - sizes.sum()]:
        sizes[index] += 1
    return np.split(np.arange(rows, dtype=np.int64), np.cumsum(sizes)[:-1])


def _contiguous(argument, rule, labels, classes, workers, rng):
    shards = _blocks(len(labels), [1.0] * workers)
    sizes = [len(shard) for shard in shards]
    if sizes[0] == sizes[-1]:
        return shards, []
    return shards, [
        f"{len(labels)} rows do not divide by {workers} workers: dealt {', '.join(map(str, sizes))}"
    ]


def _sizes(argument, rule, labels, classes, workers, rng):
    shares = _numbers(argument, rule)
    if sum(shares) == 0:
        raise InvalidInputError(f"split {rule!r}: the sizes sum to 0, so nobody would get a row")
    if len(shares) != workers:
        raise InvalidInputError(
            f"split {rule!r} names {len(shares)} sizes for {workers} workers: one number a worker"
        )
    return _blocks(len(labels), shares), []


def _dirichlet(argument, rule, labels, classes, workers, rng):
    numbers = _numbers(argument, rule)
    if len(numbers) != 1 or numbers[0] == 0:
        raise InvalidInputError(f"split {rule!r}: dirichlet takes one number above 0, such as dirichlet:0.5")
    return _by_class(labels, classes, lambda _: list(rng.dirichlet([numbers[0]] * workers)), workers), []


def _skew(argument, rule, labels, classes, workers, rng):
    numbers = _numbers(argument, rule)
    if len(numbers) != 2 or abs(sum(numbers) - 100) > 1e-6:
        raise InvalidInputError(f"split {rule!r}: skew takes two numbers that sum to 100, such as skew:90,10")
    own, rest = numbers

    def shares(label: int) -> list[float]:
        owner = _owner(label, classes, workers, rule)
        if workers == 1:
            return [1.0]
        return [own if worker == owner else rest / (workers - 1) for worker in range(workers)]

    return _by_class(labels, classes, shares, workers), []


def _disjoint(argument, rule, labels, classes, workers, rng):
    owners = [_owner(label, classes, workers, rule) for label in range(classes)]
    return _by_class(
        labels, classes, lambda label: [float(w == owners[label]) for w in range(workers)], workers
    ), []


def _owner(label: int, classes: int, workers: int, rule: str) -> int:
    if workers > classes:
        raise InvalidInputError(
            f"split {rule!r} deals {classes} classes to {workers} workers: use at most {classes}"
        )
    return label * workers // classes


def _by_class(
    labels: np.ndarray, classes: int, shares: Callable[[int], list[float]], workers: int
) -> list[np.ndarray]:
    """Deals the rows of each class in blocks of the given shares."""
    pieces: list[list[np.ndarray]] = [[] for _ in range(workers)]
    for label in range(classes):
        members, of_class = np.flatnonzero(labels == label), shares(label)
        for worker, block in enumerate(_blocks(len(members), of_class)):
            pieces[worker].append(members[block])
    return [np.sort(np.concatenate(piece)).astype(np.int64) for piece in pieces]


_RULES = {
    "contiguous": _contiguous,
    "sizes": _sizes,
    "dirichlet": _dirichlet,
    "skew": _skew,
    "disjoint": _disjoint,
}
_DRAWN = {"dirichlet"}
_WITH_ARGUMENT = {"sizes", "dirichlet", "skew"}
