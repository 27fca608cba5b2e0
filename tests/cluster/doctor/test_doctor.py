"""``fourfold doctor`` on a real cluster that is well, and with faults of the cluster as a whole.

These would harm everybody in it, so a proxy before the API server changes single answers. Each time the lines
that differ from those of the cluster that is well are exactly the ones that the fault explains.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fourfold.train import api
from tests.cluster.doctor.changed import Change, kubeconfig
from tests.cluster.doctor.told import OURS, check, doctor, read
from tests.conftest import NAMESPACE, kubectl

pytestmark = pytest.mark.cluster

FOURFOLD = str(Path(sys.executable).parent / "fourfold")
GROUP = "/apis/kubeflow.org/v1"
OPENAPI = f"/openapi/v3{GROUP}"
WEBHOOKS = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
DEPLOYMENTS = "/apis/apps/v1/deployments"


def answer(status: int, body: Any) -> Change:
    return lambda *_: (status, body)


NO_GROUP = answer(404, "404 page not found\n")
BREAK: Change = lambda *_: None  # noqa: E731


def of_policy(change: Callable[[dict[str, Any]], Any]) -> Change:
    """Changes the fields of a TFJob's runPolicy in the schema."""

    def do(status: int, body: Any) -> tuple[int, Any]:
        spec = body["components"]["schemas"]["org.kubeflow.v1.TFJob"]["properties"]["spec"]
        change(spec["properties"]["runPolicy"]["properties"])
        return status, body

    return do


def test_of_a_cluster_that_is_well_nothing_is_wrong_or_left_open(well):
    assert well.code == 0
    for mark, said in well.lines:
        # Images may be still to be built; what was not tested may be what is tested now.
        may_differ = said.startswith("image ") or "was not tested" in said
        assert mark == "ok" or (mark == "warn" and may_differ), said
    for words in (
        "Kubernetes 1.",
        "training operator 1.",
        "the training operator runs (",
        f"ConfigMap fourfold in namespace {NAMESPACE}",
        f"service account fourfold-worker in namespace {NAMESPACE}",
        "Secret fourfold-s3 has both keys",
        f"this user may do all that launching takes in namespace {NAMESPACE}",
        f"this user may do all that reaching the store takes in namespace {NAMESPACE}",
        f"service account fourfold may do all that launching takes in namespace {NAMESPACE}",
        "a TFJob like those of a run would be taken",
        "a pod like those of a run would be taken",
        "store s3://fourfold: written, read back, deleted",
    ):
        assert any(said.startswith(words) for _, said in well.lines), (words, well.text)
    assert "fourfold run --on cluster --rows" in well.text


def test_as_a_program_it_tells_the_same(well):
    environment = {name: value for name, value in os.environ.items() if not name.startswith(OURS)}
    done = subprocess.run([FOURFOLD, "doctor"], capture_output=True, text=True, timeout=120, env=environment)

    assert done.stderr == ""
    assert read(done.stdout, done.returncode).lines == well.lines


def test_through_the_proxy_that_changes_nothing_the_cluster_is_as_well(well, before):
    assert doctor(config=before({})).lines == well.lines


def test_nothing_is_left_behind_in_the_cluster(well):
    for kind in ("tfjobs", "pods"):
        names = kubectl("-n", NAMESPACE, "get", kind, "-o", "name")
        assert "doctor" not in names


def test_without_an_operator_that_is_what_is_wrong(well, before):
    changes = {("GET", path): NO_GROUP for path in (GROUP, OPENAPI)}
    changes["POST", f"{GROUP}/namespaces/{NAMESPACE}/tfjobs"] = NO_GROUP
    told = doctor(config=before(changes))

    check(
        told.besides(well),
        ("WRONG", "the cluster does not know TFJobs: there is no training operator$"),
        ("-", "no TFJob was tried: the cluster knows none"),
    )
    check(
        [("", said) for said in told.lacks(well)],
        ("", "training operator 1.8"),
        ("", "the training operator runs"),
        ("", "a TFJob like"),
    )
    assert "manifests/install" in told.text


@pytest.mark.parametrize(
    ("change", "hooks", "line"),
    [
        (lambda policy: None, [], ("warn", "the training operator is 1.7 .it validates nothing., 1.8 was")),
        (lambda policy: policy.pop("suspend", None), [], ("warn", "the training operator is older than 1.7")),
        (
            lambda policy: policy.pop("ttlSecondsAfterFinished"),
            None,
            ("WRONG", "the training operator is too old: its TFJob has no ttlSecondsAfterFinished$"),
        ),
        (
            lambda policy: policy.update(managedBy={"type": "string"}),
            None,
            ("warn", "training operator 1.9 or later .by its fields. was not tested, 1.8 was"),
        ),
    ],
    ids=["1.7", "1.6", "ancient", "1.9"],
)
def test_another_operator_is_told_by_its_fields(well, before, change, hooks, line):
    changes = {("GET", OPENAPI): of_policy(change)}
    if hooks is not None:
        changes["GET", WEBHOOKS] = answer(200, {"items": hooks})
    told = doctor(config=before(changes))

    check(told.besides(well), line)
    check([("", said) for said in told.lacks(well)], ("", "training operator 1.8"))


