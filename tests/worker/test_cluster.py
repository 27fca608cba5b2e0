"""Who a worker is, whom it waits for, and that a strategy can be made when everything is imported."""

import json
import os
import subprocess
import sys
import types

import pytest

from fourfold.contract.errors import InvalidInputError
from fourfold.contract.plan import plan
from fourfold.worker import cluster

W = ["w0:2222", "w1:2222"]


def config(cluster_, kind, index):
    return json.dumps({"cluster": cluster_, "task": {"type": kind, "index": index}})


@pytest.mark.parametrize(
    ("text", "rank", "world"),
    [
        (None, 0, 1),
        ("", 0, 1),
        ("{}", 0, 1),
        ('{"cluster": {}}', 0, 1),
        ('{"task": {"type": "worker", "index": 0}}', 0, 1),
        (config({"worker": ["w0:2222"]}, "worker", 0), 0, 1),
        (config({"worker": W}, "worker", 0), 0, 2),
        (config({"worker": W}, "worker", 1), 1, 2),
        (config({"chief": ["c:1"], "worker": W}, "chief", 0), 0, 3),
        (config({"chief": ["c:1"], "worker": W}, "worker", 0), 1, 3),
        (config({"chief": ["c:1"], "worker": W}, "worker", 1), 2, 3),
        (config({"master": ["c:1"], "worker": W}, "master", 0), 0, 3),
        (config({"worker": W}, "worker", "1"), 1, 2),
    ],
)
def test_one_rule_says_who_is_chief(text, rank, world):
    role = cluster.read_tf_config(text)
    assert (role.rank, role.world) == (rank, world)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("not json", "not the JSON"),
        ("[1]", "not the JSON"),
        (config({"worker": W}, "worker", 2), "not in its cluster"),
        (config({"worker": W}, "worker", -1), "not in its cluster"),
        (config({"worker": W}, "chief", 0), "not in its cluster"),
        (config({"worker": W, "evaluator": ["e:1"]}, "evaluator", 0), "evaluator"),
        (config({"worker": W, "ps": ["p:1"]}, "worker", 0), "ps"),
        (config({"chief": ["a:1", "b:1"]}, "chief", 0), "2 chiefs"),
    ],
)
def test_a_cluster_that_cannot_train_is_refused(text, said):
    with pytest.raises(InvalidInputError, match=said):
        cluster.read_tf_config(text)


def test_a_worker_that_exchanges_nothing_is_a_cluster_of_one():
    role = cluster.Role(1, ("w0:1", "w1:1"))
    assert role.in_group(plan("solo", 2)) == cluster.Role(0, ("w1:1",))
    assert role.in_group(plan("data_parallel", 2)) == role
    assert cluster.read_tf_config(role.tf_config()) == role


def test_names_that_become_known_are_waited_for():
    clock = [0.0]
    role = cluster.Role(0, ("w0:1", "w1:1"))

    def resolve(host):
        if clock[0] < 3:
            raise OSError("unknown")

    def sleep(seconds):
        clock[0] += seconds

    assert cluster.wait_for_names(role, 10, resolve, lambda: clock[0], sleep) == []
    assert 3 <= clock[0] < 4


def test_names_that_stay_unknown_are_told_when_the_limit_is_reached():
    clock = [0.0]

    def resolve(host):
        raise OSError("unknown")

    def sleep(seconds):
        clock[0] += seconds

    role = cluster.Role(0, ("w0:1", "w1:1", "w2:1"))
    assert cluster.wait_for_names(role, 5, resolve, lambda: clock[0], sleep) == ["w1", "w2"]
    assert clock[0] == 5


def test_ports_are_held_and_all_different():
    held = cluster.hold_ports(8)
    ports = {sock.getsockname()[1] for sock in held}
    for sock in held:
        sock.close()
    assert len(ports) == 8


class AskedError(Exception):
    """What a strategy was asked for."""


@pytest.mark.parametrize("gpus", [0, 1, 4])
def test_of_a_worker_s_gpus_the_strategy_is_given_one_and_the_stages_have_the_others(monkeypatch, gpus):
    import tensorflow as tf

    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: ["gpu"] * gpus)
    role = cluster.Role(1, ("a:1", "b:2"))
    found = cluster.resolver(role)
    assert found.num_accelerators() == {"GPU": min(1, gpus)}
    assert (found.task_type, found.task_id) == ("worker", 1)
    assert found.cluster_spec().as_dict() == {"worker": ["a:1", "b:2"]}
    # The strategy counts all GPUs itself where it is given its own resolver, and asks any other.
    own = tf.distribute.cluster_resolver.TFConfigClusterResolver
    assert not isinstance(found, own)


@pytest.mark.parametrize("one_device", [True, False])
def test_several_workers_have_a_strategy_of_several_and_one_has_one_over_its_devices(monkeypatch, one_device):
    import tensorflow as tf

    def several(cluster_resolver, communication_options):
        raise AskedError("several", cluster_resolver is not None)

    def one(devices):
        raise AskedError("one", devices)

    gpus = [types.SimpleNamespace(name=f"GPU:{number}") for number in range(3)]
    monkeypatch.setattr(tf.config, "list_logical_devices", lambda kind: gpus)
    monkeypatch.setattr(tf.distribute, "MultiWorkerMirroredStrategy", several)
    monkeypatch.setattr(tf.distribute, "MirroredStrategy", one)
    monkeypatch.setattr(os, "environ", {**os.environ})
    with pytest.raises(AskedError) as asked:
        cluster.make_strategy(cluster.Role(0, ("a:1", "b:2")), one_device)
    assert asked.value.args == ("several", one_device)
    with pytest.raises(AskedError) as asked:
        cluster.make_strategy(cluster.Role(0, ("a:1",)), one_device)
    assert asked.value.args == ("one", ["GPU:0"] if one_device else ["GPU:0", "GPU:1", "GPU:2"])


def test_a_strategy_can_be_made_after_all_modules_are_imported():
    program = """
import importlib, pkgutil, fourfold, fourfold_pipelines
for package in (fourfold, fourfold_pipelines):
    for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
from fourfold.worker import cluster
held = cluster.hold_ports(1)
role = cluster.Role(0, (f"127.0.0.1:{held[0].getsockname()[1]}",))
cluster.start_runtime(threads=1)
print("replicas", cluster.make_strategy(role).num_replicas_in_sync)
"""
    quiet = {**os.environ, "PYTHONWARNINGS": "ignore"}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=quiet)
    assert "replicas 1" in done.stdout, done.stderr
