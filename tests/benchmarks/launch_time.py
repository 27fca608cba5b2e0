"""How promptly the launcher works on a real cluster: ``python tests/benchmarks/launch_time.py [JOBS]``.

For each TFJob: from its creation to the first training step, and from its end, as the operator dates it, to
the launcher's. The operator's times are whole seconds, so each number is up to a second off.
The peer, a loop that asks ``kubectl get`` every five seconds, waits for the same jobs at the same time.
KUBECONFIG names a cluster to which manifests/overlays/kind was applied, and whose nodes hold the images.
"""

import json
import os
import statistics
import subprocess
import sys
import threading
import time
from datetime import UTC, datetime
from pathlib import Path

from fourfold.contract import events, images
from fourfold.contract.pods import write
from fourfold.prepare.step import prepare
from fourfold_pipelines.reach import reach

PROGRAM = Path(__file__).parents[1] / "cluster" / "launcher_program.py"
POLL_SECONDS = 5


def stamp(text):
    return datetime.fromisoformat(text).timestamp()


def job_of(namespace, run):
    command = ["kubectl", "-n", namespace, "get", "tfjobs", "-l", f"fourfold/run={run}", "-o", "json"]
    items = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)["items"]
    return items[0] if items else None


def poll(namespace, run, ended):
    """The peer: notices the end of a job at its next look."""
    while True:
        job = job_of(namespace, run)
        if job and any(
            c["type"] == "Succeeded" and c["status"] == "True" for c in job["status"].get("conditions", [])
        ):
            ended.append(time.time())
            return
        time.sleep(POLL_SECONDS)


def measure(number, store, pods, prepared, folder):
    run, told = f"bench-{os.getpid()}-{number}", folder / f"{number}.jsonl"
    arguments = {
        "store": store, "fingerprint": prepared.manifest.fingerprint, "split_id": prepared.split.id,
        "scenario": "sequential", "workers": 1, "epochs": 1, "batch": 100, "optimizer": "adam",
        "learning_rate": 1e-3, "seed": 0, "pods": write(pods), "output": str(folder / str(number)),
        "uri": str(folder / str(number)),
    }  # fmt: skip
    environment = {**os.environ, events.RUN: run, events.FILE: str(told)}
    launcher = subprocess.Popen(
        [sys.executable, str(PROGRAM), json.dumps(arguments)], env=environment, stdout=subprocess.DEVNULL
    )
    ended = []
    peer = threading.Thread(target=poll, args=(pods.namespace, run, ended))
    peer.start()
    assert launcher.wait() == 0, run
    launcher_ended = time.time()
    peer.join()
    job = job_of(pods.namespace, run) or {}
    seen = [json.loads(line) for line in told.read_text().splitlines()]
    first = next(e["time"] for e in seen if e["event"] in ("progress", "epoch"))
    done = stamp(job["status"]["completionTime"])
    created = stamp(job["metadata"]["creationTimestamp"])
    return first - created, launcher_ended - done, ended[0] - done


def main():
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 10
    folder = Path(os.environ.get("TMPDIR", "/tmp")) / f"launch-{os.getpid()}"
    folder.mkdir()
    with reach("fourfold") as found:
        os.environ.update(found.environment)
        prepared = prepare(found.store, rows=2000)
        rows = []
        for number in range(count):
            rows.append(measure(number, found.store, found.pods, prepared, folder))
            started, seen, polled = rows[-1]
            print(f"job {number + 1}: first step {started:.1f} s after creation; "
                  f"end seen after {seen:.1f} s (polled: {polled:.1f} s)", flush=True)  # fmt: skip
    print(f"code {images.code()[:12]}, {datetime.now(UTC):%Y-%m-%d}, {count} jobs of one pod")
    first, launcher, peer = zip(*rows, strict=True)
    for what, column in (
        ("TFJob created to first step told", first),
        ("TFJob's end to launcher's end", launcher),
        (f"the same, polled every {POLL_SECONDS} s", peer),
    ):
        print(f"{what}: median {statistics.median(column):.1f} s, worst {max(column):.1f} s")
    print(f"ratio of the medians: {statistics.median(launcher) / statistics.median(peer):.2f}")


if __name__ == "__main__":
    main()
