"""The experiment: prepare once, train and evaluate every scenario, merge what was trained apart, report.

The part after ``prepare`` is a pipeline of its own, used as a step. It could stand inline, but kfp's local
runner (2.17) gives the loop's item to every input of a loop that is an output of another step; an input of
the enclosing pipeline arrives as it is.
"""

# kfp turns functions into components and types into channels, which pyright cannot see.
# pyright: reportArgumentType=false, reportCallIssue=false, reportReturnType=false

import contextlib
from typing import Any, NamedTuple

from kfp import dsl

from fourfold.contract import images, plan as plans
from fourfold.evaluate.component import evaluate
from fourfold.merge.component import merge
from fourfold.prepare.component import prepare
from fourfold.report.component import report
from fourfold.train.component import clean_up, merge_at_sites, train
from fourfold_pipelines.chosen import Chosen
from fourfold_pipelines.steps import give

NAME = "fourfold-experiment"
EVERY_SCENARIO = list(plans.names())


class Outputs(NamedTuple):
    """What the pipeline yields on this machine."""

    page: dsl.HTML
    results: dsl.Artifact
    merged: dsl.Model
    models: list[dsl.Model]


def build(chosen: Chosen) -> Any:
    """Builds the pipeline.

    Args:
        chosen: where its steps run, and in what.

    Returns:
        The pipeline, to be run or compiled. In Kubeflow it ends with a step that deletes what is left, and
        yields what its steps yield; elsewhere it has ``Outputs``.
    """
    every_way = _every_way(chosen)

    def experiment(
        store: str = chosen.store,
        data: str = "sample",
        rows: int = 2000,
        holdout: int = 1000,
        split: str = "contiguous",
        scenarios: list[str] = EVERY_SCENARIO,
        workers: int = 2,
        epochs: int = 5,
        batch: int = 100,
        optimizer: str = "adam",
        learning_rate: float = 0.001,
        seed: int = 0,
        members: int = 3,
        stages: int = 2,
        micro_batches: int = 4,
        local_steps: int = 0,
        ways: str = "{}",
        cache: str = "{}",
    ):
        """Trains one model every way to split the work, and compares.

        Args:
            store: URI of the store for ready batches; a place that every step and every worker can reach.
            data: sample, mnist, or the path of a folder with four IDX files.
            rows: training rows, the first of the source.
            holdout: rows after those, set aside for choices.
            split: contiguous | sizes:80,20 | dirichlet:0.5 | skew:90,10 | disjoint.
            scenarios: which ways to train.
            workers: workers (pods) of the scenarios that split the work.
            epochs: passes over the training rows.
            batch: rows per worker and step.
            optimizer: adam | sgd | momentum.
            learning_rate: of the optimiser.
            seed: of the model's start, of the order of rows and of splits that draw.
            members: separate models of the ensemble.
            stages: that the model is cut into, in pipeline and hybrid.
            micro_batches: parts of a batch that the stages work on one after the other.
            local_steps: of each round of federated; 0 for one epoch.
            ways: seldom changed, a JSON object: starts, member_workers, cut, balance, placement,
                server_momentum, proximal, initial.
            cache: how ready batches are kept and read, a JSON object: dtype, batch_rows, order, window,
                ahead, ram, disk.
        """
        with ending(chosen):
            prepared = prepare(
                store=store, data=data, rows=rows, holdout=holdout, split=split, workers=workers, seed=seed,
                cache=cache, code=images.code(),
            )  # fmt: skip
            give(prepared, "prepare", chosen)
            compared = every_way(
                store=store,
                fingerprint=prepared.outputs["fingerprint"],
                split_id=prepared.outputs["split_id"],
                data=data,
                rows=rows,
                holdout=holdout,
                split=split,
                scenarios=scenarios,
                workers=workers,
                epochs=epochs,
                batch=batch,
                optimizer=optimizer,
                learning_rate=learning_rate,
                seed=seed,
                members=members,
                stages=stages,
                micro_batches=micro_batches,
                local_steps=local_steps,
                ways=ways,
                cache=cache,
            ).set_display_name("Every way")
        if not chosen.in_kubeflow:
            return Outputs(**{name: compared.outputs[name] for name in Outputs._fields})
        return None

    if not chosen.in_kubeflow:
        # A pipeline yields nothing from inside an exit handler.
        experiment.__annotations__["return"] = Outputs
    return dsl.pipeline(
        name=NAME,
        display_name="Fourfold: every way to split",
        description="One Keras model and one data set, trained every way there is to split the work; what "
        "was trained apart is merged; a report compares.",
    )(experiment)


def ending(chosen: Chosen) -> contextlib.AbstractContextManager[Any]:
    """In Kubeflow a last step that runs whatever happened; elsewhere the launcher itself is enough."""
    if not chosen.in_kubeflow:
        return contextlib.nullcontext()
    last = clean_up(pods=chosen.pods, keep_failed=chosen.keep_failed, code=images.code())
    return dsl.ExitHandler(give(last, "clean-up", chosen), name="run")


def _every_way(chosen: Chosen) -> Any:
    code = images.code()

    @dsl.pipeline(
        name="fourfold-every-way", display_name="Every way", description="Trains, evaluates, merges, reports."
    )
    def every_way(
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
    ) -> Outputs:
        """Trains one model every way on data that is prepared, and compares; as in ``experiment``."""
        with dsl.ParallelFor(items=scenarios, parallelism=1, name="each scenario") as scenario:
            trained = train(
                store=store, fingerprint=fingerprint, split_id=split_id, scenario=scenario, workers=workers,
                epochs=epochs, batch=batch, optimizer=optimizer, learning_rate=learning_rate, seed=seed,
                members=members, stages=stages, micro_batches=micro_batches, local_steps=local_steps,
                ways=ways, cache=cache, pods=chosen.pods, code=code,
            )  # fmt: skip
            give(trained, "train", chosen)
            evaluated = evaluate(
                store=store, fingerprint=fingerprint, code=code, model=trained.outputs["model"]
            )
            give(evaluated, "evaluate", chosen)
        at_sites = merge_at_sites(
            store=store, fingerprint=fingerprint, seed=seed, cache=cache, pods=chosen.pods, code=code,
            models=dsl.Collected(trained.outputs["model"]),
        )  # fmt: skip
        give(at_sites, "merge-at-sites", chosen)
        merged = merge(
            store=store, fingerprint=fingerprint, code=code, models=dsl.Collected(trained.outputs["model"]),
            at_sites=at_sites.outputs["merged"],
        )  # fmt: skip
        give(merged, "merge", chosen)
        reported = report(
            store=store, fingerprint=fingerprint, split_id=split_id, data=data, rows=rows, holdout=holdout,
            split=split, scenarios=scenarios, workers=workers, epochs=epochs, batch=batch,
            optimizer=optimizer, learning_rate=learning_rate, seed=seed, members=members, stages=stages,
            micro_batches=micro_batches, local_steps=local_steps, ways=ways, cache=cache,
            pods=chosen.pods, code=code,
            evaluations=dsl.Collected(evaluated.outputs["evaluation"]), merged=merged.outputs["merged"],
        )  # fmt: skip
        give(reported, "report", chosen)
        return Outputs(
            page=reported.outputs["page"],
            results=reported.outputs["results"],
            merged=merged.outputs["merged"],
            models=dsl.Collected(trained.outputs["model"]),
        )

    return every_way
