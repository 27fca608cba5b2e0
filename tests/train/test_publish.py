"""Where the pods write to, and what the task that launches them gives them."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
from hypothesis import given, strategies as st
from kfp import dsl

from fourfold.contract import events, pods
from fourfold.contract.pods import Pods
from fourfold.train import publish
from fourfold.train.publish import of_task, output_in_store, place_of_output
from tests.train.conftest import TRAINING

IN_KUBEFLOW = "s3://bucket/v2/artifacts/fourfold/run-1/train/model"
ELSEWHERE = ["s3://other/run-1/model", "gs://bucket/run-1/model", "/gcs/bucket/model", "", "model"]
BUCKETS = st.from_regex(r"[a-z0-9][a-z0-9.-]{1,20}[a-z0-9]", fullmatch=True)
KEYS = st.from_regex(r"(/[a-zA-Z0-9._-]{1,8}){0,4}", fullmatch=True)


def test_pods_write_straight_to_the_steps_output_where_it_is_in_the_bucket_of_the_store():
    assert place_of_output(TRAINING, IN_KUBEFLOW) == IN_KUBEFLOW


@pytest.mark.parametrize("uri", ELSEWHERE)
def test_else_they_write_into_the_store(uri):
    place = place_of_output(TRAINING, uri)
    assert place == output_in_store(TRAINING, uri)
    assert place.startswith(f"{TRAINING.store}/")
    assert pods.can_reach(place)


@given(BUCKETS, BUCKETS, KEYS, KEYS, st.sampled_from(["s3", "S3", "minio"]))
def test_a_bucket_is_the_same_or_it_is_not(one, other, store, key, scheme):
    training = replace(TRAINING, store=f"s3://{one}{store}")
    uri = f"{scheme}://{other}{key}"
    assert (place_of_output(training, uri) == uri) == (one == other)


@pytest.mark.parametrize("uri", ["s3://bucket-2/model", "s3://bucke/model", "s3:///bucket/model"])
def test_a_bucket_with_a_similar_name_is_another(uri):
    assert place_of_output(TRAINING, uri) != uri


@pytest.mark.parametrize("store", ["/data", "file:///bucket", "bucket"])
def test_a_store_that_is_a_folder_has_no_bucket(store):
    assert place_of_output(replace(TRAINING, store=store), "").startswith(store)
    assert place_of_output(replace(TRAINING, store=store), IN_KUBEFLOW) != IN_KUBEFLOW


def test_a_launcher_that_is_started_again_finds_the_place_of_its_run_and_training(monkeypatch):
    monkeypatch.setenv(events.RUN, "nightly")
    place = output_in_store(TRAINING)
    assert output_in_store(replace(TRAINING, output="/another/folder")) == place
    for other in ({"scenario": "sequential"}, {"seed": 1}, {"epochs": 9}, {"code": "c"}, {"split": "b"}):
        assert output_in_store(replace(TRAINING, **other)) != place
    monkeypatch.setenv(events.RUN, "other")
    assert output_in_store(TRAINING) != place


def test_two_runs_of_kubeflow_write_to_two_places(monkeypatch):
    monkeypatch.delenv(events.RUN, raising=False)
    one, other = (
        place_of_output(TRAINING, f"s3://mlpipeline/v2/artifacts/fourfold/{run}/train/model")
        for run in ("run-1", "run-2")
    )
    assert one != other


# What was set on the task.


def test_outside_kubeflow_there_is_no_task():
    record = Pods(memory="8Gi", gpus=2)
    assert of_task(record, None) is record


def test_a_task_on_which_nothing_was_set_changes_nothing():
    record = Pods(memory="8Gi", node_selector={"zone": "a"})
    assert of_task(record, dsl.TaskConfig()) == record


def test_what_was_set_on_the_task_goes_before_what_the_record_says():
    record = Pods(memory="8Gi", gpus=2, node_selector={"zone": "a"}, tolerations=[{"key": "a"}])
    found = of_task(record, dsl.TaskConfig(
        resources={"limits": {"memory": "9Gi", "nvidia.com/gpu": "1"}},
        node_selector={"zone": "b"},
        tolerations=[{"key": "b", "tolerationSeconds": 30.0}],
        affinity={"podAffinity": {"weight": 1.0}},
    ))  # fmt: skip
    assert found == replace(
        record,
        resources={"limits": {"memory": "9Gi", "nvidia.com/gpu": "1"}},
        node_selector={"zone": "b"},
        tolerations=[{"key": "b", "tolerationSeconds": 30}],
        affinity={"podAffinity": {"weight": 1}},
    )
    assert isinstance(found.tolerations[0]["tolerationSeconds"], int)


def test_a_task_names_all_that_the_component_passes_on():
    """So that nothing that Kubeflow takes from the launcher's own pod gets lost."""
    from fourfold.train.component import train

    passthroughs = train.component_spec.task_config_passthroughs  # pyright: ignore
    passed = [p.field.name for p in passthroughs if not p.apply_to_task]
    fields = {name.removeprefix("KUBERNETES_").lower() for name in passed}
    given_ = SimpleNamespace(
        resources={"limits": {"cpu": "1"}}, node_selector={"a": "b"}, tolerations=[{"key": "a"}],
        affinity={"a": {}},
    )  # fmt: skip
    changed = {k for k, v in vars(of_task(Pods(), given_)).items() if v != getattr(Pods(), k)}
    assert changed == fields
    assert set(vars(given_)) == fields
    assert publish.of_task is of_task
