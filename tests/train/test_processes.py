"""Workers that end by what may not come again are started again, a few times; others are not."""

import contextlib
import json
import os
import socket
import tempfile
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from fourfold.contract import events, exits
from fourfold.contract.errors import WorkerFailedError
from fourfold.contract.records import Training
from fourfold.train import processes

TRAINING = Training("solo", 2, "store", "f", "s", "output")
LOST = None
"""An end without a code: the workers' parent was killed."""


@contextlib.contextmanager
def ends(*codes):
    """A server whose workers end with these codes, one a start; gives the requests that it was sent.

    What it is asked for after these ends well.
    """
    requests, left = [], list(codes)
    with (
        tempfile.TemporaryDirectory(prefix="fourfold-") as folder,
        socket.socket(socket.AF_UNIX) as listening,
    ):
        path = str(Path(folder) / "workers")
        listening.bind(path)
        listening.listen()

        def serve():
            while True:
                connection, _ = listening.accept()
                with connection, connection.makefile("rw", encoding="utf-8") as file:
                    if (request := file.readline()) == "":
                        return
                    requests.append(json.loads(request))
                    code = left.pop(0) if left else exits.OK
                    if code != exits.OK:
                        said = f"worker {len(requests)} ended by {code}"
                        print(events.encode("worker-failed", scenario="solo", message=said), file=file)
                    if code is not LOST:
                        print(events.encode("exit", code=code), file=file)

        thread = threading.Thread(target=serve)
        thread.start()
        before = os.environ.get(processes.SERVER)
        os.environ[processes.SERVER] = path
        try:
            yield requests
        finally:
            with socket.socket(socket.AF_UNIX) as last:
                last.connect(path)
            thread.join()
            del os.environ[processes.SERVER]
            if before is not None:
                os.environ[processes.SERVER] = before


def run(**how) -> tuple[int, Any]:
    """Runs; gives how often the output was cleaned, and the error if it ended by one."""
    cleaned = []
    try:
        processes.run(TRAINING, lambda: cleaned.append(1), **how)
    except WorkerFailedError as error:
        return len(cleaned), error
    return len(cleaned), None


@given(st.integers(1, 255))
@settings(max_examples=60)
def test_what_is_worth_a_restart_is_started_three_times_and_all_else_once(code):
    with ends(*[code] * 9) as requests:
        cleaned, error = run()
    assert error is not None
    assert error.exit_code == code
    assert len(requests) == (processes.TRIES if exits.is_retryable(code) else 1)
    # The last failure is the one that is told; what the first try found is not cleaned away from the others.
    assert str(error) == f"worker {len(requests)} ended by {code}"
    assert cleaned == 1


@pytest.mark.parametrize("code", [exits.TERMINATED, exits.INTERRUPTED, exits.INVALID_INPUT, exits.DIVERGED])
def test_what_somebody_ended_or_would_come_again_is_started_once(code):
    with ends(code) as requests:
        assert run()[1].exit_code == code
    assert len(requests) == 1


def test_the_same_training_is_started_again_and_the_cause_is_told_with_the_tries_that_are_left(capsys):
    with ends(128 + 9, exits.STORE_FAILED) as requests:
        assert run() == (1, None)
    assert len(requests) == 3
    assert requests[0] == requests[1] == requests[2]
    assert capsys.readouterr().out.splitlines() == [
        "worker 1 ended by 137",
        "Starting again (2 more tries after this).",
        "worker 2 ended by 140",
        "Starting again (1 more try after this).",
    ]


def test_the_last_cause_is_the_one_that_is_raised():
    with ends(exits.PEER_LOST, exits.DIVERGED) as requests:
        _, error = run()
    assert len(requests) == 2
    assert str(error) == "worker 2 ended by 3"
    assert error.exit_code == exits.DIVERGED


def test_workers_whose_parent_is_lost_are_started_again():
    with ends(LOST, LOST) as requests:
        assert run() == (1, None)
    assert len(requests) == 3


@pytest.mark.parametrize("tries", [1, 2])
def test_there_are_as_many_starts_as_asked_for(tries):
    with ends(*[exits.PEER_LOST] * 9) as requests:
        assert run(tries=tries)[1].exit_code == exits.PEER_LOST
    assert len(requests) == tries
