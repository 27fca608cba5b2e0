"""The Job that runs the experiment inside a cluster, where there is no Kubeflow: a pure function.

Its pod runs ``fourfold run --on cluster``, the same command and the same runner as on a laptop.
"""

from collections.abc import Sequence
from typing import Any

from fourfold.contract import events, exits
from fourfold.contract.pods import Pods
from fourfold.train import tfjob

ACCOUNT = "fourfold"
"""The service account that may launch TFJobs."""
DEADLINE_SECONDS = 7 * 24 * 3600
TRIES = 3


def build(arguments: Sequence[str], pods: Pods, name: str = "fourfold-experiment-") -> dict[str, Any]:
    """Makes the Job.

    Args:
        arguments: of ``fourfold run``, beyond where and into what.
        pods: names the namespace, the image, and the ConfigMap and Secret that say how the store is reached.
        name: beginning of the Job's name; the cluster adds the rest.

    Returns:
        A Job. Its results go to ``runs/<name of the Job>`` in the store of the ConfigMap.
    """
    own = [
        {
            "name": events.RUN,
            "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['batch.kubernetes.io/job-name']"}},
        },
        *[
            {"name": key, "valueFrom": {"configMapKeyRef": {"name": pods.config, "key": key}}}
            for key in ("FOURFOLD_STORE", "FOURFOLD_PODS")
        ],
    ]
    command = ["fourfold", "run", "--on", "cluster", "--out", f"$(FOURFOLD_STORE)/runs/$({events.RUN})"]
    labels = {"app.kubernetes.io/name": "fourfold-experiment", "app.kubernetes.io/managed-by": "fourfold"}
    no_proxy = {"sidecar.istio.io/inject": "false"}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"generateName": name, "namespace": pods.namespace, "labels": labels},
        "spec": {
            "backoffLimit": TRIES,
            "activeDeadlineSeconds": DEADLINE_SECONDS,
            "ttlSecondsAfterFinished": pods.ttl_seconds,
            "podFailurePolicy": {
                "rules": [
                    # What would fail again is not tried again; a pod that was moved away does not count.
                    {
                        "action": "FailJob",
                        "onExitCodes": {
                            "operator": "In",
                            "values": [exits.FAILED, exits.INVALID_INPUT, exits.DIVERGED],
                        },
                    },
                    {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
                ]
            },
            "template": {
                "metadata": {"labels": {**labels, **no_proxy}, "annotations": no_proxy},
                "spec": {
                    "serviceAccountName": ACCOUNT,
                    "restartPolicy": "Never",
                    "enableServiceLinks": False,
                    "securityContext": tfjob.POD_SECURITY,
                    "containers": [
                        {
                            "name": "experiment",
                            "image": pods.image,
                            "imagePullPolicy": "IfNotPresent",
                            "command": [*command, *arguments],
                            "env": [*tfjob.environment(pods), *own],
                            "resources": {
                                "requests": {"cpu": "250m", "memory": "1Gi"},
                                "limits": {"memory": "2Gi"},
                            },
                            "securityContext": tfjob.CONTAINER_SECURITY,
                            "terminationMessagePolicy": "FallbackToLogsOnError",
                            "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],
                        }
                    ],
                    "volumes": [{"name": "tmp", "emptyDir": {"sizeLimit": pods.scratch}}],
                },
            },
        },
    }
