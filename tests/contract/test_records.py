"""Records and their strict JSON: what is written comes back, what is damaged is refused by name."""

import json
import math
from dataclasses import asdict, dataclass, fields, replace

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from fourfold.contract import caching, datasets, merged, merges, records, strict
from fourfold.contract.errors import DamagedObjectError
from fourfold.contract.records import Epoch, Training
from fourfold.contract.strict import from_json, to_json

KINDS = [
    datasets.Part,
    datasets.DatasetManifest,
    datasets.Split,
    datasets.Lease,
    caching.Caching,
    records.Training,
    records.Epoch,
    records.WorkerReport,
    records.Trained,
    records.ModelScore,
    records.Evaluation,
    merged.Merged,
    merged.RuleTold,
    merged.Line,
    merged.Slice,
    merged.Gate,
    merges.Merging,
    merges.MergedAtSites,
]
EPOCH = {"loss": 0.5, "accuracy": 0.9, "seconds": 1.5, "rows": 2000}
st.register_type_strategy(float, st.floats(allow_nan=False, allow_infinity=False))


def reading(kind: type, **changes: object) -> str:
    """The error that reading an epoch's JSON with these changes raises."""
    with pytest.raises(DamagedObjectError) as refused:
        from_json(kind, json.dumps({**EPOCH, **changes}), "runs/epoch.json")
    return str(refused.value)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@settings(max_examples=20, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(data=st.data())
def test_what_is_written_is_read_back_equal(kind, data):
    record = data.draw(st.from_type(kind))
    assert from_json(kind, to_json(record)) == record


def test_the_json_has_the_fields_in_their_order_and_ends_its_line():
    text = to_json(Epoch(**EPOCH)).decode()
    assert list(json.loads(text)) == [field.name for field in fields(Epoch)]
    assert text.endswith("}\n")


@pytest.mark.parametrize("loss", [math.nan, math.inf, -math.inf])
def test_a_number_that_is_not_finite_is_not_written(loss):
    with pytest.raises(ValueError, match="Out of range float"):
        to_json(replace(Epoch(**EPOCH), loss=loss))


@pytest.mark.parametrize("constant", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_a_number_that_is_not_finite_is_not_read(constant):
    text = json.dumps(EPOCH).replace("0.5", constant)
    with pytest.raises(DamagedObjectError, match="is not a Epoch"):
        from_json(Epoch, text)


def test_nan_is_no_json_even_where_nobody_looks():
    with pytest.raises(DamagedObjectError, match="NaN is not JSON"):
        from_json(Epoch, json.dumps({**EPOCH, "of a later version": math.nan}))


def test_whole_floats_are_ints_and_ints_are_floats():
    epoch = from_json(Epoch, json.dumps({**EPOCH, "loss": 2, "rows": 2000.0}))
    assert epoch == replace(Epoch(**EPOCH), loss=2.0, rows=2000)
    assert isinstance(epoch.loss, float)
    assert isinstance(epoch.rows, int)


@pytest.mark.parametrize(
    ("field", "value", "expected"),
    [
        ("rows", 2.5, "rows: expected int, got 2.5"),
        ("rows", "2000", "rows: expected int, got '2000'"),
        ("rows", True, "rows: expected int, got True"),
        ("loss", True, "loss: expected float, got True"),
        ("loss", None, "loss: expected float, got None"),
        ("loss", [], "loss: expected float, got []"),
        ("loss", 10**400, "loss: int too large"),
    ],
)
def test_a_wrong_type_is_named_with_its_field_and_object(field, value, expected):
    message = reading(Epoch, **{field: value})
    assert expected in message
    assert message.startswith("runs/epoch.json is not a Epoch")


def test_a_wrong_type_deep_inside_is_named_by_its_path():
    report = {"worker": 0, "process": "1", "model": 0, "rows": 5, "digests": [], "epochs": [EPOCH, {**EPOCH}]}
    report["epochs"][1]["rows"] = None
    with pytest.raises(DamagedObjectError, match="epochs: 1: rows: expected int, got None"):
        from_json(records.WorkerReport, json.dumps(report))


def test_a_missing_field_is_named_and_one_with_a_default_is_not_missed():
    with pytest.raises(DamagedObjectError, match="'rows'"):
        from_json(Epoch, json.dumps({k: v for k, v in EPOCH.items() if k != "rows"}))
    least = {"scenario": "solo", "workers": 2, "store": "s", "fingerprint": "f", "split": "", "output": "o"}
    assert from_json(Training, json.dumps(least)) == Training(**least)


def test_a_field_of_a_later_version_is_ignored():
    assert from_json(Epoch, json.dumps({**EPOCH, "joules": {"cpu": 1}})) == Epoch(**EPOCH)


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "3", '"x"', b"\xff", '{"loss": 1} {}'])
def test_what_is_no_json_object_is_refused(text):
    with pytest.raises(DamagedObjectError, match="thing is not a Epoch"):
        from_json(Epoch, text, "thing")


@pytest.mark.parametrize(
    ("changes", "expected"),
    [({"parts": []}, "parts: expected dict"), ({"shape": {"0": 1}}, "shape: expected list")],
)
def test_a_list_is_no_dict_and_a_dict_no_list(changes, expected):
    whole = datasets.DatasetManifest(2, "f", "s", "", "", "float32", [1], ["a"], 100, {})
    with pytest.raises(DamagedObjectError, match=expected):
        from_json(datasets.DatasetManifest, json.dumps({**asdict(whole), **changes}))


def test_an_optional_number_may_be_null_and_a_flag_must_be_a_flag():
    @dataclass(frozen=True)
    class Probe:
        loss: float | None
        done: bool

    assert from_json(Probe, '{"loss": null, "done": true}') == Probe(None, True)
    assert from_json(Probe, '{"loss": 1, "done": false}') == Probe(1.0, False)
    with pytest.raises(DamagedObjectError, match="done: expected bool, got 1"):
        from_json(Probe, '{"loss": 1, "done": 1}')


def test_finite_gives_none_for_what_json_cannot_say():
    assert [strict.finite(value) for value in (1, 0.5, math.nan, math.inf)] == [1.0, 0.5, None, None]
