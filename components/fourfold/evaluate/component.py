"""The step's KFP face: its inputs, outputs and image."""

from kfp import dsl

from fourfold.contract import images


@dsl.component(base_image=images.STEPS, install_kfp_package=False)
def evaluate(
    store: str,
    fingerprint: str,
    code: str,
    model: dsl.Input[dsl.Model],
    metrics: dsl.Output[dsl.Metrics],
    classification: dsl.Output[dsl.ClassificationMetrics],
    evaluation: dsl.Output[dsl.Artifact],
):
    """Measures one scenario on the test rows, the same for all.

    Args:
        store: URI of the store that holds the data set.
        fingerprint: of the data set.
        code: digest of the code that must run this step.
        model: what a training yielded.
        metrics: accuracy and loss.
        classification: the confusion matrix.
        evaluation: all of it, as JSON.
    """
    from fourfold.evaluate import publish

    publish.run(store, fingerprint, code, model.path, metrics, classification, evaluation.path)
