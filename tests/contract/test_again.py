"""A step tries again inside Kubeflow what may go away by itself, and nothing else."""

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from fourfold.contract import again as module, exits
from fourfold.contract.again import PAUSES, POD, again
from fourfold.contract.errors import (
    ClusterError,
    ClusterUnavailableError,
    DamagedObjectError,
    DivergedError,
    FourfoldError,
    InvalidInputError,
    MissingObjectError,
    PeerLostError,
    StoreDeniedError,
    StoreError,
    WorkerFailedError,
)

PASSING = [
    StoreError("no answer"),
    ClusterUnavailableError("no answer"),
    # The pods' own store did not answer for longer than the operator tries: their launcher makes a new job.
    WorkerFailedError("a worker failed", exits.STORE_FAILED),
    WorkerFailedError("a worker failed", exits.CLUSTER_FAILED),
]
LASTING = [
    InvalidInputError("bad"),
    StoreDeniedError("denied"),
    MissingObjectError("missing"),
    DamagedObjectError("damaged"),
    DivergedError("diverged"),
    ClusterError("not allowed"),
    FourfoldError("a bug"),
    PeerLostError("a peer is gone"),
    WorkerFailedError("a worker failed", exits.INVALID_INPUT),
    WorkerFailedError("a worker failed", exits.DIVERGED),
    # Tried as often as is worth it by the launcher.
    WorkerFailedError("a worker failed", exits.PEER_LOST),
    WorkerFailedError("a worker failed", exits.TERMINATED),
    ValueError("a bug"),
    SystemExit(exits.STORE_FAILED),
    KeyboardInterrupt(),
]


def name(error: object) -> str:
    return f"{type(error).__name__}-{getattr(error, 'exit_code', '')}"


class Body:
    """Fails by these errors, one after the other, then gives a result."""

    def __init__(self, *errors: BaseException):
        self.errors, self.tries, self.slept = list(errors), 0, []

    def __call__(self) -> str:
        self.tries += 1
        if self.errors:
            raise self.errors.pop(0)
        return "done"

    def run(self) -> str:
        return again(self, self.slept.append)


@pytest.fixture
def inside(monkeypatch):
    monkeypatch.setenv(POD, "a-step-of-a-run")


@pytest.fixture
def outside(monkeypatch):
    monkeypatch.delenv(POD, raising=False)


@pytest.mark.parametrize("error", [*PASSING, *LASTING], ids=name)
def test_outside_kubeflow_there_is_one_try(outside, error):
    body = Body(error)
    with pytest.raises(type(error)) as caught:
        body.run()
    assert caught.value is error
    assert (body.tries, body.slept) == (1, [])


@pytest.mark.parametrize("error", PASSING, ids=name)
def test_inside_there_are_three_with_a_pause_before_each_other_one(inside, error):
    body = Body(error, error, error, error)
    with pytest.raises(type(error)) as caught:
        body.run()
    assert caught.value is error
    assert (body.tries, body.slept) == (3, list(PAUSES))


@pytest.mark.parametrize("error", LASTING, ids=name)
def test_what_would_fail_again_is_tried_once(inside, error):
    body = Body(error)
    with pytest.raises(type(error)) as caught:
        body.run()
    assert caught.value is error
    assert (body.tries, body.slept) == (1, [])


@pytest.mark.parametrize("failures", [0, 1, 2])
def test_what_answers_in_the_end_has_its_result(inside, failures, capsys):
    body = Body(*PASSING[:failures])
    assert body.run() == "done"
    assert (body.tries, body.slept) == (failures + 1, list(PAUSES[:failures]))
    assert capsys.readouterr().out.count("no answer; trying again in") == failures


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.sampled_from([*PASSING, *LASTING]), max_size=5))
def test_it_ends_with_the_first_error_that_lasts_else_the_third_else_the_result(inside, errors):
    body = Body(*errors)
    first = next((place for place, error in enumerate(errors[:2]) if error in LASTING), 2)
    expected = errors[first] if first < len(errors) else None
    if expected is None:
        assert body.run() == "done"
        assert body.tries == len(errors) + 1
    else:
        with pytest.raises(type(expected)) as caught:
            body.run()
        assert caught.value is expected
        assert body.tries == first + 1
    assert body.slept == list(PAUSES[: body.tries - 1])


def test_it_says_what_it_waits_for_and_how_long(inside, capsys):
    Body(StoreError("the store at s3.lab does not answer")).run()
    said = capsys.readouterr().out
    assert said == "the store at s3.lab does not answer; trying again in 10 s\n"


def test_pauses_grow_and_are_shorter_than_a_person_waits():
    assert list(PAUSES) == sorted(PAUSES)
    assert sum(PAUSES) < 300


def test_what_is_worth_another_try_is_worth_a_restart_of_a_pod():
    assert all(code >= exits.FIRST_RETRYABLE for code in module.WORTH_IT)
