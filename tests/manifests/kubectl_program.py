"""A kubectl whose cluster is a folder: it keeps a real API server's order, and logs what it is asked.

The folder ``$FAKE_CLUSTER`` holds ``state.json`` (what is in the cluster, and what shall go wrong) and
``log.jsonl`` (a call a line). For what cannot be had for real: a cluster without the operator.
"""

import json
import os
import re
import sys
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

ANNOTATION_BYTES = 262_144
CRD, NAMESPACE, TFJOBS = "CustomResourceDefinition", "Namespace", "tfjobs.kubeflow.org"
FOLDER = Path(os.environ["FAKE_CLUSTER"])
STATE: dict[str, Any] = json.loads((FOLDER / "state.json").read_text())


def refuse(message: str) -> NoReturn:
    keep()
    sys.exit(message)


def keep() -> None:
    (FOLDER / "state.json").write_text(json.dumps(STATE))


def trouble(kind: str) -> bool:
    """Whether this goes wrong now; each trouble is a number of times."""
    left = STATE["troubles"].get(kind, 0)
    STATE["troubles"][kind] = max(0, left - 1)
    return left > 0


class Object(NamedTuple):
    """As much of an object as matters here; ``size`` in characters."""

    kind: str
    name: str
    namespace: str
    size: int


def objects(arguments: list[str]) -> list[Object]:
    path = arguments[arguments.index("-f") + 1]
    text = sys.stdin.read() if path == "-" else Path(path).read_text()
    return [parse(part) for part in re.split(r"^---\n", text, flags=re.MULTILINE) if part.strip()]


def parse(text: str) -> Object:
    """Reads block style, and metadata also in flow style; a library would take longer than all the rest."""

    def value(key: str) -> str:
        found = re.search(rf"^  {key}: (.*)$", text, re.MULTILINE)
        found = found or re.search(rf"^metadata: {{.*\b{key}: ([^,}}]*)", text, re.MULTILINE)
        return found[1] if found else ""

    kind = re.findall(r"^kind: (.*)$", text, re.MULTILINE)
    return Object("".join(kind), value("name"), value("namespace") or "default", len(text.strip()))


def apply(arguments: list[str]) -> None:
    if "-k" in arguments:
        if trouble("overlay"):
            refuse('Error from server (NotFound): namespaces "somewhere" not found')
        return
    for item in objects(arguments):
        if "--server-side" not in arguments and item.size > ANNOTATION_BYTES:
            refuse(f'The {item.kind} "{item.name}" is invalid: metadata.annotations: Too long')
        if item.kind == CRD:
            STATE["crds"].setdefault(item.name, {"established": False, "mark": ""})
        elif item.kind == NAMESPACE:
            STATE["namespaces"].append(item.name)
        elif not all(crd["established"] for crd in STATE["crds"].values()):
            refuse(f'error: resource mapping not found for "{item.name}": no matches for kind "{item.kind}"')
        elif item.namespace not in STATE["namespaces"]:
            refuse(f'Error from server (NotFound): namespaces "{item.namespace}" not found')
        STATE["applied"][f"{item.kind} {item.name}"] = item.size


def wait(arguments: list[str]) -> None:
    if "--for=condition=Established" not in arguments:
        refuse("error: timed out waiting for the condition")
    for item in objects(arguments):
        if item.kind != CRD or item.name not in STATE["crds"]:
            refuse(f"error: timed out waiting for the condition on {item.name}")
        STATE["crds"][item.name]["established"] = True


def annotate(arguments: list[str]) -> None:
    name, what = arguments[-2:]
    STATE["crds"][name]["mark"] = what.partition("=")[2]


def get(arguments: list[str]) -> None:
    if "crd" in arguments and TFJOBS in STATE["crds"]:
        print(TFJOBS, STATE["crds"][TFJOBS]["mark"], end="")


def rollout(arguments: list[str]) -> None:
    if trouble("rollout"):
        refuse("error: timed out waiting for the condition")
    if "-f" in arguments and [item.kind for item in objects(arguments)] != ["Deployment"]:
        refuse("error: no Deployment")


def create(arguments: list[str]) -> None:
    if "--dry-run=server" not in arguments:
        refuse("error: this must create nothing")
    (item,) = objects(arguments)
    if item.kind != "TFJob" or TFJOBS not in STATE["crds"]:
        refuse('error: no matches for kind "TFJob"')
    if trouble("admission"):
        refuse("Error from server (InternalError): failed calling webhook: connection refused")


def main(arguments: list[str]) -> None:
    with (FOLDER / "log.jsonl").open("a") as log:
        log.write(json.dumps(arguments) + "\n")
    if trouble("connection"):
        refuse("The connection to the server localhost:8080 was refused")
    command = arguments[2:] if arguments[0] == "-n" else arguments
    match command[0]:
        case "version":
            print("Server Version: v1.34.4")
        case "config":
            print("a-context")
        case "kustomize":
            print((Path(command[1]) / "rendered.yaml").read_text(), end="")
        case "apply" | "wait" | "annotate" | "get" | "rollout" | "create":
            globals()[command[0]](command)
        case _:
            refuse(f"error: unknown command {command[0]}")
    keep()


if __name__ == "__main__":
    main(sys.argv[1:])
