"""The experiment: prepare once, train and evaluate every scenario, merge what was trained apart, report.

The part after ``prepare`` is a pipeline of its own, used as a step. It could stand inline, but kfp's local
runner (2.17) gives the loop's item to every input of a loop that is an output of another step; an input of
the enclosing pipeline arrives as it is.
"""

# kfp turns functions into components and types into channels, which pyright cannot see.
# pyright: reportArgumentType=false, reportCallIssue=false, reportReturnType=false

from typing import NamedTuple

from kfp import dsl

from fourfold.contract import images, plan as plans
from fourfold.evaluate.component import evaluate
from fourfold.merge.component import merge
from fourfold.prepare.component import prepare
from fourfold.report.component import report
from fourfold.train.component import train

NAME = "fourfold-experiment"
EVERY_SCENARIO = list(plans.names())


class Outputs(NamedTuple):
    """What the pipeline yields."""

    page: dsl.HTML
    results: dsl.Artifact
    merged: dsl.Model
    models: list[dsl.Model]


@dsl.pipeline(
    name="fourfold-every-way", display_name="Every way", description="Trains, evaluates, merges, reports."
)
def every_way(
    store: str,
    fingerprint: str,
    split_id: str,
    scenarios: list[str],
    workers: int,
    epochs: int,
    batch: int,
    optimizer: str,
    learning_rate: float,
    seed: int,
    arguments: str,
    pods: str,
    code: str,
) -> Outputs:
    """Trains one model every way on data that is prepared, and compares; arguments as in ``experiment``."""
    with dsl.ParallelFor(items=scenarios, parallelism=1, name="each scenario") as scenario:
        trained = train(
            store=store,
            fingerprint=fingerprint,
            split_id=split_id,
            scenario=scenario,
            workers=workers,
            epochs=epochs,
            batch=batch,
            optimizer=optimizer,
            learning_rate=learning_rate,
            seed=seed,
            pods=pods,
            code=code,
        ).set_display_name("train")  # fmt: skip
        evaluated = evaluate(
            store=store, fingerprint=fingerprint, code=code, model=trained.outputs["model"]
        ).set_display_name("evaluate")  # fmt: skip
    merged = merge(
        store=store, fingerprint=fingerprint, code=code, models=dsl.Collected(trained.outputs["model"])
    ).set_display_name("merge what was trained apart")  # fmt: skip
    reported = report(
        store=store,
        fingerprint=fingerprint,
        split_id=split_id,
        arguments=arguments,
        pods=pods,
        code=code,
        evaluations=dsl.Collected(evaluated.outputs["evaluation"]),
        merged=merged.outputs["merged"],
    ).set_display_name("report")  # fmt: skip
    return Outputs(
        page=reported.outputs["page"],
        results=reported.outputs["results"],
        merged=merged.outputs["merged"],
        models=dsl.Collected(trained.outputs["model"]),
    )


@dsl.pipeline(
    name=NAME,
    display_name="Fourfold experiment",
    description="One Keras model and one data set, trained every way there is to split it, then compared.",
)
def experiment(
    store: str = "/fourfold",
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
    arguments: str = "{}",
    pods: str = "{}",
    code: str = images.code(),
) -> Outputs:
    """Trains one model every way and compares.

    Args:
        store: URI of the store; a folder that every step can reach.
        data: sample, mnist, or the path of a folder with four IDX files.
        rows: training rows, the first of the source.
        holdout: rows after those, set aside for choices.
        split: contiguous | sizes:80,20 | dirichlet:0.5 | skew:90,10 | disjoint.
        scenarios: which ways to train.
        workers: worker processes of the scenarios that split the work.
        epochs: passes over the training rows.
        batch: rows per worker and step.
        optimizer: adam | sgd | momentum.
        learning_rate: of the optimiser.
        seed: of the model's start, of the order of rows and of splits that draw.
        arguments: of the run as a JSON object, shown in the report.
        pods: what the workers' pods are given (image, memory, gpus ...), a JSON object; {} is usual.
        code: digest of the code that the images must hold.
    """
    prepared = prepare(
        store=store, data=data, rows=rows, holdout=holdout, split=split, workers=workers, seed=seed,
        code=code,
    ).set_display_name("prepare the data")  # fmt: skip
    # The source's bytes are no input that KFP could compare; a hit in our own cache costs little.
    prepared.set_caching_options(False)
    compared = every_way(
        store=store,
        fingerprint=prepared.outputs["fingerprint"],
        split_id=prepared.outputs["split_id"],
        scenarios=scenarios,
        workers=workers,
        epochs=epochs,
        batch=batch,
        optimizer=optimizer,
        learning_rate=learning_rate,
        seed=seed,
        arguments=arguments,
        pods=pods,
        code=code,
    ).set_display_name("every way")  # fmt: skip
    return Outputs(**{name: compared.outputs[name] for name in Outputs._fields})
