"""``fourfold doctor`` on a real cluster, with faults that are real in a namespace of their own.

Each time the lines that differ from those of the cluster that is well are exactly the ones that the fault
explains.
"""

import base64
import json
import re

import pytest

from tests.cluster.doctor.made import as_account, give, give_account, make
from tests.cluster.doctor.told import besides, check, doctor
from tests.conftest import NAMESPACE, kubectl

pytestmark = pytest.mark.cluster


def test_an_account_without_rights_is_told_what_it_may_not_ask_and_what_it_lacks(installed, tmp_path):
    kubectl("-n", installed, "create", "serviceaccount", "nobody")
    told = doctor("--namespace", installed, config=as_account(installed, "nobody", tmp_path))

    lines = [line for line in told.lines if line[0] in ("-", "WRONG")]
    words = "training operator 1.7 or 1.8 (by its fields; we may not ask whether it validates)"
    assert ("ok", words) in told.lines
    check(
        lines,
        ("-", "cannot see whether the training operator runs: deployments.apps is forbidden"),
        ("-", f"cannot see ConfigMap fourfold in namespace {installed}: .*forbidden"),
        ("-", "cannot see service account fourfold in"),
        ("-", "cannot see service account fourfold-worker in"),
        ("-", "cannot see Secret fourfold-s3 in"),
        ("WRONG", "this user may not create tfjobs, .*create networkpolicies in namespace doctor-"),
        ("WRONG", "this user may not get configmaps fourfold, get secrets fourfold-s3 in namespace doctor-"),
        ("-", "cannot ask what service account fourfold may do in namespace doctor-"),
        ("-", "no TFJob was tried: tfjobs.kubeflow.org is forbidden"),
        ("-", "no pod was tried: pods is forbidden"),
        ("-", "cannot see the nodes, so neither their images nor their GPUs"),
        ("-", f"the store was not tried: cannot read ConfigMap fourfold in namespace {installed}: 403"),
    )


def test_an_account_with_the_launchers_role_may_launch_and_not_reach_the_store(installed, tmp_path):
    told = doctor("--namespace", installed, config=as_account(installed, "fourfold", tmp_path))

    check(
        [line for line in told.lines if line[0] == "WRONG"],
        ("WRONG", "this user may not get configmaps fourfold, get secrets fourfold-s3 in namespace doctor-"),
    )
    assert ("ok", f"this user may do all that launching takes in namespace {installed}") in told.lines
    assert ("ok", "a TFJob like those of a run would be taken") in told.lines
    assert "no pod was tried: pods is forbidden" in told.text
    assert "`edit`" in told.text


def test_an_installation_whose_store_is_in_another_namespace_is_well(installed, well, s3_server):
    """Pods of a namespace with the strictest of Kubernetes' pod security standards."""
    kubectl("label", "namespace", installed, "pod-security.kubernetes.io/enforce=restricted")
    told = doctor("--namespace", installed)

    assert [said.replace(installed, NAMESPACE) for _, said in told.lines] == [said for _, said in well.lines]
    assert f"this user may do all that reaching the store takes in namespace {NAMESPACE}" in told.text
    assert f"fourfold run --on cluster --namespace {installed}" in told.text
    assert s3_server.secret_key not in told.text


def test_an_endpoint_of_a_service_that_is_not_there_is_told_and_the_store_not_tried(installed, well):
    give(installed, AWS_ENDPOINT_URL_S3=f"http://none.{installed}.svc:8333")
    told = doctor("--namespace", installed)

    check(
        besides(told, well, installed),
        ("WRONG", f"there is no service none in namespace {installed}, as AWS_ENDPOINT_URL_S3"),
        ("-", "the store was not tried: its server is not there"),
    )
    assert "kustomization.yaml" in told.text


def test_a_server_with_another_port_or_without_a_pod_is_told(installed, well):
    make(installed, "Service", "empty", spec={"ports": [{"port": 80}], "selector": {"app": "none"}})
    for port, words in (
        (80, "no pod of service empty in"),
        (81, "service empty .*has no port 81, .*it has 80"),
    ):
        give(installed, AWS_ENDPOINT_URL_S3=f"http://empty.{installed}:{port}")

        found = besides(doctor("--namespace", installed), well, installed)
        check(found, ("WRONG", words), ("-", "the store was not tried: its server"))


def test_an_endpoint_that_is_no_s3_server_is_told_by_its_own_name(installed, well):
    give(installed, AWS_ENDPOINT_URL_S3="http://127.0.0.1:9")
    told = doctor("--namespace", installed)

    check(besides(told, well, installed), ("WRONG", "store s3://fourfold cannot be written: .*127.0.0.1:9"))


