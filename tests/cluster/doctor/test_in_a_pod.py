"""``fourfold doctor`` in a pod: its files and variables are laid out here, its account's token is real."""

import json
import os
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from kubernetes.config import incluster_config

from fourfold.store import s3
from fourfold.train import api
from tests.cluster.doctor.made import give
from tests.cluster.doctor.told import check, doctor
from tests.conftest import NAMESPACE, kubectl

pytestmark = pytest.mark.cluster


@pytest.fixture
def pod(installed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """This process as a pod that runs as the launcher's service account; gives its namespace."""
    place = urlsplit(api.configuration().host)
    authority = kubectl("-n", NAMESPACE, "get", "configmap", "kube-root-ca.crt", "-o", "json")
    files = {
        "token": kubectl("-n", installed, "create", "token", "fourfold").strip(),
        "namespace": installed,
        "ca.crt": json.loads(authority)["data"]["ca.crt"],
    }
    for name, content in files.items():
        (tmp_path / name).write_text(content)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", str(place.hostname))
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(place.port))
    monkeypatch.setattr(incluster_config, "SERVICE_TOKEN_FILENAME", str(tmp_path / "token"))
    monkeypatch.setattr(incluster_config, "SERVICE_CERT_FILENAME", str(tmp_path / "ca.crt"))
    monkeypatch.setattr(api, "SERVICE_ACCOUNT", tmp_path)
    return installed


def account(server: s3.Settings) -> dict[str, str]:
    return {"AWS_ACCESS_KEY_ID": server.access_key, "AWS_SECRET_ACCESS_KEY": server.secret_key}


def test_its_own_namespace_account_and_environment_count(pod, s3_server):
    told = doctor(
        FOURFOLD_STORE="s3://fourfold-tests",
        FOURFOLD_PODS='{"secret": "another", "cpu": "250m"}',
        AWS_ENDPOINT_URL_S3=s3_server.endpoint,
        **account(s3_server),
    )

    assert told.code == 0
    assert not [line for line in told.lines if line[0] in ("WRONG", "warn")], told.text
    for line in (
        ("ok", f"this pod may do all that launching takes in namespace {pod}"),
        ("ok", "a TFJob like those of a run would be taken"),
        ("ok", "store s3://fourfold-tests: written, read back, deleted"),
    ):
        assert line in told.lines, told.text
    for words in ("ConfigMap fourfold", "Secret another", "service account fourfold-worker"):
        assert f"cannot see {words} in namespace {pod}" in told.text
    assert "reaching" not in told.text
    assert s3_server.secret_key not in told.text


def test_an_environment_that_names_no_store_is_wrong(pod):
    told = doctor()

    wrong = [line for line in told.lines if line[0] in ("WRONG", "warn")]
    check(wrong, ("WRONG", "no store is named: FOURFOLD_STORE is not set in this pod"))
    assert "--store" in told.do[wrong[0][1]]


def test_where_the_configmap_may_be_read_its_store_is_tried(pod, s3_server):
    give(pod, AWS_ENDPOINT_URL_S3=s3_server.endpoint, FOURFOLD_STORE="s3://fourfold-tests")
    subject = f"--serviceaccount={pod}:fourfold"
    kubectl("-n", pod, "create", "rolebinding", "see", "--clusterrole=view", subject)
    told = doctor(**account(s3_server))

    assert ("ok", "store s3://fourfold-tests: written, read back, deleted") in told.lines, told.text
    found = [line for line in told.lines if line[0] in ("WRONG", "warn")]
    check(found, ("warn", "FOURFOLD_STORE is not set in this pod; the ConfigMap's was tried"))
    assert "AWS_ENDPOINT_URL_S3" not in os.environ
