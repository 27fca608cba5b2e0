"""The step's KFP face: its inputs, outputs and image."""

from kfp import dsl

from fourfold.contract import images

PASSED_ON = [
    dsl.TaskConfigField.RESOURCES,
    dsl.TaskConfigField.KUBERNETES_TOLERATIONS,
    dsl.TaskConfigField.KUBERNETES_NODE_SELECTOR,
    dsl.TaskConfigField.KUBERNETES_AFFINITY,
    # Of this step itself; kfp lets no variable be set on a task that passes on and does not say so.
    dsl.TaskConfigPassthrough(field=dsl.TaskConfigField.ENV, apply_to_task=True),
]
"""What is set on a task that launches, for the pods that it launches."""


@dsl.component(base_image=images.STEPS, install_kfp_package=False, task_config_passthroughs=PASSED_ON)
def train(
    store: str,
    fingerprint: str,
    split_id: str,
    scenario: str,
    workers: int,
    epochs: int,
    batch: int,
    optimizer: str,
    learning_rate: float,
    seed: int,
    members: int,
    stages: int,
    micro_batches: int,
    local_steps: int,
    ways: str,
    cache: str,
    pods: str,
    code: str,
    model: dsl.Output[dsl.Model],
    task: dsl.TaskConfig,
):
    """Trains one scenario in the pods of a TFJob, or in processes here, and checks what they wrote.

    Args:
        store: URI of the store that holds the data set.
        fingerprint: of the data set.
        split_id: of the split.
        scenario: sequential | data_parallel | ensemble | pipeline | hybrid | solo | federated.
        workers: worker processes (pods) wanted.
        epochs: passes over the training rows.
        batch: rows per worker and step.
        optimizer: adam | sgd | momentum.
        learning_rate: of the optimiser.
        seed: of the model's start and of the order of rows.
        members: separate models of an ensemble.
        stages: that a model is cut into, in pipeline and hybrid.
        micro_batches: parts of a batch that stages work on one after the other.
        local_steps: of each round of federated; 0 for one epoch.
        ways: what is seldom changed (starts, cut, placement, proximal ...), a JSON object, {} for what is
            usual.
        cache: how ready batches are kept and read (dtype, batch_rows, order, window, ahead, ram, disk), a
            JSON object, {} for what is usual.
        pods: what the pods are given (image, memory, gpus ...), a JSON object, {} for what is usual; or
            here, for processes beside this step.
        code: digest of the code that must run this step.
        model: the models, their scores and the record of the training.
        task: resources, tolerations, node selector and affinity that were set on this task: they are those of
            the pods that train, and go before what pods says.
    """
    from fourfold.train import publish

    publish.run(
        store, fingerprint, split_id, scenario, workers, epochs, batch, optimizer, learning_rate, seed,
        members, stages, micro_batches, local_steps, ways, cache, pods, code,
        output=model.path, uri=model.uri, metadata=model.metadata, task=task,
    )  # fmt: skip


@dsl.component(base_image=images.STEPS, install_kfp_package=False, task_config_passthroughs=PASSED_ON)
def merge_at_sites(
    store: str,
    fingerprint: str,
    seed: int,
    cache: str,
    pods: str,
    code: str,
    models: dsl.Input[list[dsl.Model]],  # pyright: ignore[reportInvalidTypeArguments]
    merged: dsl.Output[dsl.Model],
    task: dsl.TaskConfig,
):
    """Merges models that were trained apart, beside their rows.

    By rules that ask the sites while they run: each worker (pod of a TFJob, or process here) reads its own
    shard only, and sends only sums.

    Args:
        store: URI of the store that holds the data set.
        fingerprint: of the data set.
        seed: of what rules draw.
        cache: how ready batches are read, as for ``train``.
        pods: what the pods are given, as for ``train``.
        code: digest of the code that must run this step.
        models: what the trainings yielded; those of the first that trained models apart are merged.
        merged: what each chain of rules made of them.
        task: what was set on this task, for the pods, as for ``train``.
    """
    from fourfold.train import at_sites

    at_sites.run(
        store, fingerprint, seed, cache, pods, code, [model.path for model in models],
        output=merged.path, uri=merged.uri, metadata=merged.metadata, task=task,
    )  # fmt: skip


@dsl.component(base_image=images.STEPS, install_kfp_package=False)
def clean_up(pods: str, keep_failed: bool, code: str):
    """Deletes the TFJobs of this run, also after it failed or was terminated.

    Args:
        pods: what the pods were given, as for ``train``.
        keep_failed: leave jobs that failed, with their pods, until their time to live is over.
        code: digest of the code that must run this step.
    """
    from fourfold.train import clean_up

    clean_up.run(pods, keep_failed, code)
