"""The step's KFP face: its inputs, outputs and image."""

from typing import NamedTuple

from kfp import dsl

from fourfold.contract import images


@dsl.component(base_image=images.STEPS, install_kfp_package=False)
def prepare(
    store: str,
    data: str,
    rows: int,
    holdout: int,
    split: str,
    workers: int,
    seed: int,
    cache: str,
    code: str,
    dataset: dsl.Output[dsl.Dataset],
) -> NamedTuple("Outputs", [("fingerprint", str), ("split_id", str)]):  # pyright: ignore # noqa: UP014
    """Reads and checks the source, writes ready batches and the split into the store.

    Args:
        store: URI of the store.
        data: sample, mnist, or the path of a folder with four IDX files.
        rows: training rows, the first of the source.
        holdout: rows after those, set aside for choices.
        split: contiguous | sizes:80,20 | dirichlet:0.5 | skew:90,10 | disjoint.
        workers: shards that the rows are dealt to.
        seed: of splits that draw.
        cache: how ready batches are kept and read (dtype, batch_rows, order, window, ahead, ram, disk), a
            JSON object, {} for what is usual.
        code: digest of the code that must run this step.
        dataset: manifest of the cached batches.

    Returns:
        The data set's fingerprint and the id of the split.
    """
    from fourfold.prepare import publish

    return publish.run(
        store,
        data,
        rows,
        holdout,
        split,
        workers,
        seed,
        cache,
        code,
        dataset_path=dataset.path,
        metadata=dataset.metadata,
    )
