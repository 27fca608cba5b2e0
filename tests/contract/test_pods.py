"""What pods are given: read from JSON as people write it, refused by name before a cluster sees it."""

import json
from dataclasses import asdict, fields, replace

import pytest
from hypothesis import given, strategies as st

from fourfold.contract import pods
from fourfold.contract.errors import InvalidInputError
from fourfold.contract.pods import Pods, read, write

UNITS = ["", "k", "M", "G", "T", "Ki", "Mi", "Gi", "Ti"]
QUANTITIES = st.builds("{}{}".format, st.integers(1, 10**6), st.sampled_from(UNITS))
CPUS = st.builds("{}{}".format, st.integers(1, 10**6), st.sampled_from(["", "m"]))
NAMES = st.from_regex(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", fullmatch=True)
SECONDS = st.integers(1, pods.SECONDS_OF_A_YEAR)
TEXTS = st.dictionaries(st.text(), st.text(), max_size=3)
KEYS = r"[-._a-zA-Z0-9]{1,30}"
NUMBERS = st.integers(-(2**53), 2**53) | st.floats(-1e6, 1e6).filter(lambda x: not x.is_integer())
JSON = st.recursive(
    st.text(max_size=5) | st.booleans() | st.none() | NUMBERS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.dictionaries(st.text(max_size=5), JSON, max_size=3)
KINDS = st.dictionaries(st.sampled_from(["nvidia.com/gpu", "cpu", "memory"]), QUANTITIES, max_size=3)
RESOURCES = st.dictionaries(st.sampled_from(["requests", "limits"]), KINDS, max_size=2)
RECORDS = st.builds(
    Pods,
    namespace=NAMES | st.just(""),
    image=st.from_regex(r"[a-z0-9./]{1,30}:v[0-9.]{1,20}", fullmatch=True),
    service_account=NAMES,
    config=NAMES | st.just(""),
    secret=NAMES | st.just(""),
    access_key=st.from_regex(KEYS, fullmatch=True),
    secret_key=st.from_regex(KEYS, fullmatch=True),
    endpoint=st.text(),
    cpu=CPUS,
    memory=QUANTITIES,
    scratch=QUANTITIES,
    gpus=st.integers(0, 64),
    gpu_resource=st.sampled_from(["nvidia.com/gpu", "amd.com/gpu"]),
    node_selector=TEXTS,
    tolerations=st.lists(TEXTS, max_size=3),
    affinity=OBJECTS,
    resources=RESOURCES,
    start_seconds=SECONDS,
    deadline_seconds=SECONDS,
    ttl_seconds=SECONDS,
)


def refused(*texts: str) -> str:
    """What is said to a user who writes this."""
    with pytest.raises(InvalidInputError) as caught:
        read(*texts)
    return str(caught.value)


@given(RECORDS)
def test_what_is_written_is_read_back_equal(record):
    assert read(write(record)) == record


@given(RECORDS)
def test_what_is_written_is_what_differs_from_the_defaults(record):
    usual = asdict(Pods())
    assert json.loads(write(record)) == {k: v for k, v in asdict(record).items() if v != usual[k]}


@given(RECORDS, RECORDS)
def test_a_later_text_goes_before_an_earlier_one_field_by_field(first, second):
    said = {**json.loads(write(first)), **json.loads(write(second))}
    assert read(write(first), write(second)) == replace(Pods(), **said)


@pytest.mark.parametrize("texts", [(), ("",), ("{}",), ("{}", ""), (write(Pods()),)])
def test_what_nobody_says_has_its_default(texts):
    assert read(*texts) == Pods()


def test_a_later_text_can_say_the_default_again():
    assert read('{"gpus": 2, "memory": "8Gi"}', '{"gpus": 0}') == Pods(memory="8Gi")


def test_the_defaults_need_no_gpu_and_pass_their_own_check():
    pods.check(Pods())
    assert Pods().gpus == 0


@pytest.mark.parametrize(
    ("field", "near"),
    [
        ("memroy", "memory"),
        ("gpu", "gpus"),
        ("node-selector", "node_selector"),
        ("ttl_second", "ttl_seconds"),
    ],
)
def test_an_unknown_field_is_refused_with_the_nearest_and_all_names(field, near):
    said = refused(json.dumps({field: 1}))
    assert f"pods has no field {field!r} (did you mean {near!r}?)" in said
    for known in fields(Pods):
        assert known.name in said


def test_a_field_like_none_gets_no_guess():
    said = refused('{"xyzzy": 1}')
    assert "pods has no field 'xyzzy'; it has namespace" in said
    assert "did you mean" not in said


def test_an_unknown_field_of_an_earlier_text_is_refused_too():
    assert "pods has no field 'memroy'" in refused('{"memroy": "4Gi"}', '{"memory": "4Gi"}')


@pytest.mark.parametrize("field", ["gpus", "start_seconds", "deadline_seconds", "ttl_seconds"])
def test_whole_floats_become_ints(field):
    """KFP hands numbers inside JSON on as floats (K5)."""
    found = getattr(read(f'{{"{field}": 1.0}}'), field)
    assert (found, type(found)) == (1, int)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"gpus": 2.5}', "gpus: expected int, got 2.5"),
        ('{"ttl_seconds": 0.5}', "ttl_seconds: expected int, got 0.5"),
        ('{"gpus": "1"}', "gpus: expected int, got '1'"),
        ('{"gpus": true}', "gpus: expected int, got True"),
        ('{"gpus": null}', "gpus: expected int, got None"),
        ('{"cpu": 4}', "cpu: expected str, got 4"),
        ('{"image": ["a:1"]}', "image: expected str, got ['a:1']"),
        ('{"node_selector": ["a"]}', "node_selector: expected dict"),
        ('{"node_selector": {"a": true}}', "node_selector: a: expected str, got True"),
        ('{"tolerations": {"key": "a"}}', "tolerations: expected list"),
        ('{"tolerations": ["a"]}', "tolerations: 0: expected dict"),
        ('{"affinity": ["a"]}', "affinity: expected dict"),
        ('{"resources": "2Gi"}', "resources: expected dict"),
        ('{"affinity": {"a": NaN}}', "NaN is not JSON"),
        ('{"gpus": NaN}', "NaN is not JSON"),
        ('{"deadline_seconds": Infinity}', "Infinity is not JSON"),
        ('{"deadline_seconds": 1e999}', "Infinity is not JSON"),
    ],
)
def test_a_wrong_type_is_named_with_its_field(text, said):
    assert f"pods cannot be used: {said}" in refused(text)


