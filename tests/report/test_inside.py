"""What ``results.json`` says of the inside of a training: processes, bytes, memory, rounds, stages."""

import json
from dataclasses import replace

import pytest

from fourfold.contract.records import Evaluation
from fourfold.contract.strict import from_json, to_json
from fourfold.report import page, summary

ADDED = {
    "evaluation": ("distances", "said", "roc", "auc"),
    "trained": ("processes",),
    "training": (
        "members", "member_workers", "starts", "stages", "micro_batches", "cut", "balance", "placement",
        "local_steps", "server_momentum", "proximal", "debug", "caching",
    ),
    "report": (
        "stage_processes", "cut", "rounds", "probed", "distance", "drift", "bytes_per_step", "merge_share",
        "peak_memory", "busy", "resumed", "inputs", "window",
    ),
}  # fmt: skip
"""Fields that records of the first version do not have."""


def scenario(run, name: str) -> dict:
    return run.build()["scenarios"][name]


def test_numbers_of_several_workers_are_of_the_one_with_the_most(run):
    hybrid = scenario(run, "hybrid")

    assert hybrid["bytes_per_step"] == 2000
    assert hybrid["merge_share"] == 0.2
    assert (hybrid["distance"], hybrid["drift"]) == (0, 1.5e-8)
    assert hybrid["peak_memory"] == [400_000_000, 401_000_000]


def test_a_number_that_one_worker_does_not_have_is_of_the_others(run, change):
    trained = run.only("hybrid").evaluations[0].trained
    first, second = trained.reports
    reports = [replace(first, merge_share=None, drift=None), second]

    hybrid = scenario(change(run, "hybrid", trained=replace(trained, reports=reports)), "hybrid")

    assert (hybrid["merge_share"], hybrid["drift"]) == (0.2, 1.5e-8)


def test_processes_are_all_that_took_part_each_once(run, change):
    """Stages that lie on pods; and members that share processes, which say theirs more than once."""
    trained = run.only("pipeline").evaluations[0].trained
    (report,) = trained.reports
    apart = replace(trained, processes=2, reports=[replace(report, stage_processes=["pod-1"])])
    pipeline = scenario(change(run, "pipeline", trained=apart), "pipeline")
    assert (pipeline["processes"], pipeline["workers"]) == (["4000", "pod-1"], 2)

    trained = run.only("ensemble").evaluations[0].trained
    dealt = [replace(each, process=str(place % 2)) for place, each in enumerate(trained.reports)]
    shared = change(run, "ensemble", trained=replace(trained, processes=2, reports=dealt))
    ensemble = scenario(shared, "ensemble")
    assert (ensemble["processes"], ensemble["workers"], ensemble["members"]) == (["0", "1"], 2, 3)


def test_members_of_one_process_train_one_after_another(run, change):
    """Member k takes 0.5 + k seconds; 0 and 2 share a process: 3 seconds, against 1.5 of the other."""
    assert scenario(run, "ensemble")["epochs"][0]["seconds"] == 2.5

    trained = run.only("ensemble").evaluations[0].trained
    dealt = [replace(each, process=str(place % 2)) for place, each in enumerate(trained.reports)]
    shared = change(run, "ensemble", trained=replace(trained, processes=2, reports=dealt))

    assert scenario(shared, "ensemble")["epochs"][0]["seconds"] == 3.0


def test_rounds_are_the_chiefs_in_their_order(run):
    assert scenario(run, "federated")["rounds"] == [
        {"steps": 5, "rows": 100, "loss": 2.0, "distance": 0.3},
        {"steps": 5, "rows": 100, "loss": None, "distance": 0.1},
    ]


def test_overlap_is_the_time_in_which_two_stages_were_at_work(run, change_reports):
    overlap = scenario(run, "pipeline")["overlap"]

    assert overlap["seconds_any"] == pytest.approx(0.004)
    assert overlap["seconds_two"] == pytest.approx(0.0005)
    assert overlap["share"] == pytest.approx(0.125)
    assert scenario(change_reports(run, "pipeline", busy=[]), "pipeline")["overlap"] is None


def test_distances_and_restarts_are_passed_on(run, change_reports):
    assert scenario(run, "ensemble")["distances"] == {
        "steps": [0, 10], "pairs": [[0, 1], [0, 2], [1, 2]], "rows": 64,
        "values": [[1.0, 1.25, 1.5], [2.0, 2.25, 2.5]],
    }  # fmt: skip
    assert scenario(change_reports(run, "solo", resumed=[2]), "solo")["resumed"] == [2]


def test_what_workers_and_the_evaluation_say_is_said_once(run):
    assert scenario(run, "ensemble")["said"] == ["A sentence of a worker.", "A sentence of the evaluation."]


def test_records_of_an_older_version_make_a_report(run):
    """Fields are only ever added: what the first version wrote is read, with nothing where nothing was."""

    def aged(evaluation: Evaluation) -> Evaluation:
        written = json.loads(to_json(evaluation))
        records = {
            "evaluation": [written],
            "trained": [written["trained"]],
            "training": [written["trained"]["training"]],
            "report": written["trained"]["reports"],
        }
        for kind, found in records.items():
            for record in found:
                for name in ADDED[kind]:
                    del record[name]
        return from_json(Evaluation, json.dumps(written))

    old = run.only("sequential", "data_parallel", "solo")
    built = replace(old, evaluations=[aged(evaluation) for evaluation in old.evaluations]).build()

    for each in built["scenarios"].values():
        assert each["workers"] == len(each["processes"])
        assert (each["rounds"], each["busy"], each["resumed"], each["cut"]) == ([], [], [], [])
        assert (each["distances"], each["overlap"], each["distance"], each["drift"]) == (None,) * 4
        assert each["bytes_per_step"] == 0
    assert "not measured" in page.render(built)
    assert summary.write(built).count(" 0.0 kB |\n") == 3
