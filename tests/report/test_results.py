"""``results.json``: the schema that programs read, and the choices that are made in it."""

import json
from dataclasses import replace

import pytest

from fourfold.contract import plan as plans
from fourfold.contract.merged import Merged
from fourfold.contract.strict import to_json

NUMBER = (int, float)
EPOCH = {"loss": NUMBER, "accuracy": NUMBER, "seconds": NUMBER, "rows": int}
SCORE = {"accuracy": NUMBER, "loss": NUMBER}
SCHEMA = {
    "schema": int,
    "manifest": {
        "seed": int, "rows": int, "batch": int, "data_fingerprint": str, "versions": dict, "images": dict,
        "arguments": dict,
    },
    "merge": {"plain_mean": SCORE, "weighted_mean": SCORE},
    "references": {"best_solo": SCORE, "ensemble": SCORE, "all_data": SCORE},
}  # fmt: skip
SPECIAL = {
    "rounds": {"federated": [{"steps": int, "rows": int, "distance": NUMBER}]},
    "distances": {"ensemble": {"steps": [int], "pairs": [[int]], "values": [[NUMBER]], "rows": int}},
    "distance": {"hybrid": NUMBER},
    "drift": {"hybrid": NUMBER},
    "merge_share": {"data_parallel": NUMBER, "hybrid": NUMBER, "federated": NUMBER},
    "micro_batches": {"pipeline": int, "hybrid": int},
    "busy": {name: [{"stage": int, "begin": NUMBER, "end": NUMBER}] for name in ("pipeline", "hybrid")},
    "overlap": {
        name: {"seconds_any": NUMBER, "seconds_two": NUMBER, "share": NUMBER}
        for name in ("pipeline", "hybrid")
    },
    "cut": {"pipeline": [str], "hybrid": [str]},
}
"""What only some scenarios have; elsewhere it is null or empty."""
SCENARIO = {
    "accuracy": NUMBER, "loss": NUMBER, "epochs": [EPOCH], "workers": int, "stages": int, "members": int,
    "global_batch": int, "updates_per_epoch": int, "models": [{**SCORE, "weights_sha256": str}],
    "weights_sha256": [str], "processes": [str], "cut": list, "rounds": list, "bytes_per_step": NUMBER,
    "peak_memory": [int], "busy": list, "resumed": list, "said": list,
}  # fmt: skip
"""As the design's section "Results" has it. Fields may be added, never taken away."""


def fits(value, kind, where: str = "results") -> None:
    """Checks that a JSON value has at least the fields of a schema, each of its type."""
    if isinstance(kind, dict):
        assert isinstance(value, dict), where
        for name, inner in kind.items():
            assert name in value, f"{where} has no {name}"
            fits(value[name], inner, f"{where}.{name}")
    elif isinstance(kind, list):
        assert isinstance(value, list), where
        assert value, f"{where} is empty"
        for place, item in enumerate(value):
            fits(item, kind[0], f"{where}[{place}]")
    else:
        assert isinstance(value, kind), f"{where} is {value!r}"
        assert not isinstance(value, bool), f"{where} is {value!r}"


def test_it_has_the_fields_that_the_design_promises(run):
    built = json.loads(to_json(run.build()))

    fits(built, SCHEMA)
    assert set(built["scenarios"]) == set(plans.names())
    for name, scenario in built["scenarios"].items():
        fits(scenario, SCENARIO, name)
        assert len(scenario["epochs"]) == 3
        assert len(scenario["models"]) == len(scenario["weights_sha256"])
        assert len(scenario["processes"]) == scenario["workers"]


@pytest.mark.parametrize("field", SPECIAL)
def test_what_only_some_scenarios_have_is_null_or_empty_elsewhere(run, field):
    for name, scenario in json.loads(to_json(run.build()))["scenarios"].items():
        if name in SPECIAL[field]:
            fits(scenario[field], SPECIAL[field][name], f"{name}.{field}")
        else:
            assert scenario[field] in (None, []), name


def test_its_json_is_strict(run, change):
    broken = change(run, "solo", loss=None)

    text = to_json(broken.build())

    json.loads(text, parse_constant=lambda word: pytest.fail(f"{word} is not JSON"))
    with pytest.raises(ValueError, match="not JSON compliant"):
        to_json({**broken.build(), "loss": float("nan")})


def test_the_manifest_says_what_made_the_run(run):
    manifest = run.build()["manifest"]

    assert (manifest["seed"], manifest["rows"], manifest["batch"]) == (7, 100, 100)
    assert manifest["data_fingerprint"] == "f" * 32
    assert manifest["arguments"] == run.arguments
    assert manifest["versions"] == {"keras": "3.15.1"}
    assert manifest["environment"] == {"threads": "1", "cpu": "a CPU"}


def test_scenarios_stand_in_the_order_of_the_table(run):
    assert list(run.build()["scenarios"]) == list(plans.names())


