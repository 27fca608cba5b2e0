"""What each step is given in Kubeflow: a table, and one function that puts a row of it onto a task."""

# kfp turns functions into components, which pyright cannot see.
# pyright: reportAttributeAccessIssue=false

from dataclasses import dataclass
from typing import Any

from fourfold.contract import images
from fourfold.contract.again import PAUSES
from fourfold.contract.pods import Pods
from fourfold.train.launch import TRIES
from fourfold_pipelines.chosen import Chosen


@dataclass(frozen=True)
class Step:
    """One row of the table.

    Attributes:
        title: in Kubeflow's pages.
        image: that it runs in.
        cpu: that its pod requests; empty where that is for the pods that it launches.
        memory: that its pod requests, and its limit; likewise.
        retries: by Kubeflow, of a pod that failed. Where its settings do not retry, the step itself does.
        cached: whether Kubeflow may take the step's outputs from an earlier run with the same inputs.
        uses_store: whether it needs the store's account.
    """

    title: str
    image: str
    cpu: str
    memory: str
    retries: int
    cached: bool
    uses_store: bool = True


TABLE = {
    # The source's bytes are no input that Kubeflow could compare; a hit in our own cache costs little.
    "prepare": Step("Prepare the data", images.STEPS, "500m", "2Gi", retries=2, cached=False),
    # What is set on this task goes to the pods of the TFJob, so the launcher itself has no resources.
    "train": Step("Train", images.STEPS, "", "", retries=2, cached=True),
    "merge-at-sites": Step("Merge beside the rows", images.STEPS, "", "", retries=2, cached=True),
    "evaluate": Step("Evaluate", images.WORKER, "500m", "2Gi", retries=2, cached=True),
    "merge": Step("Merge what was trained apart", images.WORKER, "1", "4Gi", retries=2, cached=True),
    "measure-cell": Step("Measure one cell", images.WORKER, "2", "6Gi", retries=2, cached=True),
    "tabulate": Step(
        "Put the table together", images.WORKER, "500m", "2Gi", retries=2, cached=True, uses_store=False
    ),
    "report": Step("Report", images.WORKER, "500m", "2Gi", retries=2, cached=True),
    "clean-up": Step(
        "Clean up", images.STEPS, "100m", "512Mi", retries=2, cached=False, uses_store=False
    ),
}  # fmt: skip
PAUSE = "30s"


def give(task: Any, name: str, chosen: Chosen) -> Any:
    """Gives a task what its step is given.

    Args:
        task: of a pipeline that is being built.
        name: of the step, in the table.
        chosen: what the pipeline is built with.

    Returns:
        The task.
    """
    step = TABLE[name]
    task.set_display_name(step.title)
    task.set_caching_options(step.cached)
    if not chosen.in_kubeflow:
        return task
    given = chosen.of_pods()
    task.set_container_image(chosen.image(step.image))
    # Counted from the first try, and what still runs then is ended: so it covers all that a step may do.
    longest = (step.retries + 1) * (len(PAUSES) + 1) * TRIES * given.deadline_seconds
    task.set_retry(step.retries, PAUSE, backoff_factor=2.0, backoff_max_duration=f"{longest}s")
    if step.cpu:
        task.set_cpu_request(step.cpu).set_memory_request(step.memory).set_memory_limit(step.memory)
    if name in ("train", "merge-at-sites"):
        _give_to_workers(task, given)
    from kfp import kubernetes

    kubernetes.set_image_pull_policy(task, "IfNotPresent")
    if step.uses_store:
        _give_store(task, given)
    return task


def _give_to_workers(task: Any, pods: Pods) -> None:
    """Sets what the step passes on to the pods of its TFJob where Kubeflow's users look for it.

    The record of the pods, an input of the step, says the same; what is set here goes before it.
    """
    from kfp import kubernetes

    if not pods.resources:
        memory = _memory(pods.memory)
        task.set_cpu_request(pods.cpu).set_memory_request(memory).set_memory_limit(memory)
        if pods.gpus:
            task.set_accelerator_type(pods.gpu_resource).set_accelerator_limit(pods.gpus)
    for key, value in pods.node_selector.items():
        kubernetes.add_node_selector(task, key, value)


def _memory(quantity: str) -> str:
    """A quantity of bytes as kfp takes it: whole, and without the k that it does not know."""
    number = quantity.rstrip("kKMGTi")
    unit = quantity[len(number) :]
    if number.isdigit() and unit != "k":
        return quantity
    power = "KMGT".index(unit[0].upper()) + 1 if unit else 0
    return str(int(float(number) * (1024 if unit.endswith("i") else 1000) ** power))


def _give_store(task: Any, pods: Pods) -> None:
    """The store's endpoint and account, by reference. Names are constants: parameters fail inside loops."""
    from kfp import kubernetes

    if pods.secret:
        variables = {
            pods.access_key: "AWS_ACCESS_KEY_ID",
            pods.secret_key: "AWS_SECRET_ACCESS_KEY",
        }
        kubernetes.use_secret_as_env(task, pods.secret, variables)
    if pods.endpoint:
        task.set_env_variable("AWS_ENDPOINT_URL_S3", pods.endpoint)
    elif pods.config:
        kubernetes.use_config_map_as_env(task, pods.config, {"AWS_ENDPOINT_URL_S3": "AWS_ENDPOINT_URL_S3"})
    if pods.config:
        kubernetes.use_config_map_as_env(task, pods.config, {"AWS_REGION": "AWS_REGION"}, optional=True)
