"""Makes objects in a namespace that a test has for itself."""

import json
from pathlib import Path
from typing import Any

from fourfold.train import api
from tests.cluster.doctor.changed import kubeconfig
from tests.conftest import NAMESPACE, kubectl


def give(namespace: str, **settings: str) -> None:
    """Makes or changes the ConfigMap of a namespace."""
    data = json.loads(kubectl("-n", NAMESPACE, "get", "configmap", "fourfold", "-o", "json"))["data"]
    make(namespace, "ConfigMap", "fourfold", data={**data, **settings})


def give_account(namespace: str, access: str, secret: str, prefix: str = "AWS_") -> None:
    data = {f"{prefix}ACCESS_KEY_ID": access, f"{prefix}SECRET_ACCESS_KEY": secret}
    make(namespace, "Secret", "fourfold-s3", stringData=data)


def make(namespace: str, kind: str, name: str, version: str = "v1", **content: Any) -> None:
    made = {"apiVersion": version, "kind": kind, "metadata": {"name": name}, **content}
    kubectl("-n", namespace, "apply", "-f", "-", stdin=json.dumps(made))


def as_account(namespace: str, account: str, folder: Path) -> Path:
    """The kubeconfig of a service account."""
    token = kubectl("-n", namespace, "create", "token", account).strip()
    return kubeconfig(folder / f"{account}.conf", api.configuration().host, token)
