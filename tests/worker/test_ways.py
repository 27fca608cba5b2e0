"""The edges of the table of plans are laws: where two ways must agree, real processes take the same step.

A step is compared with one of plain Keras in float64 on the rows that all workers took, from the state that
the way itself was in. Whole trajectories drift apart even where every step is right; they are printed.
"""

import functools
import itertools

import numpy as np
import pytest

from fourfold.contract import plan as plans
from tests.worker.ways import LIMIT, distance, distance_between, part, rows_of_all, traces

FROM = [0, 1, 10, 100]
"""Steps from the first state, and from those after 1, 10 and 100 steps."""
STEPS = 21
"""Steps of an epoch: twenty of 10 rows and one of 3, fewer than there are micro-batches."""
SHAPE = {"rows": 203, "epochs": 5, "trace": sorted({*FROM, STEPS - 1})}
OPTIMIZERS = {"sgd": 0.1, "adam": 1e-3}

WAYS = {
    "sequential": {"scenario": "sequential"},
    "pipeline of one stage": {"scenario": "pipeline", "stages": 1, "micro_batches": 1},
    "pipeline, M=1": {"scenario": "pipeline", "stages": 2, "micro_batches": 1},
    "pipeline, M=4": {"scenario": "pipeline", "stages": 2, "micro_batches": 4},
    "pipeline of three stages, M=7": {
        "scenario": "pipeline",
        "stages": 3,
        "micro_batches": 7,
        "cut": ["conv2d", "max_pooling2d_1"],
    },
    "hybrid of one worker": {"scenario": "hybrid", "stages": 2, "micro_batches": 4},
    "data parallel": {"scenario": "data_parallel", "workers": 2},
    "hybrid of one stage": {"scenario": "hybrid", "workers": 2, "stages": 1, "micro_batches": 1},
    "hybrid": {"scenario": "hybrid", "workers": 2, "stages": 2, "micro_batches": 4},
    "federated": {"scenario": "federated", "workers": 2, "local_steps": 1},
    "data parallel, 80/20": {"scenario": "data_parallel", "workers": 2, "split": "sizes:80,20"},
    "federated, 80/20": {
        "scenario": "federated",
        "workers": 2,
        "local_steps": 1,
        "split": "sizes:80,20",
    },
    "ensemble of one": {"scenario": "ensemble", "members": 1, "starts": ["glorot_uniform"]},
}
ANY, PLAIN = ("sgd", "adam"), ("sgd",)
LAWS = {
    ("pipeline of one stage", "sequential"): ANY,
    ("pipeline, M=1", "sequential"): ANY,
    ("pipeline, M=4", "sequential"): ANY,
    ("pipeline of three stages, M=7", "sequential"): ANY,
    ("hybrid of one worker", "pipeline, M=4"): ANY,
    ("hybrid of one stage", "data parallel"): ANY,
    ("hybrid", "data parallel"): ANY,
    ("federated", "data parallel"): PLAIN,
    ("federated, 80/20", "data parallel, 80/20"): PLAIN,
    ("ensemble of one", "sequential"): ANY,
}
"""Which way is which, and with which optimisers: merging weights is merging gradients for plain SGD alone."""
CASES = [(*law, optimizer) for law, optimizers in LAWS.items() for optimizer in optimizers]
TRAINED = sorted({(way, optimizer) for *law, optimizer in CASES for way in law})


@pytest.fixture
def trained(once):
    def of(way, optimizer):
        batch = 10 // WAYS[way].get("workers", 1)
        rate = OPTIMIZERS[optimizer]
        return once(**WAYS[way], **SHAPE, batch=batch, optimizer=optimizer, learning_rate=rate)

    return of


@pytest.mark.parametrize(("way", "optimizer"), TRAINED)
def test_a_step_is_plain_keras_on_the_joined_rows(trained, way, optimizer):
    training = trained(way, optimizer).training
    for step in SHAPE["trace"]:
        assert len(rows_of_all(traces(training, step))) == (3 if step % STEPS == STEPS - 1 else 10)
        assert distance(training, step) <= LIMIT, f"step {step}"


@pytest.mark.parametrize(("way", "other", "optimizer"), CASES)
def test_two_ways_that_must_agree_take_the_same_first_step(trained, way, other, optimizer):
    ours, theirs = (trained(each, optimizer) for each in (way, other))
    first, second = (traces(each.training, 0) for each in (ours, theirs))
    assert sorted(rows_of_all(first)) == sorted(rows_of_all(second))
    befores = [part(found[0], "before") for found in (first, second)]
    assert all(np.array_equal(befores[0][name], befores[1][name]) for name in befores[1])
    assert distance_between(ours.training, theirs.training, 0) <= LIMIT
    for step in FROM:
        states = [part(traces(each.training, step)[0], "after") for each in (ours, theirs)]
        apart = max(np.abs(states[0][n] - states[1][n]).max() for n in states[1] if n.startswith("model/"))
        print(f"{way} and {other}, {optimizer}: trajectories are {apart:.1e} apart after step {step}")


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize(
    ("way", "other"),
    [("ensemble of one", "sequential"), ("hybrid of one worker", "pipeline, M=4")],
)
def test_what_is_the_same_program_gives_the_same_bits(trained, way, other, optimizer):
    assert trained(way, optimizer).reports[0].digests == trained(other, optimizer).reports[0].digests


@pytest.mark.parametrize("way", [way for way in WAYS if WAYS[way].get("workers") == 2])
def test_the_copies_are_equal_after_every_traced_step(trained, way):
    training = trained(way, "sgd").training
    for step in SHAPE["trace"]:
        states = [part(trace, "after") for trace in traces(training, step)]
        names = [name for name in states[0] if name.startswith("model/")]
        assert all(np.array_equal(states[0][name], states[1][name]) for name in names)


@pytest.mark.parametrize("way", ["hybrid", "hybrid of one stage"])
def test_copies_of_stages_are_not_apart_at_all(trained, way):
    for report in trained(way, "adam").reports:
        assert report.distance == 0.0
        assert report.drift is not None


@pytest.mark.parametrize(
    ("way", "optimizer"), [("pipeline, M=4", "adam"), ("hybrid", "adam"), ("federated, 80/20", "sgd")]
)
@pytest.mark.parametrize("step", FROM)
def test_the_laws_would_notice_a_row_that_is_left_out(trained, way, optimizer, step):
    training = trained(way, optimizer).training
    rows = rows_of_all(traces(training, step))
    for left in range(len(rows)):
        assert distance(training, step, rows=np.delete(rows, left)) > 20 * LIMIT


def test_the_laws_would_notice_shards_that_are_averaged_without_their_sizes(trained):
    """Rows of the smaller shard, taken as often as is needed to weigh as much as the larger one's."""
    training = trained("federated, 80/20", "sgd").training
    larger, smaller = (trace["rows"] for trace in traces(training, 1))
    assert len(larger) == 4 * len(smaller)
    equal = np.concatenate([larger, np.repeat(smaller, 4)])
    assert distance(training, 1, rows=equal) > 100 * LIMIT


def test_every_way_of_training_is_compared_but_those_that_merge_when_training_is_over():
    compared = {WAYS[way]["scenario"] for way in itertools.chain(*LAWS)}
    assert compared == {row.name for row in plans.SCENARIOS if not row.merges_after_training}
    assert functools.reduce(set.union, map(set, LAWS)) == set(WAYS)
