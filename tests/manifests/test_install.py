"""manifests/install: the order of what it does, what it leaves alone, and what it says when it cannot."""

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from fourfold_pipelines.cli.manifest import as_yaml
from tests.conftest import kubectl
from tests.manifests.objects import MANIFESTS, OVERLAYS

INSTALL = MANIFESTS / "install"
PROGRAM = Path(__file__).with_name("kubectl_program.py")
TFJOBS = "tfjobs.kubeflow.org"
NEEDED = ("awk", "bash", "dirname", "env", "grep", "mktemp", "rm", "sed", "sleep")
"""The programs that installing takes, beside kubectl."""


def crd(name: str, size: int = 0) -> dict[str, Any]:
    schema = {"description": "---\nkind: Service\n" + "x" * size}
    return {"kind": "CustomResourceDefinition", "metadata": {"name": name}, "spec": schema}


RENDERED = [
    {"kind": "ServiceAccount", "metadata": {"name": "operator", "namespace": "kubeflow"}},
    {"kind": "Deployment", "metadata": {"name": "operator", "namespace": "kubeflow"}},
    {"kind": "TFJob", "metadata": {"name": "example", "namespace": "kubeflow"}},
    crd("pytorchjobs.kubeflow.org"),
    {"kind": "Namespace", "metadata": {"name": "kubeflow"}},
    crd(TFJOBS, 300_000),
]
"""An operator in the worst order, with a CRD as long as the real ones."""
TEXT = as_yaml(RENDERED)


