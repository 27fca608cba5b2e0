"""What changes a result is an input (K1), every input is given, and every parameter may be left out (K6)."""

import json
from typing import Any

import click
import pytest

from fourfold.contract import images, plan as plans, ways
from fourfold_pipelines.chosen import KUBEFLOW_STORE
from fourfold_pipelines.cli.run import run_command
from tests.pipelines.ir import TRAINING, compiled, leaves, steps

every_pipeline = pytest.mark.parametrize("which", TRAINING)
SAME = {
    "data": "mnist", "rows": 3000, "holdout": 500, "split": "disjoint", "workers": 3, "epochs": 6,
    "batch": 50, "optimizer": "sgd", "learning_rate": 0.01, "seed": 1, "store": "s3://else/where",
    "members": 4, "stages": 3, "micro_batches": 8, "local_steps": 5, "ways": '{"proximal": 0.1}',
    "cache": '{"order": "batches"}',
}  # fmt: skip
OTHER: dict[str, dict[str, Any]] = {
    "experiment": {**SAME, "scenarios": ["solo"]},
    "train": {**SAME, "scenario": "solo"},
}
"""For each parameter of a pipeline a value that is not its default."""
ARGUMENTS = [(which, name, value) for which, others in OTHER.items() for name, value in others.items()]
every_argument = pytest.mark.parametrize(("which", "parameter", "value"), ARGUMENTS)


@every_pipeline
def test_every_parameter_is_tried(which):
    assert set(OTHER[which]) == set(compiled(which).parameters)


# KFP's cache key sees inputs, never the environment.


@every_argument
def test_another_argument_is_another_input_of_every_step_after_it(which, parameter, value):
    ir = compiled(which).ir
    before, after = leaves(ir, {}), leaves(ir, {parameter: value})
    for step in steps(which):
        if step == "clean-up" or (step == "prepare" and parameter not in before["prepare"][0]):
            continue
        assert json.dumps(before[step]) != json.dumps(after[step]), step


@every_argument
def test_an_argument_reaches_every_input_of_its_name(which, parameter, value):
    runs = leaves(compiled(which).ir, {parameter: value})
    reached = [inputs[parameter] for each in runs.values() for inputs in each if parameter in inputs]
    if parameter == "scenarios":
        assert [inputs["scenario"] for inputs in runs["train"]] == value
    assert reached
    assert all(one == value for one in reached)


def test_scenarios_differ_by_an_input():
    trainings = leaves(compiled("experiment").ir, {})["train"]
    assert [training.pop("scenario") for training in trainings] == list(plans.names())
    assert all(training == trainings[0] for training in trainings)


def test_each_evaluation_is_of_its_own_training():
    runs = leaves(compiled("experiment").ir, {})
    evaluated = [evaluation["model"]["of"][0]["scenario"] for evaluation in runs["evaluate"]]
    assert evaluated == list(plans.names())


@every_pipeline
@pytest.mark.parametrize("choice", ["gpus", "other gpus", "raw resources", "other images", "registry"])
def test_other_pods_and_images_are_another_input_of_the_training_and_of_what_follows(which, choice):
    before, after = leaves(compiled(which).ir, {}), leaves(compiled(which, choice).ir, {})
    assert after["train"][0]["pods"] != before["train"][0]["pods"]
    for step in sorted(set(steps(which)) - {"prepare", "clean-up"}):
        assert json.dumps(before[step]) != json.dumps(after[step]), step


@every_pipeline
def test_every_step_is_told_the_code_that_was_compiled(which):
    for runs in leaves(compiled(which).ir, {}).values():
        assert all(inputs["code"] == images.code() for inputs in runs)


def test_the_last_step_differs_by_what_it_is_to_keep():
    kept, not_kept = (leaves(compiled("train", c).ir, {})["clean-up"] for c in ("own store", "usual"))
    assert kept[0]["keep_failed"] is True
    assert not_kept[0]["keep_failed"] is False


@every_pipeline
def test_every_component_input_is_given_by_its_task(which):
    """A pipeline whose step lacks an input compiles, and fails when it runs."""
    found = compiled(which)
    for step, task in found.tasks.items():
        wanted = found.ir["components"][f"comp-{step}"]["inputDefinitions"]
        parameters = wanted.get("parameters", {})
        needed = {name for name, p in parameters.items() if p["parameterType"] != "TASK_CONFIG"}
        assert set(task["inputs"].get("parameters", {})) == needed
        assert set(task["inputs"].get("artifacts", {})) == set(wanted.get("artifacts", {}))
        assert all(p.get("isOptional", False) == (name not in needed) for name, p in parameters.items())
        assert all(p["description"] for p in parameters.values())


# Parameters (K5, K6).


@pytest.mark.parametrize("choice", ["usual", "own store"])
@every_pipeline
def test_every_parameter_may_be_left_out_and_none_is_none_or_empty(which, choice):
    for name, parameter in compiled(which, choice).parameters.items():
        assert parameter["isOptional"] is True, name
        assert parameter["defaultValue"] not in (None, "", [], {}), name
        assert parameter["description"].strip(), name
        if parameter["parameterType"] == "NUMBER_INTEGER":
            assert parameter["defaultValue"] == int(parameter["defaultValue"])


@every_pipeline
def test_defaults_are_those_of_the_command(which):
    """So that ``fourfold run`` and a pipeline without arguments do the same."""
    options = {option.name: option.default for option in run_command.params}
    defaults = compiled(which).defaults
    shared = set(options) & set(defaults) - {"store", "scenarios"}
    assert shared == set(SAME) - {"store", "ways", "cache"}
    assert {name: defaults[name] for name in shared} == {name: options[name] for name in shared}
    inputs_of_their_own = {"store", "ways", "cache", "scenarios" if which == "experiment" else "scenario"}
    assert set(defaults) - shared == inputs_of_their_own
    usual = ways.read(defaults["ways"])
    assert {option.name for option in run_command.params if option.name in ways.FIELDS} == set(usual)
    with click.Context(run_command) as context:
        said = {name: parameter.get_default(context) for name, parameter in
                ((p.name, p) for p in run_command.params)}  # fmt: skip
    listed = {name: [part for part in str(said[name]).split(",") if part] for name in ("starts", "cut")}
    assert {
        name: bool(said[name]) if name == "debug" else {**said, **listed}[name] for name in usual
    } == usual


def test_without_arguments_the_experiment_trains_every_way_and_the_other_one_that_there_is():
    assert compiled("experiment").defaults["scenarios"] == list(plans.names())
    assert compiled("train").defaults["scenario"] in plans.names()


@every_pipeline
def test_the_store_of_a_run_that_names_none_is_kubeflows_or_was_chosen(which):
    assert compiled(which).defaults["store"] == KUBEFLOW_STORE
    assert compiled(which, "own store").defaults["store"] == "s3://models/fourfold"


@pytest.mark.parametrize("name", sorted(SAME))
def test_the_two_pipelines_say_the_same_of_a_parameter(name):
    one, other = (compiled(which).parameters[name] for which in TRAINING)
    assert one["defaultValue"] == other["defaultValue"]
    assert one["parameterType"] == other["parameterType"]
