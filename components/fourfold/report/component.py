"""The step's KFP face: its inputs, outputs and image."""

from kfp import dsl

from fourfold.contract import images


@dsl.component(base_image=images.WORKER, install_kfp_package=False)
def report(
    store: str,
    fingerprint: str,
    split_id: str,
    arguments: str,
    pods: str,
    code: str,
    evaluations: dsl.Input[list[dsl.Artifact]],  # pyright: ignore[reportInvalidTypeArguments]
    merged: dsl.Input[dsl.Model],
    page: dsl.Output[dsl.HTML],
    results: dsl.Output[dsl.Artifact],
):
    """Writes one self-contained page about the run, and the same as JSON.

    Args:
        store: URI of the store that holds the data set.
        fingerprint: of the data set.
        split_id: of the split.
        arguments: of the run, as a JSON object.
        pods: what the workers' pods were given, as for ``train``.
        code: digest of the code that must run this step.
        evaluations: one a scenario.
        merged: what the merge step yielded.
        page: the report.
        results: the report's numbers, as JSON.
    """
    from fourfold.report import publish

    publish.run(
        store, fingerprint, split_id, arguments, pods, code,
        [evaluation.path for evaluation in evaluations], merged.path,
        page_path=page.path, results_path=results.path,
    )  # fmt: skip
