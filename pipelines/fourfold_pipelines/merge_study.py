"""The study of merging: a step a cell, each of which trains, merges and measures; then one table."""

# kfp turns functions into components and types into channels, which pyright cannot see.
# pyright: reportArgumentType=false, reportCallIssue=false, reportReturnType=false

from typing import Any, NamedTuple

from kfp import dsl

from fourfold.contract import images
from fourfold.study.cells import QUICK, settings
from fourfold.study.component import measure_cell, tabulate
from fourfold_pipelines.chosen import Chosen
from fourfold_pipelines.experiment import ending
from fourfold_pipelines.steps import give

NAME = "fourfold-merge-study"
CELLS = [cell.said for cell in QUICK.cells()]


class Outputs(NamedTuple):
    """What the pipeline yields on this machine."""

    page: dsl.HTML
    numbers: dsl.Artifact


def build(chosen: Chosen) -> Any:
    """Builds the pipeline; see ``experiment.build``."""
    code = images.code()

    @dsl.pipeline(name="fourfold-cells", display_name="Cells", description="Measures cells; one table.")
    def every_cell(store: str, cells: list[str], study: str) -> Outputs:
        """Measures cells of a study, and puts them together; as in ``merge_study``."""
        with dsl.ParallelFor(items=cells, parallelism=1, name="each cell") as cell:
            measured = measure_cell(store=store, cell=cell, study=study, pods=chosen.pods, code=code)
            give(measured, "measure-cell", chosen)
        table = tabulate(study=study, code=code, cells=dsl.Collected(measured.outputs["measured"]))
        give(table, "tabulate", chosen)
        return Outputs(page=table.outputs["page"], numbers=table.outputs["numbers"])

    def merge_study(
        store: str = chosen.store,
        cells: list[str] = CELLS,
        study: str = settings(QUICK),
    ):
        """Merges by every rule on splits and starts, and writes one table.

        What is done is kept in the store: a study that is ended and started again goes on.

        Args:
            store: URI of the store for rows, models and results; a place that every worker can reach.
            cells: each a split, members, start (shared, warm or independent) and seed, such as
                skew:90,10 x2 independent 0.
            study: how models are trained and what is measured, a JSON object: data, rows, holdout, epochs,
                batch, learning_rate, rules.
        """
        with ending(chosen):
            found = every_cell(store=store, cells=cells, study=study).set_display_name("Every cell")
        if chosen.in_kubeflow:
            return None
        return Outputs(page=found.outputs["page"], numbers=found.outputs["numbers"])

    if not chosen.in_kubeflow:
        merge_study.__annotations__["return"] = Outputs
    return dsl.pipeline(
        name=NAME,
        display_name="Fourfold: merging what was trained apart",
        description="Every rule of merging on splits, numbers of members and starts, beside what it is held "
        "against.",
    )(merge_study)
