"""The step's KFP face: its inputs, outputs and image."""

from kfp import dsl

from fourfold.contract import images


@dsl.component(base_image=images.STEPS, install_kfp_package=False)
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
    pods: str,
    code: str,
    model: dsl.Output[dsl.Model],
):
    """Trains one scenario in the pods of a TFJob, or in processes here, and checks what they wrote.

    Args:
        store: URI of the store that holds the data set.
        fingerprint: of the data set.
        split_id: of the split.
        scenario: sequential | data_parallel | solo.
        workers: worker processes (pods) wanted.
        epochs: passes over the training rows.
        batch: rows per worker and step.
        optimizer: adam | sgd | momentum.
        learning_rate: of the optimiser.
        seed: of the model's start and of the order of rows.
        pods: what the pods are given (image, memory, gpus ...), a JSON object, {} for what is usual; or
            here, for processes beside this step.
        code: digest of the code that must run this step.
        model: the models, their scores and the record of the training.
    """
    from fourfold.train import publish

    publish.run(
        store, fingerprint, split_id, scenario, workers, epochs, batch, optimizer, learning_rate, seed,
        pods, code, output=model.path, uri=model.uri, metadata=model.metadata,
    )  # fmt: skip
