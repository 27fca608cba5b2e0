"""The steps' KFP face: their inputs, outputs and image."""

from kfp import dsl

from fourfold.contract import images


@dsl.component(base_image=images.WORKER, install_kfp_package=False)
def measure_cell(
    store: str,
    cell: str,
    study: str,
    pods: str,
    code: str,
    measured: dsl.Output[dsl.Artifact],
    metrics: dsl.Output[dsl.Metrics],
):
    """Trains what one cell of the study needs, merges by every rule, and measures; keeps it in the store.

    Args:
        store: URI of the store for rows, models and results.
        cell: split, members, start and seed, such as: skew:90,10 x2 independent 0.
        study: data, rows, holdout, epochs, batch, learning_rate and rules, a JSON object.
        pods: what the pods that train are given, as for train; or here.
        code: digest of the code that must run this step.
        measured: the cell, as JSON.
        metrics: accuracy of each rule.
    """
    from fourfold.study import publish

    publish.measure_cell(store, cell, study, pods, code, measured.path, metrics)


@dsl.component(base_image=images.WORKER, install_kfp_package=False)
def tabulate(
    study: str,
    code: str,
    cells: dsl.Input[list[dsl.Artifact]],  # pyright: ignore[reportInvalidTypeArguments]
    page: dsl.Output[dsl.HTML],
    numbers: dsl.Output[dsl.Artifact],
):
    """Puts the cells of a study together.

    Args:
        study: as for measure_cell.
        code: digest of the code that must run this step.
        cells: what was measured.
        page: the table, for people.
        numbers: the same as JSON.
    """
    from fourfold.study import publish

    publish.tabulate(study, code, [cell.path for cell in cells], page.path, numbers.path)
