"""Where the time of a whole ``fourfold run`` goes.

Run by hand: ``python tests/benchmarks/run_time.py [options of run]``.

Prints the wall time of the command with its parts, and the goal: training + 6 s a scenario + 15 s.
"""

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path


def main(arguments):
    """Runs the command once, in a new folder, with a new store."""
    command = [str(Path(sys.executable).parent / "fourfold"), "run", *arguments]
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out"
        began, started = time.time(), time.monotonic()
        subprocess.run(
            [*command, "--out", str(out), "--store", f"{folder}/store"], check=True, stdout=subprocess.DEVNULL
        )
        wall = time.monotonic() - started
        events = [json.loads(line) for line in (out / "events.jsonl").read_text().splitlines()]
        scenarios = json.loads((out / "results.json").read_text())["scenarios"]
    training = {name: sum(epoch["seconds"] for epoch in s["epochs"]) for name, s in scenarios.items()}
    ended, parts = began, []
    for event in events:
        if event["event"] in ("step-started", "step-done"):
            name = " ".join(event[key] for key in ("step", "scenario") if key in event)
            parts.append(
                (f"before {name}" if event["event"] == "step-started" else name, event["time"] - ended)
            )
            ended = event["time"]
    parts.append(("after the last step", began + wall - ended))
    for name, seconds in parts:
        print(f"  {seconds:6.2f} s  {name}")
    goal = sum(training.values()) + 6 * len(training) + 15
    print(f"wall {wall:.2f} s; training alone {sum(training.values()):.2f} s in {len(training)} scenarios")
    print(f"wall against the goal of {goal:.2f} s (training + 6 s a scenario + 15 s): {wall / goal:.3f}")


if __name__ == "__main__":
    main(sys.argv[1:])