def test_an_operator_that_is_not_ready_and_whose_webhook_does_not_answer_is_wrong_twice(well, before):
    def stop(status: int, body: Any) -> tuple[int, Any]:
        for item in body["items"]:
            item["status"] = {"replicas": 1, "unavailableReplicas": 1}
        return status, body

    message = (
        'Internal error occurred: failed calling webhook "validator.tfjob.training-operator.kubeflow.org"'
    )
    refused = answer(500, {"kind": "Status", "message": message, "code": 500})
    jobs = f"{GROUP}/namespaces/{NAMESPACE}/tfjobs"
    told = doctor(config=before({("GET", DEPLOYMENTS): stop, ("POST", jobs): refused}))

    check(
        told.besides(well),
        ("WRONG", r"the training operator \(kubeflow/training-operator\) is not ready"),
        ("WRONG", "a TFJob like those of a run is not taken: .*failed calling webhook"),
    )
    assert "kubectl -n kubeflow describe" in told.text


def test_a_cluster_that_does_not_say_its_schemas_is_asked_all_else(well, before):
    told = doctor(config=before({("GET", OPENAPI): answer(404, "")}))

    check(told.besides(well), ("-", "cannot tell the training operator's version: 404"))


def test_an_api_server_that_goes_away_ends_it_with_one_line_on_that(well, before):
    told = doctor(config=before({("GET", "/api/v1/nodes"): BREAK}))

    check(told.besides(well), ("WRONG", r"the API server at http://127.* does not answer .*nothing more was"))
    assert all("image" in said or "store s3" in said for said in told.lacks(well))


@pytest.mark.parametrize(
    ("change", "pattern"),
    [
        (answer(200, "<html>log in</html>"), "what answers at http.* is no Kubernetes API server"),
        (BREAK, "the API server at http.* does not answer"),
    ],
)
def test_what_is_no_api_server_is_told(before, change, pattern):
    told = doctor(config=before({("GET", "/version"): change}))

    check([line for line in told.lines if line[0] == "WRONG"], ("WRONG", pattern))
    assert "Kubernetes 1" not in told.text
    assert "--on here" in told.text


def test_a_token_that_is_not_valid_is_one_line_that_says_to_log_in_again(well, tmp_path):
    told = doctor(config=kubeconfig(tmp_path / "config", api.configuration().host, "no-such-token"))

    check(told.besides(well), ("WRONG", "the API server at https.* does not accept our credentials: 401"))
    assert "log in again" in told.text
    assert "no-such-token" not in told.text


def test_what_this_environment_says_of_the_store_is_told_to_go_before(well, s3_server):
    keys = {"AWS_ACCESS_KEY_ID": s3_server.access_key, "AWS_SECRET_ACCESS_KEY": s3_server.secret_key}
    told = doctor(**keys)

    check(
        told.besides(well), ("warn", "AWS_ACCESS_KEY_ID of this environment went before what pods are given")
    )
    assert s3_server.secret_key not in told.text
    assert s3_server.access_key not in told.text


def test_a_store_that_pods_cannot_reach_is_wrong(well, tmp_path):
    told = doctor("--store", str(tmp_path))

    check(told.besides(well), ("WRONG", "pods cannot reach the store .*: give --store s3://"))


def test_gpus_an_image_and_labels_that_no_node_has_are_told(well):
    pods = {"image": "nobody/has-this:1", "node_selector": {"fourfold/none": "such"}}
    asked = doctor("--gpus", "64", "--pods", json.dumps({"image": pods["image"]}))
    check(
        asked.besides(well),
        ("warn", "image nobody/has-this:1 is on no node, and its name says no registry"),
        ("WRONG", "64 nvidia.com/gpu for each worker are wanted; of .* nodes that take such pods none has"),
    )
    assert "images/build" in asked.text
    assert "--gpus" in asked.text
    check(
        doctor("--pods", json.dumps({"node_selector": pods["node_selector"]})).besides(well),
        ("warn", "of .* nodes none is ready, open for pods and labelled .'fourfold/none': 'such'."),
    )


def test_a_namespace_that_the_configmap_says_counts_no_more_than_it_does_for_a_run(well, before):
    def elsewhere(status: int, body: Any) -> tuple[int, Any]:
        body["data"]["FOURFOLD_PODS"] = '{"namespace": "elsewhere", "cpu": "250m"}'
        return status, body

    told = doctor(config=before({("GET", f"/api/v1/namespaces/{NAMESPACE}/configmaps/fourfold"): elsewhere}))

    assert told.lines == well.lines