def test_numbers_of_a_scenario_are_those_of_its_records(run):
    scenarios = run.build()["scenarios"]

    assert {name: s["accuracy"] for name, s in scenarios.items()} == {
        "sequential": 0.95, "data_parallel": 0.94, "ensemble": 0.93, "pipeline": 0.92, "hybrid": 0.91,
        "solo": pytest.approx(0.85), "federated": 0.89,
    }  # fmt: skip
    assert [s["workers"] for s in scenarios.values()] == [1, 2, 3, 1, 2, 2, 2]
    assert [s["members"] for s in scenarios.values()] == [1, 1, 3, 1, 1, 2, 1]
    assert [s["stages"] for s in scenarios.values()] == [1, 1, 1, 2, 2, 1, 1]
    assert [s["global_batch"] for s in scenarios.values()] == [100, 200, 100, 100, 200, 100, 200]
    assert scenarios["solo"]["weights_sha256"] == ["solo-digest-0", "solo-digest-1"]
    assert scenarios["data_parallel"]["processes"] == ["4000", "4001"]
    assert scenarios["solo"]["confusion"] == [[5, 1], [2, 4]]


def test_solo_is_the_mean_of_its_models_and_has_their_vote_beside_it(run):
    solo = run.build()["scenarios"]["solo"]

    assert solo["accuracy"] == pytest.approx(sum(m["accuracy"] for m in solo["models"]) / 2)
    assert solo["loss"] == pytest.approx(sum(m["loss"] for m in solo["models"]) / 2)
    assert solo["vote"] == {"accuracy": 0.93, "loss": 0.3}
    assert [m["rows"] for m in solo["models"]] == [60, 40]


def test_epochs_of_several_models_are_means_over_rows_and_the_slowest_time(run):
    """Worker 0 trains on 60 rows, worker 1 on 40 with an accuracy 0.2 higher and a second more."""
    first = run.build()["scenarios"]["solo"]["epochs"][0]

    assert first["loss"] == pytest.approx(2.0)
    assert first["accuracy"] == pytest.approx(0.2 * 0.6 + 0.4 * 0.4)
    assert first["seconds"] == 1.5
    assert first["rows"] == 100


def test_workers_that_train_one_model_are_not_counted_twice(run):
    parallel = run.build()["scenarios"]["data_parallel"]

    assert len(parallel["models"]) == 1
    assert parallel["models"][0]["rows"] == 100
    assert parallel["epochs"][0]["rows"] == 100
    assert parallel["epochs"][0]["accuracy"] == pytest.approx(0.2)


def test_the_best_solo_is_chosen_by_hold_out_rows_never_by_test_rows(run):
    references = run.build()["references"]

    assert references["best_solo"] == {"accuracy": 0.80, "loss": pytest.approx(0.2)}
    assert references["ensemble"] == {"accuracy": 0.93, "loss": 0.3}
    assert references["all_data"] == {"accuracy": 0.95, "loss": pytest.approx(0.05)}


@pytest.mark.parametrize("better", [0, 1])
def test_of_equal_hold_out_accuracies_the_smaller_loss_wins_and_none_is_the_worst(run, change, better):
    models = [replace(m, holdout_accuracy=0.8) for m in run.evaluations[0].models]
    models[1 - better] = replace(models[1 - better], holdout_loss=None)

    best = change(run, "solo", models=models).build()["references"]["best_solo"]

    assert best["accuracy"] == models[better].accuracy


def test_the_references_are_the_solos_vote_and_the_whole_models_score_beside_others_like_them(run, change):
    """An ensemble votes, too, and a model in stages sees all rows, too."""
    vote = replace(run.only("solo").evaluations[0].vote, accuracy=0.77)
    changed = change(change(run, "solo", vote=vote), "ensemble", vote=replace(vote, accuracy=0.99))

    for order in (changed.evaluations, changed.evaluations[::-1]):
        references = replace(changed, evaluations=order).build()["references"]
        assert references["ensemble"]["accuracy"] == 0.77
        assert references["best_solo"]["accuracy"] == 0.80
        assert references["all_data"]["accuracy"] == 0.95
    assert changed.without("sequential").build()["references"]["all_data"] is None
    assert changed.without("solo").build()["references"]["ensemble"] is None


def test_references_of_what_did_not_run_are_null(run):
    without_sequential = run.without("sequential").build()["references"]
    without_solo = run.without("solo").build()["references"]

    assert without_sequential["all_data"] is None
    assert without_sequential["best_solo"] is not None
    assert without_solo["best_solo"] is None
    assert without_solo["ensemble"] is None
    assert without_solo["all_data"] is not None


def test_a_run_without_a_merge_has_none_but_says_why(run):
    built = replace(run, merged=Merged(0, said=["There was nothing to merge."])).build()

    assert built["merge"] == {}
    assert built["merge_said"] == ["There was nothing to merge."]


def test_a_loss_that_is_not_a_number_is_null(run, change):
    models = [replace(m, loss=None) for m in run.only("solo").evaluations[0].models]

    solo = change(run, "solo", loss=None, models=models).build()["scenarios"]["solo"]

    assert solo["loss"] is None
    assert [m["loss"] for m in solo["models"]] == [None, None]


def test_rows_of_each_class_at_each_worker_are_there(run):
    """So that a skewed split is seen (W10)."""
    data = run.build()["data"]

    assert data["rows_a_worker"] == [60, 40]
    assert data["classes_a_worker"] == [[41, 19], [23, 17]]
    assert data["rows"] == {"train": 100, "holdout": 50, "test": 12}
    assert data["said"] == ["A sentence of the split"]
