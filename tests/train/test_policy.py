"""The network policies of a namespace, evaluated as a cluster does: who reaches the port of which worker."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from fourfold.contract import plan as plans
from fourfold.contract.pods import Pods
from fourfold.contract.records import Training
from fourfold.train import tfjob

TRAINING = Training("data_parallel", 2, "s3://bucket/store", "f" * 32, "a" * 16, "s3://bucket/out")
CLOSED = yaml.safe_load(
    (Path(__file__).parents[2] / "manifests" / "base" / "network.yaml").read_text(encoding="utf-8")
)


def build(run: str, **training: Any) -> dict[str, Any]:
    return tfjob.build(replace(TRAINING, **training), Pods(namespace="team"), run)


def pod_of(job: dict[str, Any], index: int = 0) -> dict[str, str]:
    """The labels of a pod as the operator makes it."""
    return {
        **job["spec"]["tfReplicaSpecs"]["Worker"]["template"]["metadata"]["labels"],
        "training.kubeflow.org/job-name": job["metadata"]["name"],
        "training.kubeflow.org/operator-name": "tfjob-controller",
        "training.kubeflow.org/replica-index": str(index),
        "training.kubeflow.org/replica-type": "worker",
    }


def selects(selector: dict[str, Any], labels: dict[str, str]) -> bool:
    assert set(selector) <= {"matchLabels"}
    return selector.get("matchLabels", {}).items() <= labels.items()


def admits(
    policies: list[dict], target: dict[str, str], source: dict[str, str], port: int, away=False
) -> bool:
    """Whether a pod gets through to a port of another; ``away`` where it is in another namespace."""
    mine = [
        policy["spec"]
        for policy in policies
        if selects(policy["spec"]["podSelector"], target) and "Ingress" in policy["spec"]["policyTypes"]
    ]
    return not mine or any(
        _lets_in(rule, source, port, away) for spec in mine for rule in spec.get("ingress", [])
    )


def _lets_in(rule: dict[str, Any], source: dict[str, str], port: int, away: bool) -> bool:
    assert set(rule) <= {"from", "ports"}
    ports = [item["port"] for item in rule.get("ports", []) if item.get("protocol", "TCP") == "TCP"]
    if "ports" in rule and port not in ports:
        return False
    for peer in rule.get("from", []):
        assert set(peer) == {"podSelector"}, "this evaluator knows peers of the same namespace alone"
    inside = [peer for peer in rule.get("from", []) if selects(peer["podSelector"], source)]
    return not rule.get("from") or (bool(inside) and not away)


JOB, OTHER_RUN, OTHER_TRAINING = build("one"), build("two"), build("one", seed=1)
POLICIES = [CLOSED, tfjob.policy(JOB)]
STRANGERS = {
    "a pod of another run": pod_of(OTHER_RUN),
    "a pod of another training of the run": pod_of(OTHER_TRAINING),
    "a pod of the next attempt": pod_of(tfjob.build(TRAINING, Pods(), "one", attempt=2)),
    "a pod without labels": {},
    "a worker of no job": {"app.kubernetes.io/name": "fourfold-worker"},
    "the launcher of the run": {"app.kubernetes.io/name": "fourfold-experiment", tfjob.RUN: "one"},
    "a pod of the run and scenario": {tfjob.RUN: "one", tfjob.SCENARIO: "data_parallel"},
}


def test_pods_of_a_job_reach_each_other_at_tensorflows_port():
    for target, source in ((0, 1), (1, 0), (0, 0)):
        assert admits(POLICIES, pod_of(JOB, target), pod_of(JOB, source), 2222)


@pytest.mark.parametrize("port", [22, 80, 2221, 2223, 8080])
def test_they_reach_no_other_port(port):
    assert not admits(POLICIES, pod_of(JOB), pod_of(JOB, 1), port)


@pytest.mark.parametrize("who", STRANGERS)
@pytest.mark.parametrize("policies", [POLICIES, POLICIES[1:]], ids=["with the closing one", "alone"])
def test_nobody_else_reaches_them(who, policies):
    assert not admits(policies, pod_of(JOB), STRANGERS[who], 2222)


def test_nobody_reaches_them_from_another_namespace_whatever_its_labels():
    assert not admits(POLICIES, pod_of(JOB), pod_of(JOB, 1), 2222, away=True)


def test_the_policy_of_a_job_opens_no_other_job():
    assert not admits(POLICIES, pod_of(OTHER_RUN), pod_of(OTHER_RUN, 1), 2222)
    assert not admits(POLICIES, pod_of(OTHER_RUN), pod_of(JOB), 2222)


def test_the_policies_of_two_jobs_open_each_to_itself():
    both = [CLOSED, tfjob.policy(JOB), tfjob.policy(OTHER_RUN)]
    for job, other in ((JOB, OTHER_RUN), (OTHER_RUN, JOB)):
        assert admits(both, pod_of(job), pod_of(job, 1), 2222)
        assert not admits(both, pod_of(job), pod_of(other), 2222)


@pytest.mark.parametrize("scenario", plans.names())
def test_without_a_policy_of_its_own_a_job_is_closed(scenario):
    job = build("one", scenario=scenario)
    assert not admits([CLOSED], pod_of(job), pod_of(job, 1), 2222)
    assert not admits([CLOSED], pod_of(job), {}, 2222)


@pytest.mark.parametrize("scenario", plans.names())
@pytest.mark.parametrize("workers", [1, 2, 3])
def test_a_policy_is_needed_where_workers_talk_while_they_train(scenario, workers):
    needed = tfjob.needs_policy(replace(TRAINING, scenario=scenario, workers=workers))
    assert needed == (plans.scenario(scenario).exchanges and workers > 1)


def test_which_scenarios_need_a_policy():
    needed = {name: tfjob.needs_policy(replace(TRAINING, scenario=name)) for name in plans.names()}
    assert needed.items() >= {"sequential": False, "data_parallel": True, "solo": False}.items()


def test_the_policy_is_in_the_jobs_namespace_and_goes_with_it():
    created = {**JOB, "metadata": {**JOB["metadata"], "uid": "the-uid"}}
    policy = tfjob.policy(created)
    assert (policy["apiVersion"], policy["kind"]) == ("networking.k8s.io/v1", "NetworkPolicy")
    assert policy["metadata"]["name"] == f"{JOB['metadata']['name']}-the-uid"
    assert policy["metadata"]["namespace"] == "team"
    assert policy["metadata"]["ownerReferences"] == [
        {"apiVersion": "kubeflow.org/v1", "kind": "TFJob", "name": JOB["metadata"]["name"], "uid": "the-uid"}
    ]
    assert "ownerReferences" not in tfjob.policy(JOB)["metadata"]
