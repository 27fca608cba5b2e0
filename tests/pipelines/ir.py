"""Compiled pipelines, read back: what each step is given, and with which inputs it would be run."""

import functools
import json
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from click.testing import CliRunner

from fourfold.contract.pods import Pods, read
from fourfold_pipelines.cli import main
from fourfold_pipelines.steps import TABLE

MORE = {
    "cpu": "4", "memory": "16Gi", "node_selector": {"pool": "gpu", "example.org/zone": "a"},
    "tolerations": [{"key": "gpu", "operator": "Exists", "tolerationSeconds": 30}],
    "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {}}},
    "deadline_seconds": 7200, "image": "lab/own-worker:3", "service_account": "trainer",
}  # fmt: skip
OWN_STORE = {"secret": "mine", "access_key": "id", "secret_key": "key", "config": "place"}
RAW = {"resources": {"requests": {"cpu": "2"}, "limits": {"example.org/chip": "1"}}}
DIGEST = f"lab/steps@sha256:{'0a' * 32}"
CHOICES: dict[str, tuple[str, ...]] = {
    "usual": (),
    "gpus": ("--gpus", "3", "--pods", json.dumps(MORE)),
    "other gpus": ("--pods", '{"gpus": 1, "gpu_resource": "amd.com/gpu", "memory": "1.5Gi", "cpu": "500m"}'),
    "raw resources": ("--pods", json.dumps(RAW)),
    "registry": ("--registry", "registry.example.org:5000/team/"),
    "other images": ("--steps-image", DIGEST, "--worker-image", "lab/worker:7"),
    "own store": ("--store", "s3://models/fourfold", "--keep-failed", "--pods", json.dumps(OWN_STORE)),
    "no account": ("--pods", '{"secret": "", "config": ""}'),
    "other name": ("--name", "nightly"),
}
TRAINING = ("experiment", "train")
"""Pipelines that train what their parameters say; the study of merging trains what its cells need."""
EVERY = [(which, choice) for which in TRAINING for choice in CHOICES]
ENVIRONMENT = {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_ENDPOINT_URL_S3", "AWS_REGION"}
"""All that a step may be given in its environment."""


@dataclass(frozen=True)
class Compiled:
    """One file of ``fourfold compile``."""

    text: str
    ir: dict[str, Any]
    platform: dict[str, Any]

    @property
    def containers(self) -> dict[str, dict[str, Any]]:
        """What KFP runs, by step."""
        executors = self.ir["deploymentSpec"]["executors"]
        return {name.removeprefix("exec-"): executor["container"] for name, executor in executors.items()}

    @property
    def kubernetes(self) -> dict[str, dict[str, Any]]:
        """What is said of the pods of each step."""
        executors = self.platform["platforms"]["kubernetes"]["deploymentSpec"]["executors"]
        return {name.removeprefix("exec-"): executor for name, executor in executors.items()}

    @property
    def parameters(self) -> dict[str, dict[str, Any]]:
        """Of the pipeline."""
        return self.ir["root"]["inputDefinitions"]["parameters"]

    @property
    def defaults(self) -> dict[str, Any]:
        return {name: parameter["defaultValue"] for name, parameter in self.parameters.items()}

    @property
    def dags(self) -> list[dict[str, Any]]:
        inner = [component["dag"] for component in self.ir["components"].values() if "dag" in component]
        return [self.ir["root"]["dag"], *inner]

    @property
    def tasks(self) -> dict[str, dict[str, Any]]:
        """The task of each step, wherever it stands; pipelines have a step once."""
        found = [
            (task["componentRef"]["name"].removeprefix("comp-"), task)
            for dag in self.dags
            for task in dag["tasks"].values()
            if "dag" not in self.ir["components"][task["componentRef"]["name"]]
        ]
        assert len(dict(found)) == len(found)
        return dict(found)

    def constant(self, step: str, name: str) -> Any:
        """An input of a step that is chosen when the pipeline is compiled."""
        return self.tasks[step]["inputs"]["parameters"][name]["runtimeValue"]["constant"]

    @property
    def pods(self) -> Pods:
        """What the record says that the pods that train are given."""
        return read(self.constant("train", "pods"))


@functools.cache
def compiled(which: str, choice: str = "usual") -> Compiled:
    """A pipeline as the command compiles it; once for each choice."""
    return compile_with(which, *CHOICES[choice])


def compile_with(which: str, *options: str) -> Compiled:
    with tempfile.TemporaryDirectory() as folder:
        done = CliRunner().invoke(main, ["compile", which, "-o", folder, *options], catch_exceptions=False)
        assert done.exit_code == 0, done.output
        (path,) = Path(folder).iterdir()
        text = path.read_text()
    ir, platform = yaml.safe_load_all(text)
    return Compiled(text, ir, platform)


LAUNCHERS = ("train", "merge-at-sites")
"""Steps whose resources and place are those of the pods that they launch."""


STUDY = {"measure-cell", "tabulate"}


def steps(which: str) -> list[str]:
    if which == "merge-study":
        return sorted([*STUDY, "clean-up"])
    return sorted(set(TABLE) - STUDY - ({"merge", "merge-at-sites", "report"} if which == "train" else set()))


def walk(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every value inside of one, with its path."""
    yield path, value
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield from walk(inner, f"{path}.{key}")


def leaves(ir: dict[str, Any], arguments: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """The inputs that each component would be run with, a list by component.

    An output of another task stands as its name and the inputs of that task.
    """
    found: dict[str, list[dict[str, Any]]] = {}

    def inside(dag: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
        done: dict[str, Any] = {}

        def value(source: dict[str, Any]) -> Any:
            if "componentInputParameter" in source:
                return given[source["componentInputParameter"]]
            if "componentInputArtifact" in source:
                return given[source["componentInputArtifact"]]
            if "runtimeValue" in source:
                return source["runtimeValue"]["constant"]
            (output,) = source.values()
            key = output.get("outputParameterKey") or output["outputArtifactKey"]
            return {"output": key, "of": done[output["producerTask"]]}

        waiting = dict(dag["tasks"])
        while waiting:
            name = next(n for n, t in waiting.items() if not set(t.get("dependentTasks", [])) & set(waiting))
            task = waiting.pop(name)
            inputs = {
                key: value(source)
                for kind in ("parameters", "artifacts")
                for key, source in task.get("inputs", {}).get(kind, {}).items()
            }
            loop = task.get("parameterIterator")
            rounds = (
                [{**inputs, loop["itemInput"]: item} for item in inputs[loop["items"]["inputParameter"]]]
                if loop
                else [inputs]
            )
            reference = task["componentRef"]["name"]
            component = ir["components"][reference]
            if "dag" in component:
                done[name] = [inside(component["dag"], one) for one in rounds]
            else:
                found.setdefault(reference.removeprefix("comp-"), []).extend(rounds)
                done[name] = rounds
        return done

    defaults = {name: p["defaultValue"] for name, p in ir["root"]["inputDefinitions"]["parameters"].items()}
    inside(ir["root"]["dag"], {**defaults, **arguments})
    return found
