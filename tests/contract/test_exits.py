"""Exit codes: what ends with which, and that the operator takes it as permanent or as worth another try."""

import signal

import pytest
from hypothesis import given, strategies as st

from fourfold.contract import errors, exits

ALL = [
    kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, errors.FourfoldError)
]


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        (errors.FourfoldError, 1),
        (errors.ClusterError, 1),
        (errors.WorkerFailedError, 1),
        (errors.InvalidInputError, 2),
        (errors.MissingObjectError, 2),
        (errors.DamagedObjectError, 2),
        (errors.StoreDeniedError, 2),
        (errors.DivergedError, 3),
        (errors.StoreError, 140),
        (errors.ClusterUnavailableError, 141),
        (errors.PeerLostError, 150),
    ],
)
def test_an_error_ends_with_its_code(kind, code):
    assert exits.of(kind("no")) == code


@pytest.mark.parametrize(("kind", "code"), exits.CODES, ids=lambda value: getattr(value, "__name__", ""))
def test_no_row_of_the_table_is_hidden_by_one_above(kind, code):
    assert exits.of(kind("no")) == code


@pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.__name__)
def test_an_error_of_a_later_version_ends_with_the_code_of_its_base(kind):
    later = type("LaterError", (kind,), {})
    assert exits.of(later("no")) == exits.of(kind("no"))


@given(st.integers(1, 255))
def test_a_workers_code_is_passed_on(code):
    assert exits.of(errors.WorkerFailedError("no", code)) == code


@pytest.mark.parametrize("code", [exits.FAILED, exits.INVALID_INPUT, exits.DIVERGED])
def test_what_would_fail_again_is_permanent_to_the_operator(code):
    assert 1 <= code < 128


@pytest.mark.parametrize(
    "code",
    [exits.STORE_FAILED, exits.CLUSTER_FAILED, exits.PEER_LOST, exits.PEER_MISSING, exits.PORT_IN_USE]
    + [exits.INTERRUPTED, exits.TERMINATED],
)
def test_what_may_help_to_try_again_is_retryable_to_the_operator(code):
    assert 128 <= code <= 255


def test_what_is_started_again_is_what_the_operator_restarts_but_for_what_somebody_ended():
    again = {code for code in range(256) if exits.is_retryable(code)}
    assert again == set(range(128, 256)) - {128 + signal.SIGINT, 128 + signal.SIGTERM}


@pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.__name__)
def test_an_error_is_worth_another_start_where_the_store_a_peer_or_the_cluster_may_come_back(kind):
    comes_back = (errors.StoreError, errors.ClusterUnavailableError, errors.PeerLostError)
    stays = (errors.MissingObjectError, errors.DamagedObjectError, errors.StoreDeniedError)
    expected = issubclass(kind, comes_back) and not issubclass(kind, stays)
    assert exits.is_retryable(exits.of(kind("no"))) == expected


def test_what_a_signal_ends_has_the_shells_code():
    assert exits.INTERRUPTED == 128 + signal.SIGINT
    assert exits.TERMINATED == 128 + signal.SIGTERM


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (0, "exit code 0: done"),
        (1, "exit code 1: an error of the program"),
        (2, "exit code 2: bad input"),
        (3, "exit code 3: diverged"),
        (7, "exit code 7"),
        (130, "exit code 130: interrupted"),
        (137, "exit code 137"),
        (140, "exit code 140: the store did not answer"),
        (141, "exit code 141: the Kubernetes API did not answer"),
        (143, "exit code 143: terminated"),
        (150, "exit code 150: a peer was lost"),
        (151, "exit code 151: a peer did not come in time"),
        (152, "exit code 152: its port was in use"),
        (-9, "killed by SIGKILL"),
        (-15, "killed by SIGTERM"),
        (-100, "killed by signal 100"),
    ],
)
def test_a_code_in_words(code, said):
    assert exits.describe(code) == said


def test_every_code_that_is_chosen_has_words():
    chosen = {
        value for name, value in vars(exits).items() if isinstance(value, int) and name != "FIRST_RETRYABLE"
    }
    assert {code for _, code in exits.CODES} <= chosen
    assert [code for code in sorted(chosen) if ": " not in exits.describe(code)] == []
    assert len({exits.describe(code) for code in chosen}) == len(chosen)