def test_a_toleration_may_end_after_seconds():
    toleration = {"key": "gpu", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
    assert read(json.dumps({"tolerations": [toleration]})).tolerations == [toleration]


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("[]", "it is a list"),
        ("null", "it is a NoneType"),
        ("3", "it is a int"),
        ('"here"', "it is a str"),
        ("gpus=1", "Expecting value"),
        ("{gpus: 1}", "Expecting property name"),
        ('{"gpus": 1} {}', "Extra data"),
    ],
)
def test_what_is_no_json_object_is_refused_with_an_example(text, what):
    said = refused("{}", text)
    assert what in said
    assert 'pods is not a JSON object such as {"gpus": 1, "memory": "4Gi"}' in said
    assert f"got {text!r}" in said


def test_a_long_text_is_not_repeated_whole():
    assert len(refused("x" * 10_000)) < 400


@pytest.mark.parametrize("field", ["cpu", "memory", "scratch"])
@pytest.mark.parametrize(
    "value",
    ["", "2 Gi", "2gb", "2GiB", "Gi", "-1", "+1", ".5", "1.", "1,5", "2Gi\n", "1e", "half", "0x10", "2KI"],
)
def test_a_bad_quantity_is_refused_with_field_value_and_examples(field, value):
    said = refused(json.dumps({field: value}))
    assert f"pods.{field} must be a quantity as Kubernetes writes it, such as 500m, 4 or 2Gi" in said
    assert f"got {value!r}" in said


