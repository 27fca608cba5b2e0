"""The step's KFP face: its inputs, outputs and image."""

from kfp import dsl

from fourfold.contract import images


@dsl.component(base_image=images.WORKER, install_kfp_package=False)
def merge(
    store: str,
    fingerprint: str,
    code: str,
    models: dsl.Input[list[dsl.Model]],  # pyright: ignore[reportInvalidTypeArguments]
    at_sites: dsl.Input[dsl.Model],
    merged: dsl.Output[dsl.Model],
    metrics: dsl.Output[dsl.Metrics],
):
    """Merges the models that were trained apart, by every rule, and measures each result on the test rows.

    Args:
        store: URI of the store that holds the data set.
        fingerprint: of the data set.
        code: digest of the code that must run this step.
        models: what the trainings yielded.
        at_sites: what workers merged beside their shards.
        merged: the merged models, one a rule, and their scores.
        metrics: accuracy of each rule.
    """
    from fourfold.merge import publish

    publish.run(
        store, fingerprint, code, [model.path for model in models], at_sites.path,
        merged.path, merged.metadata, metrics,
    )  # fmt: skip
