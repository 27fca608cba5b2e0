"""One scenario as a page: how it learnt, and what it gets right."""

from fourfold.contract import plan as plans
from fourfold.contract.records import Evaluation
from fourfold.page import document, lanes, pictures, training_pictures


def render(evaluation: Evaluation) -> str:
    """The page, one HTML document that needs nothing else."""
    trained = evaluation.trained
    row = plans.scenario(trained.training.scenario)
    models = [
        {"epochs": [{"loss": epoch.loss, "accuracy": epoch.accuracy} for epoch in chief.epochs]}
        for chief in trained.chiefs
    ]
    spans = [(busy.stage, busy.begin, busy.end) for busy in trained.chiefs[0].busy]
    apart = evaluation.distances
    return document.render(
        "fourfold.evaluate",
        "scenario.html",
        row=row,
        name=row.name,
        evaluation=evaluation,
        workers=trained.pods,
        said=evaluation.told,
        curves=pictures.curves({row.name: {"models": models}}),
        distances=training_pictures.distances(row.name, apart.steps, apart.pairs, apart.values)
        if apart
        else "",
        lanes=training_pictures.lanes(row.name, spans) if spans else "",
        overlap=lanes.sentence(lanes.overlap(spans)),
    )