@pytest.mark.parametrize("value", ["1", "0.5", "500m", "16"])
def test_a_cpu_is_written_as_kubernetes_writes_it(value):
    assert read(json.dumps({"cpu": value})).cpu == value


@pytest.mark.parametrize(
    "value", ["2Gi", "512Mi", "1.5Gi", "4G", "2000000000", "900000Ki", "1T", "1Ti", "64k", "8M"]
)
def test_memory_is_written_as_kubernetes_writes_it(value):
    assert read(json.dumps({"memory": value, "scratch": value})).memory == value


@pytest.mark.parametrize("field", ["start_seconds", "deadline_seconds", "ttl_seconds"])
@pytest.mark.parametrize("value", [0, -1, pods.SECONDS_OF_A_YEAR + 1, 10**30])
def test_time_limits_are_from_a_second_to_a_year(field, value):
    assert f"pods.{field} must be from 1 to 31,622,400, got {value}" in refused(json.dumps({field: value}))


@pytest.mark.parametrize("field", ["start_seconds", "deadline_seconds", "ttl_seconds"])
@pytest.mark.parametrize("value", [1, pods.SECONDS_OF_A_YEAR])
def test_the_ends_of_the_range_are_allowed(field, value):
    assert getattr(read(json.dumps({field: value})), field) == value


@pytest.mark.parametrize("value", [-1, -1.0])
def test_fewer_gpus_than_none_are_refused(value):
    assert "pods.gpus must be 0 or more, got -1" in refused(json.dumps({"gpus": value}))


@pytest.mark.parametrize(
    "value",
    ["", " ", "a worker:1", "worker:1\n", "\tworker:1", "worker", "lab/worker", "worker:latest",
     "host:5000/worker", "worker@sha256:12"],
)  # fmt: skip
def test_an_image_whose_content_may_change_or_that_is_none_is_refused(value):
    said = refused(json.dumps({"image": value}))
    assert "with a tag that stays what it is" in said
    assert f"got {value!r}" in said


@pytest.mark.parametrize("value", ["worker:1", "host:5000/lab/worker:v1.2-a", f"worker@sha256:{'0a' * 32}"])
def test_an_image_with_a_tag_or_a_digest_is_taken(value):
    assert read(json.dumps({"image": value})).image == value


@pytest.mark.parametrize(
    ("field", "value"),
    [("memory", "512m"), ("memory", "0"), ("cpu", "0"), ("cpu", "1Gi"), ("memory", "\u0663Gi"),
     ("secret_key", ""), ("access_key", "a b"), ("secret", "a..b")],
)  # fmt: skip
def test_what_kubernetes_would_take_for_something_else_is_refused(field, value):
    assert f"pods.{field} must be" in refused(json.dumps({field: value}))


@pytest.mark.parametrize("field", ["namespace", "service_account", "config", "secret"])
@pytest.mark.parametrize("value", ["Team_A", "-a", "a-", "a/b", "a b", "ä", "a\n", "a" * 254])
def test_what_cannot_name_an_object_is_refused(field, value):
    said = refused(json.dumps({field: value}))
    assert f"pods.{field} must be the name of a Kubernetes object" in said
    assert f"got {value!r}" in said


@pytest.mark.parametrize("field", ["namespace", "config", "secret"])
def test_what_need_not_be_named_may_be_empty(field):
    assert getattr(read(json.dumps({field: ""})), field) == ""


def test_an_error_does_not_say_the_values_of_other_fields():
    said = refused(json.dumps({"endpoint": "http://marker.example", "gpus": -1}))
    assert "marker" not in said
