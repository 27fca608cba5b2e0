"""What a cluster's answers mean: versions, the operator, namespaces, rights, admission."""

import json
from itertools import chain

import pytest
from hypothesis import given, strategies as st

from fourfold.contract.pods import Pods
from fourfold_pipelines.doctor import cluster, namespace, nodes, rights, training_operator
from fourfold_pipelines.doctor.asking import RefusedError
from tests.manifests.test_rights import ROLE, granted
from tests.pipelines.doctor import answers
from tests.pipelines.doctor.answers import (
    DEPLOYMENTS,
    ENDPOINTS,
    IN_NAMESPACE,
    KINDS,
    NAMESPACE,
    POLICY,
    SCHEMA,
    SERVICE,
    WEBHOOKS,
    Answers,
    only,
    said,
)

FORBIDDEN = RefusedError(403, 'x is forbidden: User "u" cannot list resource "x"')
ENDPOINT = "http://s3.data:9000"


def operator(*changes):
    return list(training_operator.check(Answers(*changes)))


def everything(asks):
    """All that is asked of a cluster."""
    pods = Pods(gpus=1)
    found, finding = namespace.settings(asks, NAMESPACE)
    assert found is not None
    return list(
        chain(
            [finding],
            cluster.version(asks),
            training_operator.check(asks),
            namespace.check(asks, NAMESPACE, pods, ["fourfold"]),
            namespace.server(asks, ENDPOINT),
            rights.launching(asks, NAMESPACE, "this user"),
            rights.reaching(asks, NAMESPACE, "fourfold", "fourfold-s3", "data"),
            rights.of_accounts(asks, NAMESPACE, ["fourfold"]),
            cluster.admission(asks, NAMESPACE, pods),
            nodes.check(asks, pods),
        )
    )


def test_where_all_is_well_every_line_but_the_one_on_gpus_is_well():
    found = everything(Answers())

    assert [finding.level for finding in found[:-1]] == ["ok"] * (len(found) - 1)
    said(found[-1], "wrong", "GPU|gpu")


REFUSALS = st.dictionaries(
    st.sampled_from(sorted(answers.well())), st.sampled_from([403, 404, 429, 500, 503]), max_size=8
)


@given(REFUSALS)
def test_whatever_is_refused_each_line_is_right_and_says_what_to_do(refused):
    found = everything(
        Answers({path: RefusedError(status, f"why {status}") for path, status in refused.items()})
    )

    assert len(found) >= 8
    for finding in found:
        assert finding.said
        assert finding.do or finding.level in ("ok", "skipped"), finding


@given(st.sets(st.sampled_from(sorted(answers.well())), min_size=1))
def test_a_question_that_may_not_be_asked_makes_nothing_wrong(forbidden):
    message = 'things is forbidden: User "u" cannot create resource "things"'
    asks = Answers({path: RefusedError(403, message) for path in forbidden})

    found = [finding for finding in everything(asks) if "gpu" not in finding.said]
    assert {finding.level for finding in found} <= {"ok", "skipped"}, found


def test_no_answer_can_bring_a_secrets_value_into_a_line():
    for held in (answers.secret("other"), answers.secret("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")):
        found = everything(Answers({f"{IN_NAMESPACE}/secrets/fourfold-s3": held}))
        told = json.dumps([(finding.said, finding.do) for finding in found])
        assert "c2VjcmV0" not in told
        assert "secret-value" not in told


@pytest.mark.parametrize(
    ("answer", "level", "pattern"),
    [
        ({"gitVersion": "v1.34.9"}, "ok", "Kubernetes 1.34.9"),
        ({"gitVersion": "v1.29.0"}, "warn", "Kubernetes 1.29.0 was not tested, 1.34 was"),
        ({}, "warn", "of unknown version"),
        (FORBIDDEN, "skipped", "cannot ask for Kubernetes' version: 403"),
    ],
)
def test_the_clusters_version(answer, level, pattern):
    said(only(cluster.version(Answers({"/version": answer}))), level, pattern)


