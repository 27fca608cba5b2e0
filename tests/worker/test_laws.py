"""Two real processes take the step that one plain process takes on the joined batch."""

import numpy as np
import pytest

from fourfold.train.step import train
from tests.worker.ways import LIMIT, distance, part, traces

STEPS_CHECKED = [0, 1, 10, 15, 100]
"""The first step and those from the states after 1, 10 and 100; step 15 is the short last one of an epoch."""
EPOCHS = 7
ROWS, BATCH = 2000, 64


@pytest.mark.usefixtures("workers")
@pytest.mark.parametrize("split", ["contiguous", "sizes:80,20"])
@pytest.mark.parametrize(("optimizer", "rate"), [("sgd", 0.1), ("momentum", 0.05), ("adam", 1e-3)])
def test_data_parallel_is_a_plain_step_on_the_joined_batch(make_training, split, optimizer, rate):
    training = make_training(
        "data_parallel",
        rows=ROWS,
        split=split,
        batch=BATCH,
        epochs=EPOCHS,
        optimizer=optimizer,
        learning_rate=rate,
        trace=STEPS_CHECKED,
    )
    trained = train(training)
    assert trained.updates_per_epoch == 16
    for step in STEPS_CHECKED:
        found = traces(training, step)
        assert sum(len(trace["rows"]) for trace in found) == (80 if step == 15 else 128)
        assert distance(training, step) <= LIMIT


@pytest.mark.usefixtures("workers")
def test_the_law_would_notice_a_worker_that_is_left_out(make_training):
    training = make_training("data_parallel", optimizer="sgd", learning_rate=0.1, trace=[0])
    train(training)
    assert distance(training, 0, rows=traces(training, 0)[0]["rows"]) > 1e-4


@pytest.mark.usefixtures("workers")
def test_sequential_is_a_plain_step_also_when_the_last_batch_is_short(make_training):
    training = make_training("sequential", rows=ROWS, batch=BATCH, trace=[0, 1, 31], workers=1)
    trained = train(training)
    assert trained.updates_per_epoch == 32
    for step, rows in ((0, 64), (1, 64), (31, 16)):
        assert len(traces(training, step)[0]["rows"]) == rows
        assert distance(training, step) <= LIMIT


@pytest.mark.usefixtures("workers")
def test_the_copies_are_equal_after_every_step_and_every_row_is_taken_once_an_epoch(make_training):
    steps = list(range(8))
    training = make_training("data_parallel", rows=400, batch=50, epochs=2, trace=steps)
    train(training)
    orders = [[], []]
    for step in steps:
        first, second = traces(training, step)
        after = [part(trace, "after") for trace in (first, second)]
        assert all(np.array_equal(after[0][name], after[1][name]) for name in after[0])
        assert set(first["rows"]) <= set(range(200))
        assert set(second["rows"]) <= set(range(200, 400))
        orders[step // 4] += [*first["rows"], *second["rows"]]
    assert all(sorted(order) == list(range(400)) for order in orders)
    assert orders[0] != orders[1]


@pytest.mark.usefixtures("workers")
def test_another_seed_starts_elsewhere_and_deals_another_order(make_training):
    results = []
    for seed in (0, 0, 1):
        training = make_training("data_parallel", seed=seed, trace=[0])
        trained = train(training)
        results.append((trained.reports[0].digests[-1], traces(training, 0)[0]["rows"].tolist()))
    assert results[0] == results[1]
    assert results[0][0] != results[2][0]
    assert results[0][1] != results[2][1]


@pytest.mark.usefixtures("workers")
@pytest.mark.parametrize(
    ("rows", "batch", "epochs"),
    [(101, 8, 2), (201, 50, 1)],
    ids=["rows that do not divide", "a last batch of one row"],
)
def test_uneven_rows_end_and_none_is_dropped(make_training, rows, batch, epochs):
    trained = train(make_training("data_parallel", rows=rows, batch=batch, epochs=epochs))
    for report in trained.reports:
        assert [epoch.rows for epoch in report.epochs] == [rows] * epochs
        assert all(np.isfinite(epoch.loss) for epoch in report.epochs)
    assert sorted(report.rows for report in trained.reports) == [rows // 2, rows - rows // 2]


@pytest.mark.usefixtures("workers")
def test_a_worker_without_rows_in_most_steps_adds_nothing(make_training):
    training = make_training("data_parallel", split="sizes:99.5,0.5", batch=50, trace=[0, 1])
    train(training)
    assert [len(trace["rows"]) for step in (0, 1) for trace in traces(training, step)] == [100, 0, 99, 1]
    for step in (0, 1):
        assert distance(training, step) <= LIMIT
