"""What single ways promise beyond the laws, by real processes: rounds, members, stages, one worker alone."""

import math

import numpy as np
import pytest

from fourfold.contract import keys, plan as plans
from fourfold.contract.records import Training
from fourfold.store.formats import arrays_from_bytes
from fourfold.store.objects import open_store
from fourfold.worker import busy, words
from tests.worker.ways import part, traces

SMALL = {"rows": 203, "batch": 10, "epochs": 2}


def features(trained, model):
    return arrays_from_bytes(open_store(trained.training.output).read(keys.probes(model)), "probes")[
        "features"
    ]


def test_a_round_is_an_epoch_by_default_and_its_sums_are_those_of_the_epoch(once):
    trained = once("federated", workers=2, **SMALL)
    first, second = trained.reports
    assert first.rounds == second.rounds
    assert first.digests == second.digests
    assert [(each.steps, each.rows) for each in first.rounds] == [(11, 203), (11, 203)]
    for each, epoch in zip(first.rounds, first.epochs, strict=True):
        assert each.loss == pytest.approx(epoch.loss)
        assert each.distance > 0
    assert trained.global_batch == 10


def test_rounds_that_do_not_divide_an_epoch_end_with_it(once):
    trained = once("federated", workers=2, local_steps=4, **SMALL)
    rounds = trained.reports[0].rounds
    assert [each.steps for each in rounds] == [4, 4, 3] * 2
    assert sum(each.rows for each in rounds) == 2 * 203
    mean = sum(each.loss * each.rows for each in rounds[:3]) / 203
    assert trained.reports[0].epochs[0].loss == pytest.approx(mean)


def test_a_proximal_term_holds_workers_nearer_to_the_round_s_start(once):
    loose, held = (
        once("federated", workers=2, optimizer="sgd", learning_rate=0.1, proximal=mu, **SMALL)
        for mu in (0.0, 5.0)
    )
    assert held.reports[0].rounds[0].distance < 0.8 * loose.reports[0].rounds[0].distance


def test_server_momentum_adds_what_is_left_of_the_changes_before(once):
    """w1 = w0 + d1; w2 = w1 + d2 + beta d1 (Hsu et al., 2019); the first round is that without momentum."""
    beta, how = 0.5, {"optimizer": "sgd", "learning_rate": 0.1, "local_steps": 1, "trace": [0, 1], **SMALL}
    with_momentum = once("federated", workers=2, server_momentum=beta, **how)
    plain = once("federated", workers=2, **how)
    states = {}
    for name, trained in (("momentum", with_momentum), ("plain", plain)):
        for step in (0, 1):
            trace = traces(trained.training, step)[0]
            states[name, step] = [part(trace, when) for when in ("before", "after")]
    kernels = [name for name in states["plain", 0][0] if name.startswith("model/")]
    for name in kernels:
        w0, w1 = (state[name] for state in states["plain", 0])
        assert np.allclose(states["momentum", 0][1][name], w1, atol=1e-6), name
        without = states["plain", 1][1][name]
        expected = without + beta * (w1 - w0)
        assert np.allclose(states["momentum", 1][1][name], expected, atol=1e-6), name


def test_members_differ_from_the_start_and_equal_starts_give_equal_members(once):
    apart = once("ensemble", members=3, **SMALL)
    steps = apart.reports[0].probed
    assert steps == [0, 5, 10, 16, 21, 26, 31, 37, 42]
    found = [features(apart, member) for member in range(3)]
    assert all(each.shape == (len(steps), 8, 784) for each in found)
    for time in range(len(steps)):
        for one, other in ((0, 1), (0, 2), (1, 2)):
            assert np.linalg.norm(found[one][time] - found[other][time], axis=1).min() > 0
    equal = once("ensemble", members=2, starts=["glorot_uniform:3"], **SMALL)
    assert equal.reports[0].digests == equal.reports[1].digests
    assert np.array_equal(features(equal, 0), features(equal, 1))