@pytest.mark.parametrize("kinds", [RefusedError(404, "Not Found"), {"resources": [{"name": "mpijobs"}]}])
def test_without_tfjobs_there_is_no_operator_and_nothing_else_is_said_of_it(kinds):
    found = operator({KINDS: kinds})

    said(only(found), "wrong", "does not know TFJobs: there is no training operator$", "manifests/install")


def test_trainer_v2_is_told_from_the_operator():
    found = operator({KINDS: RefusedError(404, ""), "/apis/trainer.kubeflow.org/v1alpha1": {}})

    said(only(found), "wrong", "no training operator .*Trainer v2 is there, and has no TFJobs")


@pytest.mark.parametrize(
    ("policy", "webhooks", "level", "pattern"),
    [
        (POLICY, True, "ok", "^training operator 1.8 "),
        (POLICY, False, "warn", "is 1.7 .it validates nothing., 1.8 was tested"),
        (POLICY, None, "ok", "1.7 or 1.8"),
        ((*POLICY, "managedBy"), True, "warn", "1.9 or later .* was not tested, 1.8 was"),
        (set(POLICY) - {"suspend"}, False, "warn", "older than 1.7"),
        (set(POLICY) - {"ttlSecondsAfterFinished"}, True, "wrong", "too old: .*no ttlSecondsAfterFinished$"),
    ],
)
def test_the_operators_version_is_told_by_what_its_tfjob_has(policy, webhooks, level, pattern):
    hooks = {True: {}, False: {WEBHOOKS: {"items": [{"webhooks": None}, {}]}}, None: {WEBHOOKS: FORBIDDEN}}
    version, runs = operator({SCHEMA: answers.schema(*policy)}, hooks[webhooks])

    said(version, level, pattern)
    said(runs, "ok", "runs .kubeflow/training-operator")


def test_an_operator_whose_spec_lacks_a_field_is_too_old():
    version, _ = operator({SCHEMA: answers.schema(*POLICY, spec=("tfReplicaSpecs",))})

    said(version, "wrong", "too old: its TFJob has no successPolicy", "1.8.1")


@pytest.mark.parametrize(
    "schema",
    [
        RefusedError(404, "Not Found"),
        FORBIDDEN,
        {},
        {"components": {"schemas": {}}},
        {
            "components": {
                "schemas": {"org.kubeflow.v1.TFJob": {"x-kubernetes-preserve-unknown-fields": True}}
            }
        },
        {"components": {"schemas": None}},
    ],
)
def test_a_cluster_that_does_not_say_the_fields_leaves_the_version_open(schema):
    version, runs = operator({SCHEMA: schema})

    said(version, "skipped", "cannot tell the training operator's version")
    said(runs, "ok", "runs")


@pytest.mark.parametrize("ready", [0, None])
def test_an_operator_that_is_not_ready_is_wrong_with_the_command_that_says_why(ready):
    _, runs = operator({DEPLOYMENTS: {"items": [answers.deployment(ready)]}})

    said(runs, "wrong", "kubeflow/training-operator. is not ready", "kubectl -n kubeflow describe .*pods -l")


def test_an_operator_of_which_no_deployment_is_seen_may_work_and_one_that_may_not_be_seen_is_left_open():
    said(operator({DEPLOYMENTS: {"items": []}})[1], "warn", "no deployment", "manifests/install")
    said(operator({DEPLOYMENTS: FORBIDDEN})[1], "skipped", "cannot see whether the training operator runs")


def test_a_namespace_is_missing_only_if_the_cluster_says_so():
    assert cluster.has(Answers(), NAMESPACE)
    assert cluster.has(Answers({IN_NAMESPACE: FORBIDDEN}), NAMESPACE)
    assert not cluster.has(Answers(), "bob")