def test_a_secret_with_other_keys_is_told_by_the_names_that_it_has(installed, well):
    kubectl("-n", installed, "delete", "secret", "fourfold-s3")
    give_account(installed, "an-access-key", "a-secret-key", prefix="MINIO_")
    told = doctor("--namespace", installed)

    check(
        besides(told, well, installed),
        (
            "WRONG",
            "Secret fourfold-s3 has nothing under AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY; "
            "it has MINIO_ACCESS_KEY_ID, MINIO_SECRET_ACCESS_KEY$",
        ),
        ("-", "the store was not tried: Secret fourfold-s3 .* has no key AWS_ACCESS_KEY_ID"),
    )
    for value in ("an-access-key", "a-secret-key"):
        assert value not in told.text
        assert base64.b64encode(value.encode()).decode() not in told.text


def test_an_account_that_the_server_does_not_know_is_told_without_its_keys(installed, well, s3_server):
    for access, secret, words in (
        ("who-is-this", "not-a-secret-key", "InvalidAccessKeyId"),
        (s3_server.access_key, "not-a-secret-key", "SignatureDoesNotMatch"),
    ):
        give_account(installed, access, secret)
        told = doctor("--namespace", installed)

        found = besides(told, well, installed)
        check(found, ("WRONG", f"store s3://fourfold cannot be written: .* at http://seaweedfs.*{words}"))
        assert "give an account" in told.do[found[0][1]]
        assert not [value for value in (access, secret) if value in told.text]


def test_a_namespace_without_manifests_misses_each_thing_once(namespace, well):
    told = doctor("--namespace", namespace)

    check(
        besides(told, well, namespace),
        ("WRONG", f"there is no ConfigMap fourfold in namespace {namespace}"),
        ("WRONG", f"there is no service account fourfold in namespace {namespace}"),
        ("WRONG", f"there is no service account fourfold-worker in namespace {namespace}"),
        ("WRONG", f"there is no Secret fourfold-s3 in namespace {namespace}"),
        ("-", "no pod was tried: its service account is not there"),
        ("-", "the store was not tried: there is no ConfigMap fourfold"),
    )
    assert "kubectl apply -k" in told.text


def test_a_namespace_that_is_not_there_is_one_line(well):
    told = doctor("--namespace", "doctor-none-such")

    check(
        told.besides(well),
        ("WRONG", "there is no namespace doctor-none-such$"),
        ("-", "what belongs into namespace doctor-none-such was not asked for"),
    )


def test_a_quota_that_refuses_a_tfjob_or_its_pods_is_named(installed, well):
    kubectl(
        "-n", installed, "create", "quota", "small", "--hard=requests.cpu=10m,count/tfjobs.kubeflow.org=0"
    )
    wanted = ("WRONG", "a TFJob like .*not taken: .*small"), ("WRONG", "a pod like .*not taken: .*small")
    for _ in range(20):
        found = besides(doctor("--namespace", installed), well, installed)
        if len(found) == 2:  # a quota counts once its controller has seen it
            break
    check(found, *wanted)


def test_what_a_profile_lets_an_account_do_is_asked_for_it(installed, well):
    kubectl("-n", installed, "create", "serviceaccount", "default-editor")
    accounts = ("--service-account", "fourfold", "--service-account", "default-editor")
    told = doctor("--namespace", installed, *accounts)

    check(
        besides(told, well, installed),
        ("ok", f"service account default-editor in namespace {installed}"),
        ("WRONG", "service account default-editor may not create tfjobs, .*create networkpolicies in"),
    )
    assert "manifests/overlays/kubeflow" in told.text


def test_a_configmap_whose_pods_cannot_be_used_is_told(installed, well):
    give(installed, FOURFOLD_PODS='{"gpu": 1}')
    told = doctor("--namespace", installed)

    found = besides(told, well, installed)
    assert found[0][0] == "WRONG"
    assert re.match("FOURFOLD_PODS of ConfigMap fourfold cannot be used: .*did you mean 'gpus'", found[0][1])
    check(found[1:], ("-", "the store was not tried: pods has no field 'gpu'"))


def test_jobs_in_another_namespace_than_the_manifests_are_asked_for_there(installed, well):
    told = doctor("--pods", json.dumps({"namespace": installed}))

    assert ("ok", f"ConfigMap fourfold in namespace {NAMESPACE}") in told.lines
    assert ("ok", f"service account fourfold-worker in namespace {installed}") in told.lines
    assert ("ok", f"this user may do all that launching takes in namespace {installed}") in told.lines
    assert besides(told, well, installed) == []
