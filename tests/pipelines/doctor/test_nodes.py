"""Nodes: images and GPUs on those that pods of a run may go to."""

import pytest

from fourfold.contract import images
from fourfold.contract.pods import Pods
from fourfold_pipelines.doctor import nodes
from fourfold_pipelines.doctor.asking import RefusedError
from tests.pipelines.doctor.answers import NODES, Answers, node, said

BOTH = (images.WORKER, images.STEPS)
TAINT = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}


def check(*items, **pods):
    return list(nodes.check(Answers({NODES: {"items": list(items)}}), Pods(**pods)))


def test_images_on_every_node_are_well_whatever_registry_their_names_are_said_with():
    one, two = node("one", *BOTH), node("two", *BOTH)
    two["status"]["images"] = [{"names": [image, f"{image}-other"]} for image in BOTH]

    assert [finding.said for finding in check(one, two)] == [
        f"image {each} is on 2 of 2 nodes" for each in BOTH
    ]


def test_an_image_on_some_nodes_only_is_a_warning():
    worker, steps = check(node("one", *BOTH), node("two", images.STEPS), node("three", images.STEPS))

    said(worker, "warn", "python-worker.* is on 1 of 3 nodes, and its name says no registry", "every node")
    said(steps, "ok", "3 of 3")


def test_an_image_on_no_node_is_a_warning_with_the_ways_to_get_it_there():
    for finding in check(node("one", "other:1")):
        said(
            finding, "warn", "is on no node, and its name says no registry", "images/build.*kind load.*image"
        )


@pytest.mark.parametrize("registry", ["ghcr.io/me", "localhost:5000", "localhost", "registry:5000/a/b"])
def test_an_image_whose_name_says_a_registry_will_be_fetched(registry):
    worker, _ = check(node("one", *BOTH), image=f"{registry}/worker:1")

    said(worker, "ok", f"will be fetched|nodes will fetch it from {registry.partition('/')[0]}$")


def test_a_name_on_docker_hub_alone_is_no_registry():
    worker, _ = check(node("one", *BOTH), image="me/worker:1")

    said(worker, "warn", "no registry")


def test_nodes_that_take_no_pods_do_not_count():
    held = node("held", unschedulable=True)
    lost = node("lost")
    lost["status"]["conditions"] = [{"type": "Ready", "status": "Unknown"}]
    tainted = node(
        "tainted", taints=[{"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"}]
    )

    for finding in check(node("one", *BOTH), held, lost, tainted):
        said(finding, "ok", "1 of 1 nodes")
    said(check(held, lost, tainted)[0], "warn", "of 3 nodes none is ready", "node_selector")
    said(check()[0], "warn", "of 0 nodes none is ready", "kubectl get nodes")


def test_nodes_that_may_not_be_listed_are_left_open():
    (found,) = nodes.check(Answers({NODES: RefusedError(403, "nodes is forbidden")}), Pods(gpus=1))

    said(found, "skipped", "cannot see the nodes, so neither their images nor their GPUs: nodes is forbidden")


@pytest.mark.parametrize(
    ("offered", "wanted", "level", "pattern"),
    [
        (
            (0, 0),
            1,
            "wrong",
            "1 nvidia.com/gpu for each worker are wanted; of 2 nodes .*none has more than 0",
        ),
        ((1, 1), 2, "wrong", "of 2 nodes .*none has more than 1"),
        ((2, 0), 2, "ok", "2 nvidia.com/gpu for each worker: 2 on 1 nodes"),
        ((4, 8), 8, "ok", ": 12 on 2 nodes"),
    ],
)
def test_each_worker_needs_its_gpus_on_one_node(offered, wanted, level, pattern):
    items = [node(f"n{place}", *BOTH, gpus=gpus) for place, gpus in enumerate(offered)]

    said(check(*items, gpus=wanted)[-1], level, pattern, "--gpus" if level == "wrong" else "^$")


def test_gpus_on_nodes_that_pods_may_not_go_to_do_not_count():
    labelled = node("far", *BOTH, gpus=4, labels={"pool": "gpu"})
    tainted = node("tainted", *BOTH, gpus=4, taints=[TAINT])

    said(check(labelled, gpus=1, node_selector={"pool": "gpu"})[-1], "ok", ": 4 on 1 nodes")
    found = check(labelled, node("near", *BOTH), gpus=1, node_selector={"pool": "other"})
    said(found[0], "warn", "of 2 nodes none is ready, open for pods and labelled .*other")
    said(found[-1], "wrong", "of 0 nodes with {'pool': 'other'}")
    said(check(tainted, node("one", *BOTH), gpus=1)[-1], "wrong", "of 1 nodes", "tolerations")


@pytest.mark.parametrize(
    ("toleration", "fits"),
    [
        ({"operator": "Exists"}, True),
        ({"operator": "Exists", "key": "nvidia.com/gpu"}, True),
        ({"operator": "Exists", "key": "nvidia.com/gpu", "effect": "NoSchedule"}, True),
        ({"key": "nvidia.com/gpu", "value": "present"}, True),
        ({"key": "nvidia.com/gpu", "operator": "Equal", "value": "present", "effect": "NoSchedule"}, True),
        ({"key": "nvidia.com/gpu", "value": "absent"}, False),
        ({"operator": "Exists", "key": "other"}, False),
        ({"operator": "Exists", "key": "nvidia.com/gpu", "effect": "NoExecute"}, False),
    ],
)
def test_a_taint_is_put_up_with_as_kubernetes_has_it(toleration, fits):
    found = check(node("one", *BOTH, gpus=1, taints=[TAINT]), gpus=1, tolerations=[toleration])

    assert found[-1].level == ("ok" if fits else "wrong")


def test_a_taint_that_only_prefers_other_pods_is_no_hindrance():
    soft = {"key": "a", "effect": "PreferNoSchedule"}

    assert all(finding.level == "ok" for finding in check(node("one", *BOTH, taints=[soft])))


def test_gpus_are_wanted_whichever_field_says_so():
    resources = {"limits": {"nvidia.com/gpu": "2", "memory": "4Gi"}}

    said(check(node("one", *BOTH, gpus=1), resources=resources)[-1], "wrong", "^2 nvidia.com/gpu")
    found = check(node("one", *BOTH), gpus=1, gpu_resource="amd.com/gpu")
    said(found[-1], "wrong", "1 amd.com/gpu")
    assert len(check(node("one", *BOTH), resources={"limits": {"memory": "4Gi"}})) == 2
