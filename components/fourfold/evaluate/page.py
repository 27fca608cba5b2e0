"""One scenario as a page: how it learnt, and what it gets right."""

from fourfold.contract import plan as plans
from fourfold.contract.records import Evaluation
from fourfold.page import document, pictures


def render(evaluation: Evaluation) -> str:
    """The page, one HTML document that needs nothing else."""
    name = evaluation.trained.training.scenario
    models = [
        {"epochs": [{"loss": epoch.loss, "accuracy": epoch.accuracy} for epoch in chief.epochs]}
        for chief in evaluation.trained.chiefs
    ]
    return document.render(
        "fourfold.evaluate",
        "scenario.html",
        name=name,
        meaning=plans.scenario(name).meaning,
        evaluation=evaluation,
        curves=pictures.curves({name: {"models": models}}),
    )
