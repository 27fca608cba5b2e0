"""What tests of the doctor share: the cluster that is well, proxies before it, namespaces of their own."""

import contextlib
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fourfold.store import s3
from tests.cluster.doctor.changed import changed
from tests.cluster.doctor.made import give, give_account
from tests.cluster.doctor.told import Told, doctor
from tests.conftest import OVERLAY, kubectl

BASE = OVERLAY.parents[1] / "base"


@pytest.fixture(scope="session")
def well(s3_server: s3.Settings) -> Told:
    """What is told of the cluster as it is."""
    return doctor()


@pytest.fixture
def before(cluster: None, tmp_path: Path) -> Iterator[Callable[..., Path]]:
    """Starts proxies that change answers; gives a kubeconfig for each."""
    with contextlib.ExitStack() as stack:
        yield lambda changes: stack.enter_context(changed(changes, tmp_path))


@pytest.fixture
def namespace(s3_server: s3.Settings) -> Iterator[str]:
    """A namespace of this test, deleted afterwards with all that is in it."""
    name = f"doctor-{secrets.token_hex(4)}"
    kubectl("create", "namespace", name)
    yield name
    kubectl("delete", "namespace", name, "--wait=false")


@pytest.fixture
def installed(namespace: str, s3_server: s3.Settings) -> str:
    """That namespace with what the manifests make, and the S3 server of another one."""
    kubectl("-n", namespace, "apply", "-f", str(BASE / "access.yaml"))
    give(namespace)
    give_account(namespace, s3_server.access_key, s3_server.secret_key)
    return namespace
