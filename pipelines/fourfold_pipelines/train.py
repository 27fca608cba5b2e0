"""One scenario: prepare, train, evaluate. For a training that is wanted every night."""

# kfp turns functions into components and types into channels, which pyright cannot see.
# pyright: reportArgumentType=false, reportCallIssue=false, reportReturnType=false

from typing import Any, NamedTuple

from kfp import dsl

from fourfold.contract import images
from fourfold.evaluate.component import evaluate
from fourfold.prepare.component import prepare
from fourfold.train.component import train
from fourfold_pipelines.chosen import Chosen
from fourfold_pipelines.experiment import ending
from fourfold_pipelines.steps import give

NAME = "fourfold-train"


class Outputs(NamedTuple):
    """What the pipeline yields on this machine."""

    model: dsl.Model
    page: dsl.HTML
    evaluation: dsl.Artifact


def build(chosen: Chosen) -> Any:
    """Builds the pipeline; see ``experiment.build``."""

    def one_way(
        scenario: str = "data_parallel",
        store: str = chosen.store,
        data: str = "sample",
        rows: int = 2000,
        holdout: int = 1000,
        split: str = "contiguous",
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
        """Trains one model one way, and evaluates it.

        Args:
            scenario: the way to split the training.
            store: URI of the store for ready batches; a place that every step and every worker can reach.
            data: sample, mnist, or the path of a folder with four IDX files.
            rows: training rows, the first of the source.
            holdout: rows after those, set aside for choices.
            split: contiguous | sizes:80,20 | dirichlet:0.5 | skew:90,10 | disjoint.
            workers: workers (pods), where the scenario splits the work.
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
        code = images.code()
        with ending(chosen):
            prepared = prepare(
                store=store, data=data, rows=rows, holdout=holdout, split=split, workers=workers, seed=seed,
                cache=cache, code=code,
            )  # fmt: skip
            give(prepared, "prepare", chosen)
            fingerprint = prepared.outputs["fingerprint"]
            trained = train(
                store=store, fingerprint=fingerprint, split_id=prepared.outputs["split_id"],
                scenario=scenario, workers=workers, epochs=epochs, batch=batch, optimizer=optimizer,
                learning_rate=learning_rate, seed=seed, members=members, stages=stages,
                micro_batches=micro_batches, local_steps=local_steps, ways=ways, cache=cache,
                pods=chosen.pods, code=code,
            )  # fmt: skip
            give(trained, "train", chosen)
            evaluated = evaluate(
                store=store, fingerprint=fingerprint, code=code, model=trained.outputs["model"]
            )
            give(evaluated, "evaluate", chosen)
        if chosen.in_kubeflow:
            return None
        return Outputs(
            model=trained.outputs["model"],
            page=evaluated.outputs["page"],
            evaluation=evaluated.outputs["evaluation"],
        )

    if not chosen.in_kubeflow:
        one_way.__annotations__["return"] = Outputs
    return dsl.pipeline(
        name=NAME,
        display_name="Fourfold: one way to split",
        description="One Keras model and one data set, trained one way to split the work, and evaluated.",
    )(one_way)