class Cluster:
    """A fake cluster, and the environment in which the install script meets it."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.environment = {"PATH": str(folder / "bin"), "FAKE_CLUSTER": str(folder), "TIMEOUT": "20"}
        self.environment["OPERATOR"] = str(folder / "operator")
        self.keep(crds={}, namespaces=["default"], applied={}, troubles={})
        (folder / "log.jsonl").touch()
        (folder / "bin").mkdir()
        for name in NEEDED:
            (folder / "bin" / name).symlink_to(shutil.which(name) or pytest.skip(f"no {name}"))
        self.kubectl = folder / "bin" / "kubectl"
        self.kubectl.write_text(f'#!/bin/sh\nexec "{sys.executable}" -I -S "{PROGRAM}" "$@"\n')
        self.kubectl.chmod(0o755)
        (folder / "operator").mkdir()
        self.renders(TEXT)

    def renders(self, text: str) -> None:
        (self.folder / "operator" / "rendered.yaml").write_text(text)

    @property
    def state(self) -> dict[str, Any]:
        return json.loads((self.folder / "state.json").read_text())

    def keep(self, **state: Any) -> None:
        (self.folder / "state.json").write_text(json.dumps(state))

    def trouble(self, **times: int) -> None:
        self.keep(**{**self.state, "troubles": times})

    def has_an_operator(self) -> None:
        self.keep(**{**self.state, "crds": {TFJOBS: {"established": True, "mark": ""}}})

    @property
    def calls(self) -> list[str]:
        """What kubectl was asked, in order; a file of the operator by its name alone."""
        found = [" ".join(json.loads(line)) for line in (self.folder / "log.jsonl").read_text().splitlines()]
        return [re.sub(r"-f /\S*/", "-f ", call) for call in found]

    def position(self, begin: str) -> int:
        (found,) = [index for index, call in enumerate(self.calls) if call.startswith(begin)]
        return found

    def install(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [INSTALL, *arguments],
            env={**self.environment, **environment},
            capture_output=True,
            text=True,
            timeout=120,
        )


@pytest.fixture
def fake(tmp_path: Path) -> Cluster:
    return Cluster(tmp_path)


@dataclass
class Installed:
    """A cluster without an operator in which an overlay was installed, and what that printed."""

    overlay: str
    cluster: Cluster
    said: str


@pytest.fixture(scope="module", params=OVERLAYS)
def installed(request, tmp_path_factory) -> Installed:
    made = Cluster(tmp_path_factory.mktemp("cluster"))
    done = made.install(request.param)
    assert done.returncode == 0, done.stderr
    return Installed(request.param, made, done.stdout)


def test_crds_are_established_before_anything_else_of_the_operator_comes(installed):
    order = [
        "apply --server-side -f namespaces.yaml",
        "apply --server-side -f crds.yaml",
        "wait --for=condition=Established",
        "apply --server-side -f rest.yaml",
        "rollout status",
        "create --dry-run=server",
        "apply --server-side -k",
    ]
    positions = [installed.cluster.position(begin) for begin in order]
    assert positions == sorted(positions)
    assert set(installed.cluster.state["crds"]) == {"pytorchjobs.kubeflow.org", TFJOBS}
    assert installed.cluster.state["namespaces"] == ["default", "kubeflow"]


def test_every_object_of_the_operator_is_applied_whole(installed):
    sizes = {f"{item['kind']} {item['metadata']['name']}": len(as_yaml([item]).strip()) for item in RENDERED}
    assert installed.cluster.state["applied"] == sizes


def test_the_operator_is_rendered_once(installed):
    installed.cluster.position("kustomize")


def test_everything_is_applied_server_side(installed):
    applied = [call for call in installed.cluster.calls if call.startswith("apply")]
    assert len(applied) == 4
    assert all("--server-side" in call for call in applied)


def test_only_where_the_overlay_has_an_s3_server_is_it_waited_for(installed):
    waits = [call for call in installed.cluster.calls if call.endswith("deployment/seaweedfs")]
    assert (
        waits
        == ["-n fourfold rollout status --timeout=20s deployment/seaweedfs"][: installed.overlay == "kind"]
    )
    assert not waits or installed.cluster.calls[-1] == waits[0]


def test_it_ends_with_what_to_do_next(installed):
    create = f"kubectl create -f {MANIFESTS}/runs/experiment.yaml"
    said = {"kind": create, "gpu": create, "kubeflow": "fourfold compile"}
    last = installed.said.splitlines()[-1]
    assert "next: " in last
    assert said[installed.overlay] in last


def test_without_an_s3_account_the_gpu_overlay_says_how_to_make_one(installed):
    assert ("secret.template.yaml" in installed.said) == (installed.overlay == "gpu")


def test_the_fake_refuses_what_a_real_cluster_refuses(fake):
    """A client-side apply of a long CRD, and an object before its CRD is established."""

    def apply(*arguments: str) -> str:
        command = [fake.kubectl, "apply", *arguments]
        return subprocess.run(command, env=fake.environment, capture_output=True, text=True).stderr

    path = fake.folder / "object.yaml"
    path.write_text(as_yaml([crd(TFJOBS, 300_000)]))
    assert "Too long" in apply("-f", str(path))
    assert apply("--server-side", "-f", str(path)) == ""
    path.write_text(as_yaml(RENDERED[2:3]))
    assert "no matches for kind" in apply("--server-side", "-f", str(path))


def test_an_operator_that_is_there_is_left_as_it_is(fake):
    fake.has_an_operator()
    done = fake.install()
    assert done.returncode == 0, done.stderr
    assert not [call for call in fake.calls if call.startswith(("kustomize", "wait", "annotate"))]
    assert [call for call in fake.calls if call.startswith("apply")] == [
        f"apply --server-side -k {MANIFESTS}/overlays/kind"
    ]


def test_run_again_it_leaves_the_operator_that_it_installed(installed, tmp_path):
    again = Cluster(tmp_path)
    again.keep(**installed.cluster.state)
    assert again.install(installed.overlay).returncode == 0
    assert len([call for call in again.calls if call.startswith("apply")]) == 1


@pytest.mark.parametrize("what", ["rollout", "admission"])
def test_an_installation_that_broke_off_is_finished_by_the_next(fake, what):
    fake.trouble(**{what: 100})
    assert fake.install(TIMEOUT="1").returncode != 0
    assert not [call for call in fake.calls if call.startswith("apply --server-side -k")]
    fake.trouble()
    before = len(fake.calls)
    assert fake.install().returncode == 0
    again = [call for call in fake.calls[before:] if call.startswith("apply")]
    assert "apply --server-side -f rest.yaml" in again
    assert fake.state["crds"][TFJOBS]["mark"] == ""


def test_it_waits_until_a_tfjob_is_admitted(fake):
    fake.trouble(admission=2)
    assert fake.install().returncode == 0
    assert len([call for call in fake.calls if call.startswith("create --dry-run=server")]) == 3


def test_tfjobs_that_are_not_admitted_are_an_error_that_says_what_the_cluster_says(fake):
    fake.has_an_operator()
    fake.trouble(admission=100)
    done = fake.install(TIMEOUT="1")
    assert done.returncode == 1
    assert "TFJobs are not admitted" in done.stderr
    assert "failed calling webhook" in done.stderr
    assert "next:" not in done.stdout


def test_without_kubectl_it_says_so(fake):
    fake.kubectl.unlink()
    done = fake.install()
    assert done.returncode == 1
    assert "kubectl is not installed" in done.stderr


def test_without_a_cluster_it_says_so_and_what_kubectl_says(fake):
    fake.trouble(connection=100)
    done = fake.install()
    assert done.returncode == 1
    assert "no cluster answers" in done.stderr
    assert "KUBECONFIG" in done.stderr
    assert "localhost:8080 was refused" in done.stderr
    assert len(fake.calls) == 1


@pytest.mark.parametrize("arguments", [("gcp",), ("kind", "gpu"), ("--kind",)])
def test_an_argument_that_means_nothing_touches_nothing(fake, arguments):
    done = fake.install(*arguments)
    assert done.returncode == 1
    assert "overlay" in done.stderr
    assert fake.calls == []


@pytest.mark.parametrize("option", ["--help", "-h"])
def test_help_is_the_comment_at_the_head_and_touches_nothing(fake, option):
    done = fake.install(option)
    assert done.returncode == 0
    for word in ("OPERATOR", "TIMEOUT", *OVERLAYS):
        assert word in done.stdout
    assert "#" not in done.stdout
    assert "set -e" not in done.stdout
    assert fake.calls == []


@pytest.mark.parametrize(
    "objects",
    [[], [crd("trainjobs.trainer.kubeflow.org")], [{"kind": "TFJob", "metadata": {"name": TFJOBS}}]],
    ids=["nothing", "trainer v2", "no CRD"],
)
def test_what_is_no_training_operator_v1_is_not_applied(fake, objects):
    fake.renders(as_yaml(objects))
    done = fake.install()
    assert done.returncode == 1
    assert f"no CRD {TFJOBS}" in done.stderr
    assert not [call for call in fake.calls if call.startswith("apply")]


def test_an_operator_that_cannot_be_fetched_is_told(fake):
    done = fake.install(OPERATOR=str(fake.folder / "missing"))
    assert done.returncode == 1
    assert "cannot render the training operator" in done.stderr
    assert "OPERATOR" in done.stderr


def test_an_overlay_that_fails_is_an_error_that_names_the_file_to_mend(fake):
    fake.trouble(overlay=1)
    done = fake.install("kubeflow")
    assert done.returncode == 1
    assert "overlays/kubeflow/kustomization.yaml" in done.stderr
    assert "next:" not in done.stdout


def test_an_s3_server_that_does_not_start_is_told_with_the_pods(fake):
    fake.has_an_operator()
    fake.trouble(rollout=1)
    done = fake.install()
    assert done.returncode == 1
    assert "images/build" in done.stderr
    assert fake.calls[-1] == "-n fourfold get pods"


def test_the_file_that_comes_next_is_there():
    assert (MANIFESTS / "runs" / "experiment.yaml").is_file()


def test_in_another_namespace_the_next_command_names_it(fake, tmp_path):
    tree = tmp_path / "copy"
    shutil.copytree(MANIFESTS, tree)
    path = tree / "overlays" / "kind" / "kustomization.yaml"
    path.write_text(path.read_text().replace("namespace: fourfold", "namespace: foo"))
    done = subprocess.run([tree / "install"], env=fake.environment, capture_output=True, text=True)
    assert "-n foo rollout status --timeout=20s deployment/seaweedfs" in fake.calls
    assert "fourfold manifest experiment --namespace foo" in done.stdout


def test_nothing_is_left_in_the_temporary_folder(fake, tmp_path):
    (tmp_path / "tmp").mkdir()
    fake.install(TMPDIR=str(tmp_path / "tmp"))
    fake.trouble(rollout=1)
    fake.install(TMPDIR=str(tmp_path / "tmp"))
    assert list((tmp_path / "tmp").iterdir()) == []


DRY = """#!/usr/bin/env bash
case $1 in apply | create | annotate) exec "$KUBECTL" "$@" --dry-run=server ;; esac
exec "$KUBECTL" "$@"
"""


@pytest.mark.cluster
def test_a_real_cluster_that_has_the_operator_takes_it_all(s3_server, tmp_path):
    """Writes nothing: what is applied is applied dry."""
    (tmp_path / "kubectl").write_text(DRY)
    (tmp_path / "kubectl").chmod(0o755)
    environment = {
        **os.environ,
        "KUBECTL": shutil.which("kubectl") or "",
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
    }
    done = subprocess.run([INSTALL], env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "left as it is" in done.stdout
    assert "server dry run" in done.stdout
    assert 'deployment "seaweedfs" successfully rolled out' in done.stdout


@pytest.mark.cluster
@pytest.mark.parametrize("overlay", OVERLAYS)
def test_a_real_cluster_takes_every_overlay(cluster, tmp_path, overlay):
    """In the namespace default, as an overlay's own may be missing there. Writes nothing."""
    (tmp_path / "rendered.yaml").write_text(kubectl("kustomize", str(MANIFESTS / "overlays" / overlay)))
    text = "{namespace: default, resources: [rendered.yaml]}"
    (tmp_path / "kustomization.yaml").write_text(text)
    said = kubectl("apply", "--server-side", "--dry-run=server", "-k", str(tmp_path))
    assert "role.rbac.authorization.k8s.io/fourfold serverside-applied (server dry run)" in said
