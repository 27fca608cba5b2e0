"""The rows of a worker: which, in which order, through the cache; what is kept how changes nothing."""

from dataclasses import replace

import numpy as np
import pytest

from fourfold.contract import plan as plans
from fourfold.contract.caching import ORDERS, Caching
from fourfold.contract.errors import InvalidInputError
from fourfold.prepare.step import prepare
from fourfold.store.formats import array_to_bytes
from fourfold.train.step import train
from fourfold.worker import input

ROWS = 101


@pytest.fixture
def order_file(tmp_path):
    """A file with an order of all rows, and the order."""
    numbers = np.random.default_rng(3).permutation(ROWS)
    path = tmp_path / "order.npy"
    path.write_bytes(array_to_bytes(numbers))
    return path, numbers


def shards(training, workers):
    plan = plans.of(training)
    found = [input.read_shard(training, plan, worker) for worker in range(workers)]
    for shard in found:
        shard.reader.close()
    return found


def taken(shard, epoch):
    """Row numbers in the order in which an epoch takes them."""
    return shard.numbers[np.concatenate(shard.windows(epoch))]


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("ram", [0, 1])
@pytest.mark.parametrize("split", ["contiguous", "sizes:80,20", "dirichlet:1"])
def test_workers_see_every_row_once_an_epoch_and_take_as_many_steps(make_training, order, ram, split):
    """M2, M3, M4: one data set, two workers; nothing twice, nothing left out, nobody waits at the end."""
    training = make_training(
        "data_parallel", rows=ROWS, split=split, batch=8, caching=Caching(order=order, ram=ram)
    )
    first, second = shards(training, 2)
    for epoch in range(2):
        seen = [taken(shard, epoch).tolist() for shard in (first, second)]
        assert sorted(sum(seen, [])) == list(range(ROWS))
        assert not set(seen[0]) & set(seen[1])
    assert first.steps == second.steps
    assert first.bounds[-1] + second.bounds[-1] == first.totals.sum() == ROWS


def test_an_order_from_a_file_is_taken_by_each_worker_for_its_own_rows(store, make_training, order_file):
    path, numbers = order_file
    caching = Caching(order=f"list:{path}")
    made = prepare(str(store), rows=ROWS, holdout=100, caching=caching)
    training = replace(make_training("data_parallel", rows=ROWS), split=made.split.id, caching=caching)
    for shard in shards(training, 2):
        mine = [number for number in numbers if number in set(shard.numbers)]
        assert taken(shard, 0).tolist() == taken(shard, 1).tolist() == mine
    alone = replace(training, scenario="sequential")
    (whole,) = shards(alone, 1)
    assert taken(whole, 0).tolist() == numbers.tolist()


def test_an_order_that_was_not_prepared_is_refused(make_training):
    training = make_training("sequential", rows=ROWS, caching=Caching(order="list:mine.npy"))
    with pytest.raises(
        InvalidInputError, match="has no order, the training asks for 'list:mine.npy': prepare with it"
    ):
        shards(training, 1)


@pytest.mark.usefixtures("workers")
@pytest.mark.parametrize(
    "caching", [Caching(ahead=0), Caching(dtype="uint8"), Caching(ram=10**9, disk=-1)], ids=str
)
def test_how_rows_are_kept_and_read_ahead_changes_no_weight(store, make_training, tmp_path, caching):
    usual = train(make_training("data_parallel", epochs=2))
    made = prepare(str(store), rows=400, holdout=100, caching=caching)
    other = train(
        replace(
            usual.training,
            fingerprint=made.manifest.fingerprint,
            split=made.split.id,
            caching=caching,
            output=str(tmp_path / "other"),
        )
    )
    assert [report.digests for report in other.reports] == [report.digests for report in usual.reports]


@pytest.mark.usefixtures("workers")
def test_a_shard_that_does_not_fit_into_memory_is_trained_on_in_windows_and_said(make_training, tmp_path):
    small = Caching(ram=300_000 + 8 * 320_000, ahead=2)
    training = make_training("data_parallel", rows=2000, epochs=2, caching=small)
    trained = train(training)
    for report in trained.reports:
        assert report.window > 0
        assert [each.memory + each.disk + each.store for each in report.inputs] == [1000, 1000]
        assert all(each.disk > 0 for each in report.inputs)
        assert any(
            "its 1,000 rows (3.1 MB) do not fit into its 2.9 MB of memory: they are dealt among" in said
            for said in report.said
        )
    again = train(replace(training, output=str(tmp_path / "again")))
    assert [report.digests for report in again.reports] == [report.digests for report in trained.reports]
    whole = train(replace(training, output=str(tmp_path / "whole"), caching=Caching()))
    assert {report.window for report in whole.reports} == {0}
    assert whole.reports[0].digests != trained.reports[0].digests


@pytest.mark.usefixtures("workers")
def test_after_the_first_epoch_rows_come_from_memory_and_steps_hardly_wait(make_training):
    (report,) = train(make_training("sequential", epochs=3)).reports
    assert [(each.memory, each.disk) for each in report.inputs] == [(0, 400), (400, 0), (400, 0)]
    assert [each.fetched > 0 for each in report.inputs] == [True, False, False]
    assert all(
        0 <= each.waited <= epoch.seconds for each, epoch in zip(report.inputs, report.epochs, strict=True)
    )
