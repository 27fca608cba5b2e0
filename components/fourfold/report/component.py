"""The step's KFP face: its inputs, outputs and image."""

from kfp import dsl

from fourfold.contract import images


@dsl.component(base_image=images.WORKER, install_kfp_package=False)
def report(
    store: str,
    fingerprint: str,
    split_id: str,
    data: str,
    rows: int,
    holdout: int,
    split: str,
    scenarios: list[str],
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
    evaluations: dsl.Input[list[dsl.Artifact]],  # pyright: ignore[reportInvalidTypeArguments]
    merged: dsl.Input[dsl.Model],
    page: dsl.Output[dsl.HTML],
    summary: dsl.Output[dsl.Markdown],
    results: dsl.Output[dsl.Artifact],
):
    """Writes one self-contained page about the run, and the same as JSON.

    Args:
        store: URI of the store that holds the data set.
        fingerprint: of the data set.
        split_id: of the split.
        data: of the run, this and what follows as its arguments were; shown on the page.
        rows: training rows.
        holdout: rows set aside.
        split: how rows were dealt to workers.
        scenarios: ways to train.
        workers: of the scenarios that split the work.
        epochs: passes.
        batch: rows per worker and step.
        optimizer: by name.
        learning_rate: of the optimiser.
        seed: of all that draws.
        members: separate models of an ensemble.
        stages: that a model is cut into.
        micro_batches: parts of a batch.
        local_steps: of each round of federated.
        ways: what is seldom changed, as for ``train``.
        cache: how ready batches were kept and read, as for ``train``.
        pods: what the workers' pods were given, as for ``train``.
        code: digest of the code that must run this step.
        evaluations: one a scenario.
        merged: what the merge step yielded.
        page: the report.
        summary: the comparison as a table.
        results: the report's numbers, as JSON.
    """
    from fourfold.report import publish

    publish.run(
        store, fingerprint, split_id, pods, code,
        {
            "data": data, "scenarios": scenarios, "learning_rate": learning_rate, "rows": rows,
            "holdout": holdout, "split": split, "workers": workers, "epochs": epochs, "batch": batch,
            "optimizer": optimizer, "seed": seed, "members": members, "stages": stages,
            "micro_batches": micro_batches, "local_steps": local_steps, "ways": ways, "cache": cache,
        },
        [evaluation.path for evaluation in evaluations], merged.path,
        page_path=page.path, summary_path=summary.path, results_path=results.path,
    )  # fmt: skip
