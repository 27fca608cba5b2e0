"""Splits: every row at exactly one worker, no worker without rows, the same seed the same split."""

import numpy as np
import pytest
from hypothesis import assume, given, strategies as st

from fourfold.contract.errors import InvalidInputError
from fourfold.prepare.split import RULES, split
from fourfold.store.formats import array_to_bytes, sha256

CLASSES = 10
EVEN = (np.arange(2000) % CLASSES).astype(np.int32)
LABELS = st.lists(st.integers(0, CLASSES - 1), min_size=1, max_size=200).map(
    lambda labels: np.array(labels, dtype=np.int32)
)
WORKERS = st.integers(1, 6)
NUMBER = st.floats(0.01, 1000).map(lambda number: round(number, 2))


@st.composite
def dealings(draw) -> tuple[str, int]:
    """A rule and the number of workers that it fits."""
    workers = draw(WORKERS)
    sizes = ",".join(str(draw(NUMBER)) for _ in range(workers))
    own = draw(st.integers(0, 100))
    rules = [
        "contiguous",
        f"sizes:{sizes}",
        f"dirichlet:{draw(NUMBER)}",
        f"skew:{own},{100 - own}",
        "disjoint",
    ]
    return draw(st.sampled_from(rules)), workers


def dealt(rule: str, workers: int = 2, seed: int = 0, labels: np.ndarray = EVEN) -> list[np.ndarray]:
    return split(rule, labels, CLASSES, workers, seed)[1]


def refusal(rule: str, workers: int = 2, labels: np.ndarray = EVEN, seed: int = 0) -> str:
    with pytest.raises(InvalidInputError) as refused:
        split(rule, labels, CLASSES, workers, seed)
    return str(refused.value)


def class_counts(shard: np.ndarray) -> list[int]:
    return np.bincount(EVEN[shard], minlength=CLASSES).tolist()


@given(dealings(), LABELS, st.integers(0, 5))
def test_every_row_goes_to_one_worker_and_no_worker_goes_without(dealing, labels, seed):
    rule, workers = dealing
    try:
        described, shards = split(rule, labels, CLASSES, workers, seed)
    except InvalidInputError as error:
        assert "without rows" in str(error) or "each needs at least one" in str(error)
        return
    assert len(shards) == workers
    assert sorted(np.concatenate(shards).tolist()) == list(range(len(labels)))
    for shard, size, counts in zip(shards, described.sizes, described.classes, strict=True):
        assert shard.dtype == np.int64
        assert len(shard) == size > 0
        assert (np.diff(shard) > 0).all()
        assert np.bincount(labels[shard], minlength=CLASSES).tolist() == counts
    assert described.rows_sha256 == sha256(array_to_bytes(np.concatenate(shards)))


@given(dealings(), LABELS, st.integers(0, 2**64))
def test_the_same_seed_gives_the_same_split(dealing, labels, seed):
    rule, workers = dealing
    try:
        first = split(rule, labels, CLASSES, workers, seed)
    except InvalidInputError:
        assume(False)
        return
    again = split(rule, labels, CLASSES, workers, seed)
    assert first[0] == again[0]
    assert [shard.tolist() for shard in first[1]] == [shard.tolist() for shard in again[1]]


@given(LABELS, st.integers(1, 6), st.sampled_from(["contiguous", "equal"]))
def test_contiguous_blocks_are_as_equal_as_can_be(labels, workers, rule):
    assume(len(labels) >= workers)
    shards = dealt(
        "contiguous" if rule == "contiguous" else f"sizes:{','.join('1' * workers)}", workers, labels=labels
    )
    sizes = [len(shard) for shard in shards]
    assert np.concatenate(shards).tolist() == list(range(len(labels)))
    assert max(sizes) - min(sizes) <= 1
    assert sizes == sorted(sizes, reverse=True)


def test_two_workers_get_rows_0_to_999_and_1000_to_1999():
    described, (first, second) = split("contiguous", EVEN, CLASSES, 2, 0)
    assert (first[0], first[-1], len(first)) == (0, 999, 1000)
    assert (second[0], second[-1], len(second)) == (1000, 1999, 1000)
    assert described.said == []


def test_rows_that_do_not_divide_are_said():
    described, _ = split("contiguous", EVEN, CLASSES, 3, 0)
    assert described.sizes == [667, 667, 666]
    assert described.said == ["2000 rows do not divide by 3 workers: dealt 667, 667, 666"]


@pytest.mark.parametrize(
    ("rule", "workers", "expected"),
    [
        ("sizes:80,20", 2, [1600, 400]),
        ("sizes:4,1", 2, [1600, 400]),
        ("sizes:0.5, 0.25, 0.25", 3, [1000, 500, 500]),
        ("sizes:1,1,1", 3, [667, 667, 666]),
        ("sizes:1999,1", 2, [1999, 1]),
        ("sizes:5", 1, [2000]),
    ],
)
def test_sizes(rule, workers, expected):
    shards = dealt(rule, workers)
    assert [len(shard) for shard in shards] == expected
    assert np.concatenate(shards).tolist() == list(range(2000))


def test_skew_gives_the_owner_90_of_100_rows_of_its_classes():
    first, second = (class_counts(shard) for shard in dealt("skew:90,10"))
    assert first == [180] * 5 + [20] * 5
    assert second == [20] * 5 + [180] * 5


