"""What the tests of the manifests read: files, renderings of kustomize, and the pods in both."""

import functools
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from fourfold.contract import plan as plans
from fourfold.contract.pods import Pods
from fourfold.contract.records import Training
from fourfold.train import tfjob
from fourfold_pipelines import job

ROOT = Path(__file__).parents[2]
MANIFESTS = ROOT / "manifests"
OVERLAYS = sorted(path.name for path in (MANIFESTS / "overlays").iterdir())
FILES = sorted(MANIFESTS.rglob("*.yaml"))
KUSTOMIZATIONS = [path for path in FILES if path.name == "kustomization.yaml"]
OBJECTS = [path for path in FILES if path not in KUSTOMIZATIONS]
BASE = [path for path in OBJECTS if path.parent.name == "base"]

Object = dict[str, Any]


def read(path: Path) -> list[Object]:
    return parse(path.read_text())


def parse(text: str) -> list[Object]:
    return [item for item in yaml.safe_load_all(text) if item]


def written(*kinds: str) -> list[Object]:
    """The objects of some kinds in the files, as they are written; of all kinds if none is named."""
    return [item for path in OBJECTS for item in read(path) if not kinds or item["kind"] in kinds]


@functools.cache
def _rendered(folder: Path) -> str:
    done = subprocess.run(["kubectl", "kustomize", folder], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def render(folder: Path) -> list[Object]:
    """What kustomize makes of a folder; skips the test where there is no kubectl."""
    if not shutil.which("kubectl"):
        pytest.skip("kubectl is not installed: what kustomize makes is not tested")
    return parse(_rendered(folder))


def moved(overlay: str, namespace: str, folder: Path) -> Path:
    """A copy of the manifests in which an overlay names another namespace; gives the overlay's folder."""
    shutil.copytree(MANIFESTS, folder / "manifests")
    path = folder / "manifests" / "overlays" / overlay / "kustomization.yaml"
    said = yaml.safe_load(path.read_text())["namespace"]
    text = path.read_text()
    assert text.count(f"\nnamespace: {said}\n") == 1
    path.write_text(text.replace(f"\nnamespace: {said}\n", f"\nnamespace: {namespace}\n"))
    return path.parent


def of_kind(objects: list[Object], *kinds: str) -> list[Object]:
    return [item for item in objects if item["kind"] in kinds]


def settings(path: Path) -> dict[str, str]:
    """The literals of the ConfigMap fourfold in a kustomization."""
    generators = read(path)[0].get("configMapGenerator", [])
    literals = [text for item in generators if item["name"] == "fourfold" for text in item["literals"]]
    return dict(text.split("=", 1) for text in literals)


def built(pods: Pods | None = None) -> list[Object]:
    """All that the code makes for a cluster: the experiment's Job, and every scenario's TFJob."""
    pods = pods or Pods(namespace="fourfold")
    store = "s3://fourfold"
    trainings = [Training(name, 2, store, "0" * 32, "0" * 16, f"{store}/{name}") for name in plans.names()]
    return [job.build([], pods), *(tfjob.build(training, pods, "a run") for training in trainings)]


def templates(objects: list[Object]) -> Iterator[tuple[str, Object]]:
    """The pod templates in objects, whatever the kind, each with its object's name."""
    for item in objects:
        name = item["metadata"].get("name") or item["metadata"].get("generateName")
        for found in _templates(item):
            yield f"{item['kind']} {name}", found


def _templates(value: Any) -> Iterator[Object]:
    if isinstance(value, dict):
        spec = value.get("spec")
        if isinstance(spec, dict) and "containers" in spec:
            yield value
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from _templates(item)


def containers(template: Object) -> list[Object]:
    spec = template["spec"]
    return [*spec.get("initContainers", []), *spec["containers"], *spec.get("ephemeralContainers", [])]
