"""What goes wrong on a real cluster: told with its cause, nothing hangs, nothing is left behind."""

import base64
import json
import signal
import subprocess
import time

import pytest

from fourfold.contract import exits
from tests.cluster.conftest import objects
from tests.conftest import NAMESPACE, kubectl

pytestmark = pytest.mark.cluster


def pods_of(launcher):
    return objects("pods", f"training.kubeflow.org/job-name={launcher.jobs()[0]['metadata']['name']}")


def test_a_worker_that_exits_1_fails_the_step_with_its_cause_and_its_last_lines_and_its_pod_is_kept(launch):
    launcher = launch("data_parallel", command=["sh", "-c", "echo it broke here; exit 1"])
    assert launcher.wait() == exits.FAILED
    assert "exit code 1" in launcher.said
    assert "| it broke here" in launcher.said
    assert "kept for" in launcher.said
    assert "Traceback" not in launcher.said
    (job,) = launcher.jobs()
    assert job["metadata"]["name"] in launcher.said
    assert any(pod["status"]["phase"] == "Failed" for pod in pods_of(launcher))
    assert not (launcher.output / "trained.json").exists()


def test_a_training_that_diverges_is_not_tried_again(launch):
    launcher = launch(optimizer="sgd", learning_rate=1e9)
    assert launcher.wait() == exits.DIVERGED
    assert "diverged: the loss is" in launcher.said
    (job,) = launcher.jobs()
    assert job["status"]["replicaStatuses"]["Worker"].get("failed") == 1


def test_a_worker_pod_deleted_in_mid_training_is_told_and_the_training_ends_as_an_unbroken_one(launch):
    launcher = launch("data_parallel", epochs=25)
    launcher.wait_for("epoch 3/25")
    (job,) = launcher.jobs()
    pod = f"{job['metadata']['name']}-worker-1"
    kubectl("-n", NAMESPACE, "delete", "pod", pod, "--wait=false")
    launcher.wait_for(f"worker 1 (pod {pod}) was lost")
    assert launcher.wait(240) == exits.OK, launcher.said
    assert len(launcher.trained().reports) == 2
    assert "trying again" in launcher.said
    assert "data_parallel: goes on after epoch" in launcher.said
    broken = launcher.trained().reports
    assert all(report.resumed and report.resumed[0] >= 2 for report in broken)
    unbroken = launch("data_parallel", epochs=25, run="unbroken")
    assert unbroken.wait(240) == exits.OK, unbroken.said
    assert [r.digests for r in broken] == [r.digests for r in unbroken.trained().reports]


def test_a_launcher_that_is_killed_and_started_again_goes_on_with_its_job(launch):
    first = launch("data_parallel", epochs=15)
    first.wait_for("epoch 2/15")
    first.process.kill()
    first.process.wait()
    second = launch("data_parallel", epochs=15, run=first.run)
    assert second.wait() == exits.OK, second.said
    (job,) = second.jobs()
    assert f"goes on with TFJob {job['metadata']['name']}" in second.said
    assert "epoch 15/15" in second.said
    third = launch("data_parallel", epochs=15, run=first.run)
    assert third.wait() == exits.OK, third.said
    assert len(third.jobs()) == 1
    assert third.trained() == second.trained()


def test_sigterm_deletes_the_job_and_ends_with_143(launch):
    launcher = launch("data_parallel", epochs=200)
    launcher.wait_for("epoch 1/200")
    launcher.process.send_signal(signal.SIGTERM)
    assert launcher.wait(20) == exits.TERMINATED
    assert "told to end" in launcher.said
    gone(launcher)


def gone(launcher):
    until = time.monotonic() + 30
    while launcher.jobs():
        assert time.monotonic() < until, "the TFJob is still there"
        time.sleep(0.3)


def test_pods_that_find_no_node_are_told_with_the_reason_and_given_up_at_the_limit(launch):
    launcher = launch(gpus=9, start_seconds=15)
    launcher.wait_for("Insufficient nvidia.com/gpu", seconds=60)
    assert launcher.process.poll() is None, "told while it waits, not only at the end"
    assert launcher.wait(60) == exits.PEER_MISSING
    assert "did not start within 15 s" in launcher.said
    gone(launcher)


def test_an_image_that_does_not_exist_is_told_by_its_name(launch):
    launcher = launch(image="fourfold/there-is-none:1", start_seconds=20)
    launcher.wait_for("fourfold/there-is-none:1", seconds=60)
    assert launcher.wait(60) == exits.PEER_MISSING
    assert "Pull" in launcher.said
    gone(launcher)


