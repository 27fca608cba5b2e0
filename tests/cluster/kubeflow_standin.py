"""Runs the tasks of a compiled pipeline as Kubeflow's back end does: a pod a task, in the order of the DAG.

What a pod is given (command, environment, service account, owner, volumes, TaskConfig) is what was measured
on a real back end; there is no Argo, no cache and no metadata service. An object stands in for the Workflow.
"""

import json
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from tests.cluster.launcher_v2 import MARK
from tests.conftest import kubectl

LAUNCHER = Path(__file__).with_name("launcher_v2.py")
ROOT = "minio://mlpipeline/v2/artifacts"
OUTPUT_FILE = "/tmp/kfp_outputs/output_metadata.json"


@dataclass
class Pipeline:
    """A compiled pipeline without loops, and one run of it.

    Attributes:
        spec: the pipeline's document.
        platform: what it says of Kubernetes, by executor.
        namespace: that its pods run in.
        workflow: reference to the object that owns them.
        parameters: of the run.
        outputs: what the tasks yielded so far: parameters, and URIs of artifacts, by task.
    """

    spec: dict[str, Any]
    platform: dict[str, Any]
    namespace: str
    workflow: dict[str, Any]
    parameters: dict[str, Any]
    outputs: dict[str, dict[str, Any]] = field(default_factory=dict)
    started: int = 0

    @classmethod
    def start(cls, path: Path, namespace: str, name: str, **parameters: Any) -> "Pipeline":
        spec, platform = yaml.safe_load_all(path.read_text())
        made = kubectl("-n", namespace, "create", "configmap", name, "-o", "json")
        meta = json.loads(made)["metadata"]
        owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": meta["name"], "uid": meta["uid"]}
        defaults = {k: p["defaultValue"] for k, p in spec["root"]["inputDefinitions"]["parameters"].items()}
        of_executors = platform["platforms"]["kubernetes"]["deploymentSpec"]["executors"]
        return cls(spec, of_executors, namespace, {**owner, "controller": True}, {**defaults, **parameters})

    @property
    def name(self) -> str:
        return self.workflow["name"]

    def task(self, name: str) -> dict[str, Any]:
        dags = [self.spec["root"]["dag"], *(c["dag"] for c in self.spec["components"].values() if "dag" in c)]
        return next(dag["tasks"][name] for dag in dags if name in dag["tasks"])

    def inputs(self, name: str) -> tuple[dict[str, Any], dict[str, str]]:
        """The values of a task's parameters, and the URIs of its artifacts."""
        inputs = self.task(name)["inputs"]
        values = {}
        for key, source in inputs.get("parameters", {}).items():
            if "runtimeValue" in source:
                values[key] = source["runtimeValue"]["constant"]
            elif "componentInputParameter" in source:
                values[key] = self.parameters[
                    source["componentInputParameter"].removeprefix("pipelinechannel--")
                ]
            else:
                output = source["taskOutputParameter"]
                values[key] = self.outputs[output["producerTask"]][output["outputParameterKey"]]
        artifacts = {
            key: self.outputs[source["taskOutputArtifact"]["producerTask"]][
                source["taskOutputArtifact"]["outputArtifactKey"]
            ]
            for key, source in inputs.get("artifacts", {}).items()
        }
        component = self.spec["components"][f"comp-{name}"]
        for key, parameter in component["inputDefinitions"].get("parameters", {}).items():
            if parameter["parameterType"] == "TASK_CONFIG":
                values[key] = self.task_config(name)
        return values, artifacts

    def task_config(self, name: str) -> dict[str, Any]:
        """What the driver makes of what is set on a task: quantities as strings, all else as in a pod."""
        found = self.spec["deploymentSpec"]["executors"][f"exec-{name}"]["container"].get("resources", {})
        resources = {
            kind: {
                what: found[f"resource{word}{kind.capitalize()[:-1]}"]
                for what, word in (("cpu", "Cpu"), ("memory", "Memory"))
                if f"resource{word}{kind.capitalize()[:-1]}" in found
            }
            for kind in ("requests", "limits")
        }
        platform = self.platform.get(f"exec-{name}", {})
        return {
            "resources": resources,
            "nodeSelector": platform.get("nodeSelector", {}).get("labels"),
            "tolerations": platform.get("tolerations"),
        }

    def artifacts(self, name: str) -> dict[str, str]:
        """The URIs of a task's output artifacts; a task that is tried again has the same."""
        component = self.spec["components"][f"comp-{name}"]
        wanted = component.get("outputDefinitions", {}).get("artifacts", {})
        return {key: f"{ROOT}/fourfold/{self.workflow['uid']}/{name}/{key}" for key in wanted}

    def pod(self, name: str) -> dict[str, Any]:
        """The executor pod of a task."""
        values, given = self.inputs(name)
        component = self.spec["components"][f"comp-{name}"]
        outputs = self.artifacts(name)
        kinds = component.get("outputDefinitions", {}).get("artifacts", {})
        wanted = component["inputDefinitions"].get("artifacts", {})
        executor_input = {
            "inputs": {
                "parameterValues": values,
                "artifacts": {k: _artifact(k, u, wanted[k]["artifactType"]) for k, u in given.items()},
            },
            "outputs": {
                "artifacts": {k: _artifact(k, u, kinds[k]["artifactType"]) for k, u in outputs.items()},
                "parameters": {
                    k: {"outputFile": f"/tmp/kfp/outputs/{k}"}
                    for k in component.get("outputDefinitions", {}).get("parameters", {})
                },
                "outputFile": OUTPUT_FILE,
            },
        }
        container = self.spec["deploymentSpec"]["executors"][f"exec-{name}"]["container"]
        arguments = [json.dumps(executor_input) if a == "{{$}}" else a for a in container["args"]]
        told = {
            "inputs": list(given.values()),
            "outputs": list(outputs.values()),
            "command": [*container["command"], *arguments],
            "output_file": OUTPUT_FILE,
        }
        self.started += 1
        called = f"{self.name[:40]}-system-container-impl-{self.started}"
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": called,
                "namespace": self.namespace,
                "labels": {"pipeline/runid": self.workflow["uid"]},
                "ownerReferences": [self.workflow],
            },
            "spec": {
                "restartPolicy": "Never",
                "serviceAccountName": "pipeline-runner",
                "terminationGracePeriodSeconds": 30,
                "containers": [
                    {
                        "name": "main",
                        "image": container["image"],
                        "imagePullPolicy": self.platform[f"exec-{name}"]["imagePullPolicy"],
                        "command": ["python3", "-c", LAUNCHER.read_text(), json.dumps(told)],
                        "env": [*_environment(self.platform[f"exec-{name}"]), *_own(called)],
                        "securityContext": {
                            "allowPrivilegeEscalation": False,
                            "capabilities": {"drop": ["ALL"]},
                        },
                        "volumeMounts": [{"name": n, "mountPath": f"/{n}"} for n in ("minio", "s3", "gcs")],
                    }
                ],
                "volumes": [{"name": n, "emptyDir": {}} for n in ("minio", "s3", "gcs")],
            },
        }

    def begin(self, name: str) -> str:
        """Starts a task's pod; gives its name."""
        made = kubectl("create", "-f", "-", "-o", "name", stdin=json.dumps(self.pod(name)))
        return made.strip().removeprefix("pod/")

    def end(self, name: str, pod: str, seconds: float = 200.0) -> tuple[int, str]:
        """Waits for a task's pod; gives its exit code and log, and takes its outputs in."""
        until = time.monotonic() + seconds
        while True:
            status = json.loads(kubectl("-n", self.namespace, "get", "pod", pod, "-o", "json"))["status"]
            if status["phase"] in ("Succeeded", "Failed"):
                break
            assert time.monotonic() < until, f"{pod} goes on: {status}\n{self.log(pod)}"
            time.sleep(0.5)
        log = self.log(pod)
        code = status["containerStatuses"][0]["state"]["terminated"]["exitCode"]
        if code == 0:
            said = next(line for line in log.splitlines() if line.startswith(MARK))
            output = json.loads(said.removeprefix(MARK), parse_constant=_refuse)
            self.outputs[name] = {**self.artifacts(name), **output.get("parameterValues", {})}
            self.outputs[f"{name} metadata"] = {
                key: value["artifacts"][0].get("metadata", {})
                for key, value in output.get("artifacts", {}).items()
            }
        return code, log

    def run(self, name: str) -> str:
        """Runs a task to its end; gives its log."""
        code, log = self.end(name, self.begin(name))
        assert code == 0, log
        return log

    def log(self, pod: str) -> str:
        """What a pod has printed; nothing before it has started."""
        command = ["kubectl", "-n", self.namespace, "logs", pod]
        return subprocess.run(command, capture_output=True, text=True, timeout=60).stdout

    def jobs(self) -> list[dict[str, Any]]:
        """The TFJobs of this run."""
        found = kubectl(
            "-n", self.namespace, "get", "tfjobs", "-l", f"fourfold/run={self.name}", "-o", "json"
        )
        return json.loads(found)["items"]


def _artifact(name: str, uri: str, kind: dict[str, Any]) -> dict[str, Any]:
    return {"artifacts": [{"name": name, "uri": uri, "type": kind, "metadata": {}}]}


def _environment(platform: dict[str, Any]) -> list[dict[str, Any]]:
    """What the driver makes of secrets and config maps."""
    found = []
    for what, name, key, reference in (
        ("secretAsEnv", "secretNameParameter", "secretKey", "secretKeyRef"),
        ("configMapAsEnv", "configMapNameParameter", "configMapKey", "configMapKeyRef"),
    ):
        for item in platform.get(what, []):
            of = item[name]["runtimeValue"]["constant"]
            for pair in item["keyToEnv"]:
                where = {"name": of, "key": pair[key], "optional": item["optional"]}
                found.append({"name": pair["envVar"], "valueFrom": {reference: where}})
    return found


def _own(pod: str) -> list[dict[str, Any]]:
    return [
        {"name": "KFP_POD_NAME", "value": pod},
        {"name": "KFP_POD_UID", "valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}}},
        {"name": "ARGO_CONTAINER_NAME", "value": "main"},
    ]


def _refuse(constant: str) -> None:
    raise AssertionError(f"{constant} is no JSON")