def test_what_the_manifests_make_is_missed_by_name_with_the_way_to_get_it():
    missing = {path: RefusedError(404, "") for path in answers.well() if path.startswith(f"{IN_NAMESPACE}/")}
    asks = Answers(missing)
    settings, finding = namespace.settings(asks, NAMESPACE)
    found = [finding, *namespace.check(asks, NAMESPACE, Pods(), ["fourfold"])]

    assert settings == {}
    assert [finding.said for finding in found] == [
        f"there is no {what} in namespace {NAMESPACE}"
        for what in (
            "ConfigMap fourfold",
            "service account fourfold",
            "service account fourfold-worker",
            "Secret fourfold-s3",
        )
    ]
    assert all(finding.level == "wrong" for finding in found)
    assert ["kubectl apply -k" in finding.do for finding in found] == [True, True, True, False]
    assert "secret.template.yaml" in found[-1].do


def test_a_configmap_without_the_endpoint_is_wrong_unless_pods_are_told_another():
    asks = Answers({f"{IN_NAMESPACE}/configmaps/fourfold": {}})

    assert [f.said for f in namespace.check(asks, NAMESPACE, Pods(), []) if f.level != "ok"] == [
        f"ConfigMap fourfold in namespace {NAMESPACE} has no AWS_ENDPOINT_URL_S3, which pods are given"
    ]
    for pods in (Pods(endpoint=ENDPOINT), Pods(config="")):
        assert all(finding.level == "ok" for finding in namespace.check(asks, NAMESPACE, pods, []))


def test_pods_are_asked_for_by_the_names_that_they_are_given():
    pods = Pods(service_account="mine", secret="minio", access_key="a", secret_key="b", config="other")
    asks = Answers({f"{IN_NAMESPACE}/secrets/minio": answers.secret("a", "c")})
    account, config, secret = namespace.check(asks, NAMESPACE, pods, [])

    said(account, "wrong", "no service account mine ")
    said(config, "wrong", "no ConfigMap other ", "--pods")
    said(secret, "wrong", "Secret minio has nothing under b; it has a, c$", "access_key, secret_key")


def test_no_secret_is_looked_for_where_pods_name_none():
    path = f"{IN_NAMESPACE}/secrets/fourfold-s3"
    found = namespace.check(Answers({path: RefusedError(404, "")}), NAMESPACE, Pods(secret=""), ["fourfold"])

    assert all(finding.level == "ok" for finding in found)


def test_an_empty_value_in_a_secret_is_none():
    held = {"data": {"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": "eA=="}}
    *_, found = namespace.check(Answers({f"{IN_NAMESPACE}/secrets/fourfold-s3": held}), NAMESPACE, Pods(), [])

    said(found, "wrong", "has nothing under AWS_ACCESS_KEY_ID;")


@pytest.mark.parametrize(
    ("endpoint", "changes", "pattern"),
    [
        ("http://none.data.svc:9000", {}, "no service none in namespace data, as AWS_ENDPOINT_URL_S3"),
        ("http://s3.data:80", {}, "service s3 in namespace data has no port 80, .*it has 9000"),
        (ENDPOINT, {ENDPOINTS: {}}, "no pod of service s3 in namespace data, the S3 server, is ready"),
        (ENDPOINT, {ENDPOINTS: RefusedError(404, "")}, "no pod of service s3"),
        (ENDPOINT, {ENDPOINTS: {"subsets": [{"notReadyAddresses": [{}]}]}}, "no pod of service s3"),
    ],
)
def test_a_server_in_the_cluster_that_is_not_there_is_wrong(endpoint, changes, pattern):
    said(
        only(namespace.server(Answers(changes), endpoint)), "wrong", pattern, "kustomization|kubectl -n data"
    )


@pytest.mark.parametrize("endpoint", ["", ENDPOINT, "https://s3.amazonaws.com", "http://10.0.0.1:9000"])
def test_of_a_server_that_is_there_or_elsewhere_nothing_is_said(endpoint):
    assert list(namespace.server(Answers(), endpoint)) == []


def test_a_server_that_may_not_be_looked_at_is_left_open():
    said(only(namespace.server(Answers({SERVICE: FORBIDDEN}), ENDPOINT)), "skipped", "cannot see service s3")
    assert list(namespace.server(Answers({ENDPOINTS: FORBIDDEN}), ENDPOINT)) == []