def test_skew_shares_the_rest_among_the_others():
    counts = [class_counts(shard) for shard in dealt("skew:90,10", workers=5)]
    for worker, of_worker in enumerate(counts):
        assert of_worker == [180 if label // 2 == worker else 5 for label in range(CLASSES)]


def dealt_lists(rule):
    return [shard.tolist() for shard in dealt(rule)]


def test_skew_50_50_is_even_and_100_0_is_disjoint():
    assert [class_counts(shard) for shard in dealt("skew:50,50")] == [[100] * 10] * 2
    assert dealt_lists("skew:100,0") == dealt_lists("disjoint")


def test_disjoint_gives_each_class_to_one_worker_in_blocks():
    counts = [class_counts(shard) for shard in dealt("disjoint", workers=3)]
    assert counts[0] == [200] * 4 + [0] * 6
    assert counts[1] == [0] * 4 + [200] * 3 + [0] * 3
    assert counts[2] == [0] * 7 + [200] * 3


def test_dirichlet_changes_with_the_seed_and_contiguous_does_not():
    names = {split("dirichlet:0.5", EVEN, CLASSES, 3, seed)[0].id for seed in range(10)}
    assert len(names) == 10
    assert len({split("contiguous", EVEN, CLASSES, 3, seed)[0].id for seed in range(10)}) == 1


def test_dirichlet_is_more_skewed_the_smaller_its_number():
    def largest_share(alpha: float) -> float:
        counts = np.array(
            [[class_counts(shard) for shard in dealt(f"dirichlet:{alpha}", 2, seed)] for seed in range(20)]
        )
        return float(np.mean(counts.max(axis=1) / counts.sum(axis=1)))

    assert largest_share(0.05) > 0.9
    assert 0.65 < largest_share(1) < 0.85
    assert largest_share(100_000) < 0.52


def test_the_id_is_of_the_rule_and_of_the_rows_so_that_no_split_overwrites_another():
    rules = ("contiguous", "sizes:50,50", "sizes:80,20", "disjoint", "skew:100,0")
    assert len({split(rule, EVEN, CLASSES, 2, 0)[0].id for rule in rules}) == len(rules)
    assert split("contiguous", EVEN, CLASSES, 2, 5)[0].id == split("contiguous", EVEN, CLASSES, 2, 0)[0].id
    assert (
        split("contiguous", EVEN[::-1], CLASSES, 2, 0)[0].id == split("contiguous", EVEN, CLASSES, 2, 0)[0].id
    )


@pytest.mark.parametrize(
    "rule",
    [
        "",
        "random",
        "Contiguous",
        "contiguous:3",
        "disjoint:1",
        "sizes",
        "sizes:",
        "skew",
        "dirichlet",
        ":80,20",
    ],
)
def test_an_unknown_rule_is_refused_with_those_there_are(rule):
    assert refusal(rule) == f"unknown split {rule!r}: use one of {RULES}"


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ("sizes:80,15,5", "names 3 sizes for 2 workers: one number a worker"),
        ("sizes:80", "names 1 sizes for 2 workers"),
        ("sizes:0,0", "the sizes sum to 0"),
        ("sizes:80;20", "'80;20' are not numbers"),
        ("sizes:80,,20", "are not numbers"),
        ("sizes:-80,180", "its numbers must be from 0"),
        ("sizes:nan,1", "its numbers must be from 0"),
        ("sizes:1e308,1e308", "its numbers must be from 0"),
        ("skew:90,20", "two numbers that sum to 100"),
        ("skew:90", "two numbers that sum to 100"),
        ("skew:90,5,5", "two numbers that sum to 100"),
        ("skew:110,-10", "its numbers must be from 0"),
        ("dirichlet:0", "one number above 0"),
        ("dirichlet:1,2", "one number above 0"),
        ("dirichlet:inf", "its numbers must be from 0"),
        ("dirichlet:1e308", "its numbers must be from 0"),
    ],
)
def test_numbers_that_do_not_fit_are_refused_with_the_rule(rule, said):
    message = refusal(rule)
    assert f"split {rule!r}" in message
    assert said in message


@pytest.mark.parametrize("rule", ["contiguous", "sizes:1,1,1,1", "dirichlet:0.5", "skew:90,10", "disjoint"])
def test_3_rows_for_4_workers_are_refused(rule):
    message = refusal(rule, workers=4, labels=EVEN[:3])
    assert (
        message
        == "3 rows cannot be dealt to 4 workers, each needs at least one: take more rows or fewer workers"
    )


@pytest.mark.parametrize(
    ("rule", "labels", "worker", "sizes"),
    [
        ("disjoint", np.zeros(8, np.int32), 1, "[8, 0]"),
        ("disjoint", np.full(8, 9, np.int32), 0, "[0, 8]"),
        ("skew:100,0", np.zeros(8, np.int32), 1, "[8, 0]"),
        ("sizes:999,1", EVEN[:10], 1, "[10, 0]"),
        ("sizes:0,1", EVEN[:10], 0, "[0, 10]"),
    ],
)
def test_a_worker_without_rows_is_named_with_the_counts(rule, labels, worker, sizes):
    message = refusal(rule, labels=labels)
    assert f"leaves worker {worker} without rows" in message
    assert f"rows a worker: {sizes}" in message
    assert f"rows a class: {np.bincount(labels, minlength=CLASSES).tolist()}" in message


@pytest.mark.parametrize("rule", ["disjoint", "skew:90,10"])
def test_more_workers_than_classes_are_refused_where_classes_have_owners(rule):
    assert "deals 10 classes to 11 workers: use at most 10" in refusal(rule, workers=11)


@pytest.mark.parametrize(("workers", "seed"), [(0, 0), (-1, 0), (2, -1)])
def test_workers_below_1_and_seeds_below_0_are_refused(workers, seed):
    assert f"got {workers} and {seed}" in refusal("contiguous", workers=workers, seed=seed)