@pytest.mark.parametrize("processes", [1, 2])
def test_members_on_fewer_workers_are_those_of_a_worker_each(once, processes):
    few, many = (once("ensemble", members=3, member_workers=count, **SMALL) for count in (processes, 0))
    assert [report.digests for report in few.reports] == [report.digests for report in many.reports]
    assert len({report.process for report in few.reports}) == few.processes == processes
    assert many.processes == 3


@pytest.mark.parametrize("scenario", ["sequential", "pipeline", "federated"])
def test_without_a_strategy_step_by_step_it_is_the_same_training(once, scenario):
    looked_at, usual = once(scenario, debug=True, rows=40, epochs=1), once("sequential", rows=40, epochs=1)
    assert looked_at.reports[0].epochs[0].loss == pytest.approx(usual.reports[0].epochs[0].loss, abs=1e-5)
    assert looked_at.processes == 1


def test_a_pipeline_says_when_its_stages_worked_and_where_it_was_cut(once):
    (report,) = once("pipeline", stages=3, **SMALL).reports
    assert {span.stage for span in report.busy} == {0, 1, 2}
    assert all(0 <= span.begin <= span.end for span in report.busy)
    assert report.cut[-1] == "flatten"
    assert any("stages lie on logical devices of" in sentence for sentence in report.said)
    for worker in once("hybrid", workers=2, **SMALL).reports:
        assert (worker.distance, worker.drift is None) == (0.0, False)


def test_cost_may_be_measured_to_balance_the_stages(once):
    (report,) = once("pipeline", balance="cost", rows=100, epochs=1).reports
    assert report.cut[0] in ("conv2d", "max_pooling2d", "conv2d_1", "max_pooling2d_1", "flatten")


def test_bytes_are_counted_as_they_are_sent():
    def sent(scenario, workers=2, **how):
        how = {"weights": 1000, "rows": 50, "handed": [], "steps_a_round": 10, **how}
        return words.bytes_per_step(plans.plan(scenario, workers), **how)

    assert sent("sequential") == sent("solo") == sent("ensemble") == 0
    assert sent("data_parallel") == 4 * 1002
    assert sent("data_parallel", 4) == 2 * 3 / 4 * 4 * 1002
    assert sent("federated") == 4 * 1000 / 10
    assert sent("pipeline", handed=[784]) == 2 * 4 * 50 * 784
    assert sent("hybrid", handed=[784]) == 2 * 4 * 50 * 784 + 4 * 1002 + 4 * 1000


def test_a_batch_too_small_for_its_merge_is_warned_of_with_the_share():
    training = Training("data_parallel", 2, "s", "f", "i", "o", batch=4)
    assert words.of_merge(training, 0.1) == ""
    assert "38% of a step at 4 rows a worker" in words.of_merge(training, 0.38)


def test_stages_that_share_a_device_are_not_sold_as_a_speed_up():
    assert words.of_devices(["GPU:0"], 2) == words.of_devices(["GPU:0", "GPU:1"], 2) == []
    (shared,) = words.of_devices(["GPU:0", "GPU:1", "GPU:0"], 8)
    assert "Stages 0 and 2 share the device GPU:0" in shared
    assert "no faster" in words.of_devices(["CPU:0", "CPU:1"], 1)[0]
    assert "no faster" not in words.of_devices(["CPU:0", "CPU:1"], 2)[0]
    assert words.of_devices([f"/job:worker/replica:0/task:{n}/device:CPU:0" for n in range(2)], 1) == []


def test_spans_of_operations_are_joined_to_the_times_in_which_a_stage_was_busy():
    found = busy.joined([(1, 5.0, 6.0), (0, 2.0, 3.0), (0, 2.5, 4.0), (0, 4.00001, 5.0), (0, 7.0, 8.0)])
    assert [(span.stage, span.begin) for span in found] == [(0, 0.0), (0, 5.0), (1, 3.0)]
    assert math.isclose(found[0].end, 3.0)
    assert busy.joined([]) == []