def test_a_secret_that_does_not_exist_is_told_by_its_name(launch):
    launcher = launch(secret="there-is-none", start_seconds=15)
    assert launcher.wait(60) == exits.PEER_MISSING
    assert 'secret "there-is-none" not found' in launcher.said


def test_without_permission_it_ends_at_once_and_says_which_verb_is_missing_for_whom(launch, tmp_path):
    token = kubectl("-n", NAMESPACE, "create", "token", "fourfold-worker").strip()
    config = json.loads(kubectl("config", "view", "--raw", "--minify", "-o", "json"))
    config["users"][0]["user"] = {"token": token}
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config))
    launcher = launch(environment={"KUBECONFIG": str(path)})
    assert launcher.wait(40) == exits.FAILED
    account = f"system:serviceaccount:{NAMESPACE}:fourfold-worker"
    for words in (account, "cannot get", "tfjobs", f"namespace {NAMESPACE}", "manifests/base"):
        assert words in launcher.said
    assert "Traceback" not in launcher.said
    assert token not in launcher.said


@pytest.fixture
def make_secret():
    made = []

    def make(name, **values):
        literals = [f"--from-literal={key}={value}" for key, value in values.items()]
        kubectl("-n", NAMESPACE, "create", "secret", "generic", name, *literals)
        made.append(name)
        return name

    yield make
    for name in made:
        kubectl("-n", NAMESPACE, "delete", "secret", name)


def test_a_wrong_s3_secret_is_told_and_not_tried_again_and_never_shown(launch, s3_server, make_secret):
    wrong = "a-wrong-key-that-nobody-may-see"
    name = make_secret("wrong-s3", AWS_ACCESS_KEY_ID=s3_server.access_key, AWS_SECRET_ACCESS_KEY=wrong)
    launcher = launch(secret=name)
    assert launcher.wait(90) == exits.INVALID_INPUT, launcher.said
    assert "AWS_SECRET_ACCESS_KEY is not the one" in launcher.said
    for secret in (wrong, s3_server.secret_key):
        assert secret not in launcher.said
        assert base64.b64encode(secret.encode()).decode() not in launcher.said


def test_a_name_of_200_characters_and_a_secret_with_other_keys_work(launch, s3_server, make_secret):
    keys = {"accesskey": s3_server.access_key, "secretkey": s3_server.secret_key}
    name = make_secret("other-s3", **keys)
    run = "Night_Run " * 20
    launcher = launch("data_parallel", run=run, secret=name, access_key="accesskey", secret_key="secretkey")
    assert launcher.wait() == exits.OK, launcher.said
    assert len(launcher.trained().reports) == 2


def test_two_experiments_at_once_do_not_meet(launch):
    pair = [launch("data_parallel", run=f"pair-{number}") for number in range(2)]
    assert [launcher.wait(240) for launcher in pair] == [exits.OK] * 2
    one, other = (launcher.trained() for launcher in pair)
    assert one.training.output != other.training.output
    assert {r.process for r in one.reports}.isdisjoint(r.process for r in other.reports)
    assert [r.digests for r in one.reports] == [r.digests for r in other.reports]


def test_a_job_that_somebody_deletes_is_told(launch):
    launcher = launch("data_parallel", epochs=200)
    launcher.wait_for("epoch 1/200")
    kubectl("-n", NAMESPACE, "delete", "tfjob", launcher.jobs()[0]["metadata"]["name"], "--wait=false")
    assert launcher.wait(60) == exits.FAILED
    assert "was deleted while it was waited for" in launcher.said


def test_a_job_that_never_ends_is_ended_at_its_deadline(launch):
    launcher = launch(command=["sleep", "1000"], deadline_seconds=10)
    assert launcher.wait(90) == exits.FAILED
    assert "deadline" in launcher.said or "did not end within 10 s" in launcher.said


def test_the_store_gone_for_half_a_minute_in_mid_run_costs_time_but_no_result(launch):
    launcher = launch("data_parallel", epochs=12)
    launcher.wait_for("epoch 1/12")
    (pod,) = objects("pods", "app.kubernetes.io/name=seaweedfs")
    image = pod["spec"]["containers"][0]["image"]
    set_image(pod, "fourfold/there-is-none:1")
    try:
        time.sleep(30)
    finally:
        set_image(pod, image)
    assert launcher.wait(240) == exits.OK, launcher.said
    assert len(launcher.trained().reports) == 2


def set_image(pod, image):
    """The container of a running pod is started anew with the image that is put in; its volumes stay."""
    name = pod["metadata"]["name"]
    done = subprocess.run(
        ["kubectl", "-n", NAMESPACE, "set", "image", f"pod/{name}", f"seaweedfs={image}"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
