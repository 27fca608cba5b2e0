"""What was set on a Kubeflow task goes before what the record says, in whole numbers (K5)."""

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, strategies as st

from fourfold.contract.errors import InvalidInputError
from fourfold.contract.pods import Pods, can_reach, read, with_task, write
from tests.contract.test_pods import OBJECTS, RECORDS, RESOURCES, TEXTS

FIELDS = ("resources", "node_selector", "tolerations", "affinity")
SAID = st.fixed_dictionaries(
    {
        "resources": RESOURCES,
        "node_selector": TEXTS,
        "tolerations": st.lists(OBJECTS, max_size=2),
        "affinity": OBJECTS,
    }
)
NOTHING = st.fixed_dictionaries({name: st.sampled_from([None, {}, []]) for name in FIELDS})


def as_floats(value: Any) -> Any:
    """A JSON value as Kubeflow passes it on: it knows one kind of number."""
    if isinstance(value, dict):
        return {key: as_floats(item) for key, item in value.items()}
    if isinstance(value, list):
        return [as_floats(item) for item in value]
    return float(value) if isinstance(value, int) and not isinstance(value, bool) else value


@given(RECORDS, NOTHING)
def test_a_task_on_which_nothing_was_set_changes_nothing(record, nothing):
    assert with_task(record, **nothing) == record
    assert with_task(record) == record


@given(RECORDS, SAID)
def test_what_was_set_goes_before_and_the_rest_stays(record, said):
    found = with_task(record, **said)
    for name in FIELDS:
        assert getattr(found, name) == (said[name] or getattr(record, name))
    assert replace(found, **{name: getattr(record, name) for name in FIELDS}) == record


@given(RECORDS, SAID)
def test_whole_numbers_that_come_as_floats_are_whole(record, said):
    found, wanted = with_task(record, **as_floats(said)), with_task(record, **said)
    # As text, since 30 == 30.0.
    assert write(found) == write(wanted)


@given(RECORDS, SAID)
def test_setting_it_twice_is_setting_it_once(record, said):
    once = with_task(record, **said)
    assert with_task(once, **said) == once
    assert read(write(once)) == once


def test_a_toleration_ends_after_whole_seconds():
    toleration = {"key": "gpu", "effect": "NoExecute", "tolerationSeconds": 30.0}
    found = with_task(Pods(), tolerations=[toleration]).tolerations[0]["tolerationSeconds"]
    assert (found, type(found)) == (30, int)


def test_what_is_not_whole_stays_as_it_is():
    assert with_task(Pods(), affinity={"weight": 0.5, "on": True}).affinity == {"weight": 0.5, "on": True}


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ({"resources": {"limit": {"cpu": "1"}}}, "pods.resources has requests and limits"),
        ({"resources": {"limits": "2Gi"}}, "pods.resources has requests and limits"),
        ({"node_selector": {"zone": 1.0}}, "node_selector: zone: expected str, got 1"),
        ({"tolerations": ["gpu"]}, "tolerations: 0: expected dict"),
        ({"affinity": {"weight": float("nan")}}, "NaN is not JSON"),
        ({"affinity": {"weight": float("inf")}}, "Infinity is not JSON"),
        ({"gpu": 1}, "pods has no field 'gpu'"),
    ],
)
def test_what_cannot_be_used_is_refused_by_name(said, message):
    with pytest.raises(InvalidInputError) as caught:
        with_task(Pods(), **said)
    assert message in str(caught.value)


@given(RESOURCES)
def test_resources_are_written_and_read_like_any_field(resources):
    assert read(json.dumps({"resources": resources})).resources == resources


@pytest.mark.parametrize("uri", ["s3://bucket", "S3://bucket/a", "minio://bucket/a"])
def test_a_store_on_a_network_can_be_reached(uri):
    assert can_reach(uri)


@pytest.mark.parametrize("uri", ["", "/data", "s3", "s3:/a", "gs://bucket/a", "file:///a", "./s3://a"])
def test_a_folder_of_one_machine_cannot(uri):
    assert not can_reach(uri)
