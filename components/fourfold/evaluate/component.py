"""The step's KFP face: its inputs, outputs and image."""

from kfp import dsl

from fourfold.contract import images


@dsl.component(base_image=images.WORKER, install_kfp_package=False)
def evaluate(
    store: str,
    fingerprint: str,
    code: str,
    model: dsl.Input[dsl.Model],
    metrics: dsl.Output[dsl.Metrics],
    classification: dsl.Output[dsl.ClassificationMetrics],
    page: dsl.Output[dsl.HTML],
    evaluation: dsl.Output[dsl.Artifact],
):
    """Measures one scenario on the test rows, the same for all.

    Args:
        store: URI of the store that holds the data set.
        fingerprint: of the data set.
        code: digest of the code that must run this step.
        model: what a training yielded.
        metrics: accuracy, loss, area under the ROC curve.
        classification: the confusion matrix and the ROC curve (all classes, each against the rest).
        page: how the scenario learnt, and what it gets right.
        evaluation: all of it, as JSON.
    """
    from fourfold.evaluate import publish

    publish.run(
        store, fingerprint, code, model.path, metrics, classification,
        page_path=page.path, evaluation_path=evaluation.path,
    )  # fmt: skip
