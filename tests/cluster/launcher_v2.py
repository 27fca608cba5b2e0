"""What Kubeflow's own launcher does around a step's program, as far as the program can tell. Runs in the pod.

Brings the input artifacts to their local paths, runs the command, puts what it left at the local paths of the
output artifacts into the object store, and prints what the program says of its outputs. An output that nobody
wrote is only warned of, as Kubeflow does.
"""

import json
import subprocess
import sys
from pathlib import Path

from fourfold.store.objects import open_store

MARK = "executor-output "


def local(uri: str) -> Path:
    scheme, _, rest = uri.partition("://")
    return Path(f"/{scheme}/{rest}")


def split(uri: str) -> tuple[str, str]:
    root, _, name = uri.rpartition("/")
    return root, name


def download(uri: str) -> None:
    store, name = split(uri)
    target = local(uri)
    source = open_store(store)
    found = source.list(name)
    for key in found:
        path = target / key.removeprefix(f"{name}/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(source.read(key))
    if not found and source.exists(name):
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(source.read(name))


def upload(uri: str) -> None:
    store, name = split(uri)
    path, target = local(uri), open_store(store)
    if not path.exists():
        print(f"Local filepath {path} does not exist", flush=True)
        return
    for file in sorted(p for p in [path, *path.rglob("*")] if p.is_file()):
        below = file.relative_to(path).as_posix()
        target.write(name if below == "." else f"{name}/{below}", file.read_bytes())


if __name__ == "__main__":
    told = json.loads(sys.argv[1])
    for artifact in told["inputs"]:
        download(artifact)
    code = subprocess.run(told["command"]).returncode
    if code:
        sys.exit(code)
    for artifact in told["outputs"]:
        upload(artifact)
    output = Path(told["output_file"])
    said = json.loads(output.read_text()) if output.exists() else {}
    print(MARK + json.dumps(said), flush=True)
