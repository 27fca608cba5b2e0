"""The step on more than one replica, where a training of the default network does not reach."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np


def run(which):
    program = str(Path(__file__).with_name("replicas_program.py"))
    done = subprocess.run([sys.executable, program, which], capture_output=True, text=True, timeout=180)
    lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    assert lines, done.stdout + done.stderr
    return json.loads(lines[0].removeprefix("RESULT "))


def test_two_devices_of_a_worker_take_the_step_of_one():
    result = run("one")
    for two, one in zip(*result["weights"], strict=True):
        np.testing.assert_allclose(two, one, rtol=0, atol=1e-6)
    np.testing.assert_allclose(*result["losses"], rtol=1e-6)


def test_batchnorm_statistics_are_averaged_by_rows_and_the_copies_are_then_equal():
    first, second = run("two")
    assert first["loss"] == second["loss"]
    assert first["sum"] == second["sum"] == 3.0
    moving = slice(4, 6)
    trained = [0, 1, 2, 3, 6, 7]
    assert first["before"][4] != second["before"][4]
    assert [first["before"][i] for i in trained] == [second["before"][i] for i in trained]
    assert first["after"] == second["after"]
    for a, b, mean in zip(
        first["before"][moving], second["before"][moving], first["after"][moving], strict=True
    ):
        np.testing.assert_allclose(mean, 0.7 * np.array(a) + 0.3 * np.array(b), rtol=1e-6)
