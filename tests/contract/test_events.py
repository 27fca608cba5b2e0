"""Progress events: lines that a launcher reads back, a file that a live view follows, words for people."""

import json
import subprocess
import sys

import pytest
from hypothesis import given, strategies as st

from fourfold.contract import events, exits, images
from fourfold.contract.errors import (
    ClusterError,
    ClusterUnavailableError,
    DivergedError,
    InvalidInputError,
    StoreError,
    WorkerFailedError,
)

EPOCH = {
    "scenario": "solo",
    "epoch": 2,
    "epochs": 5,
    "loss": 0.25,
    "accuracy": 0.9,
    "rows": 1000,
    "seconds": 0.5,
}
VALUES = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
)


@pytest.fixture
def events_file(tmp_path, monkeypatch):
    path = tmp_path / "events.jsonl"
    monkeypatch.setenv(events.FILE, str(path))
    return path


def lines_of(path) -> list[dict]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


@given(
    st.text(), st.dictionaries(st.text(min_size=1).filter(lambda name: name not in ("event", "kind")), VALUES)
)
def test_an_encoded_event_is_one_line_and_decodes_to_itself(kind, fields):
    line = events.encode(kind, **fields)
    assert len(line.splitlines()) == 1
    assert events.decode(line) == {"event": kind, **fields}


@pytest.mark.parametrize(
    "line",
    [
        "",
        "epoch 1/5",
        events.MARK,
        events.MARK + "{",
        events.MARK + "[1]",
        events.MARK + '{"loss": 1}',
        " " + events.MARK,
    ],
)
def test_any_other_line_is_no_event(line):
    assert events.decode(line) is None


def test_an_event_with_nan_is_not_encoded():
    with pytest.raises(ValueError, match="Out of range float"):
        events.encode("epoch", loss=float("nan"))


def test_say_appends_to_the_file_and_prints_for_people(events_file, capsys):
    events.say("said", message="one")
    events.say("epoch", **EPOCH)
    first, second = lines_of(events_file)
    assert first["message"] == "one"
    assert {name: second[name] for name in EPOCH} == EPOCH
    assert first["time"] <= second["time"]
    assert capsys.readouterr().out == "one\nsolo: epoch 2/5  loss 0.2500  accuracy 0.9000  2,000 rows/s\n"


def test_say_without_a_file_only_prints(monkeypatch, capsys, tmp_path):
    monkeypatch.delenv(events.FILE, raising=False)
    monkeypatch.chdir(tmp_path)
    events.say("said", message="only printed")
    assert capsys.readouterr().out == "only printed\n"
    assert list(tmp_path.iterdir()) == []


def test_lines_of_several_processes_do_not_mix(events_file):
    program = (
        "import sys; from fourfold.contract import events\n"
        "for n in range(100): events.say('said', message=sys.argv[1] * 20_000, n=n)"
    )
    running = [
        subprocess.Popen([sys.executable, "-c", program, letter], stdout=subprocess.DEVNULL)
        for letter in "abc"
    ]
    assert [process.wait(60) for process in running] == [0, 0, 0]
    told = [(event["message"], event["n"]) for event in lines_of(events_file)]
    assert sorted(told) == sorted((letter * 20_000, n) for letter in "abc" for n in range(100))


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        ({"event": "epoch", **EPOCH, "models": 3, "model": 1}, "solo model 1: epoch 2/5"),
        ({"event": "epoch", **EPOCH, "seconds": 0}, "0 rows/s"),
        ({"event": "started", "scenario": "solo", "worker": 0, "workers": 2}, "solo: worker 0 of 2 is ready"),
        ({"event": "step-started", "step": "train", "scenario": "solo"}, "train solo: started"),
        ({"event": "step-done", "step": "merge", "seconds": 2.25}, "merge: done in 2."),
        ({"event": "step-failed", "step": "merge", "message": "no"}, "merge failed: no"),
        ({"event": "of-a-later-version"}, "of-a-later-version"),
    ],
)
def test_events_in_words(event, expected):
    assert expected in events.describe(event)


def test_a_step_tells_its_start_and_end(events_file):
    with events.step("prepare", "", scenario="solo"):
        pass
    started, done = lines_of(events_file)
    assert (started["event"], done["event"]) == ("step-started", "step-done")
    assert (done["step"], done["scenario"]) == ("prepare", "solo")
    assert done["seconds"] >= 0


def test_an_error_for_users_ends_the_process_with_its_message(events_file, capsys):
    with pytest.raises(SystemExit) as ended, events.step("prepare", ""):
        raise InvalidInputError("rows must be at least 1, got 0")
    assert ended.value.code == exits.INVALID_INPUT
    assert lines_of(events_file)[-1]["message"] == "rows must be at least 1, got 0"
    assert "prepare failed: rows must be at least 1, got 0" in capsys.readouterr().out


def test_any_other_error_is_told_with_its_kind_and_goes_on(events_file):
    with pytest.raises(ZeroDivisionError), events.step("prepare", ""):
        raise ZeroDivisionError("by zero")
    last = lines_of(events_file)[-1]
    assert (last["event"], last["message"]) == ("step-failed", "ZeroDivisionError: by zero")
    assert last["code"] == exits.FAILED


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (InvalidInputError("no"), exits.INVALID_INPUT),
        (DivergedError("no"), exits.DIVERGED),
        (StoreError("no"), exits.STORE_FAILED),
        (ClusterUnavailableError("no"), exits.CLUSTER_FAILED),
        (ClusterError("no"), exits.FAILED),
        (WorkerFailedError("no", exits.PEER_LOST), exits.PEER_LOST),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_a_step_ends_with_the_code_of_its_error_and_tells_it(events_file, error, code):
    with pytest.raises(SystemExit) as ended, events.step("train", "", scenario="solo"):
        raise error
    last = lines_of(events_file)[-1]
    assert (ended.value.code, last["code"]) == (code, code)
    assert (last["event"], last["step"], last["scenario"]) == ("step-failed", "train", "solo")


def test_a_step_that_is_told_to_end_ends_with_that_code_and_is_not_done(events_file):
    with pytest.raises(SystemExit) as ended, events.step("train", ""):
        raise SystemExit(exits.TERMINATED)
    assert ended.value.code == exits.TERMINATED
    assert "step-done" not in [event["event"] for event in lines_of(events_file)]


def test_a_step_of_the_code_that_was_asked_for_runs(events_file):
    with events.step("train", images.code()):
        events.say("said", message="ran")
    assert [event["event"] for event in lines_of(events_file)] == ["step-started", "said", "step-done"]


def test_a_step_of_other_code_does_nothing_and_says_what_to_do(events_file):
    with pytest.raises(SystemExit) as ended, events.step("train", "0" * 64):
        pytest.fail("the step ran")
    assert ended.value.code == exits.INVALID_INPUT
    last = lines_of(events_file)[-1]
    assert last["event"] == "step-failed"
    assert "the run was started with code 000000000000" in last["message"]