def test_the_launchers_rights_are_those_of_the_role_in_the_manifests():
    wanted = [
        (group, f"{what}/{part}" if part else what, verb) for group, what, part, verb in rights.LAUNCHER
    ]

    assert sorted(wanted) == sorted(granted(ROLE))


def test_what_is_refused_is_named_right_by_right_and_nothing_else():
    def review(body):
        asked = body["spec"]["resourceAttributes"]
        assert asked["namespace"] == body["metadata"]["namespace"] == NAMESPACE
        refused = [("tfjobs", "", "watch"), ("pods", "log", "get")]
        return {
            "status": {"allowed": (asked["resource"], asked["subresource"], asked["verb"]) not in refused}
        }

    asks = Answers({answers.OWN_REVIEWS: review})
    found = only(rights.launching(asks, NAMESPACE, "this user"))
    assert found.said == f"this user may not watch tfjobs, get pods/log in namespace {NAMESPACE}"
    assert "Role fourfold" in found.do
    assert len(asks.sent) == len(rights.LAUNCHER)


def test_reaching_the_store_is_asked_by_name_and_in_its_servers_own_namespace():
    asks = Answers({answers.OWN_REVIEWS: {"status": {"allowed": False}}})
    read, forward = rights.reaching(asks, NAMESPACE, "fourfold", "minio", "data")

    said(read, "wrong", f"not get configmaps fourfold, get secrets minio in namespace {NAMESPACE}$", "`edit`")
    said(
        forward, "wrong", "not get services, get endpoints, get pods/portforward in namespace data$", "`edit`"
    )
    said(
        only(rights.reaching(asks, NAMESPACE, "fourfold", "", "")), "wrong", "not get configmaps fourfold in"
    )


def test_a_service_account_is_asked_for_as_the_user_that_it_is():
    asks = Answers()
    found = only(rights.of_accounts(asks, NAMESPACE, ["editor"]))

    said(found, "ok", "service account editor may do all that launching takes")
    assert {path for path, _ in asks.sent} == {answers.REVIEWS}
    for _, body in asks.sent:
        assert body["spec"]["user"] == f"system:serviceaccount:{NAMESPACE}:editor"
        assert f"system:serviceaccounts:{NAMESPACE}" in body["spec"]["groups"]


def test_a_tfjob_and_a_pod_are_tried_and_never_created():
    asks = Answers()
    found = list(cluster.admission(asks, NAMESPACE, Pods(namespace="elsewhere", memory="3Gi")))

    assert [finding.level for finding in found] == ["ok", "ok"]
    assert [path for path, _ in asks.sent] == [answers.TFJOBS, answers.PODS]
    assert all(path.endswith("?dryRun=All") for path, _ in asks.sent)
    assert all("namespace" not in body["metadata"] for _, body in asks.sent)
    (container,) = asks.sent[1][1]["spec"]["containers"]
    assert container["resources"]["limits"]["memory"] == "3Gi"


@pytest.mark.parametrize(
    ("error", "level", "pattern"),
    [
        (RefusedError(404, "page not found"), "skipped", "no {} was tried: the cluster knows none"),
        (RefusedError(403, 'User "u" cannot create resource "x"'), "skipped", "no {} was tried: User"),
        (
            RefusedError(403, "exceeded quota: small"),
            "wrong",
            "a {} like those of a run is not taken: exceeded",
        ),
        (RefusedError(500, "failed calling webhook"), "wrong", "a {} .* not taken: failed calling webhook"),
        (
            RefusedError(400, "admission webhook denied"),
            "wrong",
            "a {} .* not taken: admission webhook denied",
        ),
    ],
)
def test_what_refuses_a_tfjob_or_a_pod_is_told(error, level, pattern):
    asks = Answers({answers.TFJOBS: error, answers.PODS: error})
    found = list(cluster.admission(asks, NAMESPACE, Pods()))

    for finding, what in zip(found, ("TFJob", "pod"), strict=True):
        said(finding, level, pattern.format(what))
        assert bool(finding.do) == (level == "wrong")
