"""The table of plans: its facts, and the steps that deal an epoch's rows to workers."""

import pytest
from hypothesis import example, given, strategies as st

from fourfold.contract import plan as plans
from fourfold.contract.errors import InvalidInputError

SIZES = st.lists(st.integers(0, 3000), min_size=1, max_size=6).filter(any).map(tuple)
BATCH = st.integers(1, 500)


def taken(sizes: tuple[int, ...], batch: int) -> list[list[int]]:
    """Rows that each worker takes in each step, checked to be consecutive from the first row to the last."""
    bounds = plans.steps(sizes, batch)
    assert len(bounds) == len(sizes)
    for size, of_worker in zip(sizes, bounds, strict=True):
        assert of_worker[0] == 0
        assert of_worker[-1] == size
    return [[b - a for a, b in zip(of, of[1:], strict=False)] for of in bounds]


@given(SIZES, BATCH)
@example((1, 999), 100)
@example((0, 5), 1)
def test_an_epoch_takes_every_row_once(sizes, batch):
    for size, of_worker in zip(sizes, taken(sizes, batch), strict=True):
        assert min(of_worker) >= 0
        assert sum(of_worker) == size


@given(SIZES, BATCH)
def test_all_workers_take_the_same_number_of_steps(sizes, batch):
    counts = {len(of_worker) for of_worker in taken(sizes, batch)}
    assert counts == {-(-sum(sizes) // (batch * len(sizes)))}


@given(SIZES, BATCH)
@example((1, 1, 6), 1)
def test_every_global_batch_but_the_last_is_whole(sizes, batch):
    whole = batch * len(sizes)
    together = [sum(rows) for rows in zip(*taken(sizes, batch), strict=True)]
    assert together[:-1] == [whole] * (len(together) - 1)
    assert together[-1] == (sum(sizes) - 1) % whole + 1


@given(SIZES, BATCH)
@example((1, 1, 6), 1)
def test_workers_go_through_their_shards_at_one_pace(sizes, batch):
    """No worker is given a row while the next row of another is due earlier (Sainte-Laguë, 1910)."""
    for at in zip(*plans.steps(sizes, batch), strict=True):
        last_given = [(2 * rows - 1) / size for rows, size in zip(at, sizes, strict=True) if rows > 0]
        next_due = [(2 * rows + 1) / size for rows, size in zip(at, sizes, strict=True) if rows < size]
        assert max(last_given, default=0) <= min(next_due, default=2)


@given(st.integers(1, 3000), st.integers(1, 6), BATCH)
def test_equal_shards_take_exactly_the_batch(size, workers, batch):
    for of_worker in taken((size,) * workers, batch):
        assert of_worker[:-1] == [batch] * (len(of_worker) - 1)
        assert of_worker[-1] == (size - 1) % batch + 1


@pytest.mark.parametrize(
    ("sizes", "batch", "expected"),
    [
        ((2000,), 64, [[64] * 31 + [16]]),
        ((2000,), 100, [[100] * 20]),
        ((1000, 1000), 100, [[100] * 10, [100] * 10]),
        ((1600, 400), 100, [[160] * 10, [40] * 10]),
        ((7,), 100, [[7]]),
        ((51, 50), 8, [[8, 8, 8, 8, 8, 8, 3], [8, 8, 8, 8, 8, 8, 2]]),
    ],
    ids=["31 and 16", "20 of 100", "10 pairs", "80/20", "fewer rows than a batch", "101 rows, 2 workers"],
)
def test_known_steps(sizes, batch, expected):
    assert taken(sizes, batch) == expected


def test_a_tiny_shard_has_steps_without_rows():
    tiny, large = taken((3, 1997), 100)
    assert tiny.count(0) == 7
    assert tiny.count(1) == 3
    assert len(large) == len(tiny) == 10
    assert min(large) > 0


@pytest.mark.parametrize(
    ("sizes", "batch", "said"),
    [((100,), 0, "batch"), ((), 10, "at least one row"), ((0, 0), 10, "[0, 0]"), ((5, -1), 10, "[5, -1]")],
)
def test_impossible_steps_are_refused_with_the_value(sizes, batch, said):
    with pytest.raises(InvalidInputError) as refused:
        plans.steps(sizes, batch)
    assert said in str(refused.value)


def test_the_table_has_each_name_once_and_a_meaning_beside_it():
    assert len(set(plans.names())) == len(plans.SCENARIOS)
    assert {"sequential", "data_parallel", "solo"} <= set(plans.names())
    for row in plans.SCENARIOS:
        assert plans.scenario(row.name) is row
        assert row.meaning.endswith(".")


@pytest.mark.parametrize("row", plans.SCENARIOS, ids=lambda row: row.name)
def test_a_row_does_not_contradict_itself(row):
    assert (row.merged == "nothing") == (row.when == "never")
    assert row.exchanges == (row.when in ("every_step", "every_round"))
    assert row.in_rounds == (row.exchanges and row.merged == "weights")
    assert row.votes == (row.merged == "predictions") == (row.when == "when_scoring")
    assert row.merges_after_training == (row.when == "once")
    assert row.splits_data == (row.data == "shards")
    assert not (row.model == "one" and row.exchanges and not row.splits_model)


@given(st.sampled_from(plans.names()), st.integers(1, 8))
def test_groups_models_and_shards_fit_together(name, workers):
    plan = plans.plan(name, workers)
    everyone = list(range(plan.workers))
    assert sorted(worker for group in plan.groups for worker in group) == everyone
    for worker in everyone:
        assert worker in plan.group_of(worker)
        assert plan.groups[plan.model_of(worker)] == plan.group_of(worker)
    assert {plan.shard_of(worker) for worker in everyone} == set(range(plan.shards))
    assert plan.members in (1, len(plan.groups))


@pytest.mark.parametrize(
    ("name", "workers", "groups", "shards", "models", "members"),
    [
        ("sequential", 1, ((0,),), [0, 0, 0], [0], 1),
        ("data_parallel", 3, ((0, 1, 2),), [0, 1, 2], [0, 0, 0], 1),
        ("solo", 3, ((0,), (1,), (2,)), [0, 1, 2], [0, 1, 2], 3),
    ],
)
def test_known_plans_for_three_workers(name, workers, groups, shards, models, members):
    plan = plans.plan(name, 3)
    assert (plan.workers, plan.groups, plan.members) == (workers, groups, members)
    assert [plan.shard_of(worker) for worker in range(workers)] == shards[:workers]
    assert [plan.model_of(worker) for worker in range(workers)] == models


def test_an_unknown_scenario_is_refused_with_the_names_and_the_nearest():
    with pytest.raises(InvalidInputError) as refused:
        plans.plan("data-paralel", 2)
    assert "did you mean 'data_parallel'?" in str(refused.value)
    for name in plans.names():
        assert name in str(refused.value)


def test_a_name_like_no_scenario_gets_no_guess():
    with pytest.raises(InvalidInputError) as refused:
        plans.scenario("xyzzy")
    assert "did you mean" not in str(refused.value)


@pytest.mark.parametrize("workers", [0, -1])
def test_fewer_workers_than_one_are_refused(workers):
    with pytest.raises(InvalidInputError, match=f"got {workers}"):
        plans.plan("solo", workers)
