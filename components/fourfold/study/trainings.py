"""Trains what a study needs, each model once."""

import functools
import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace

from fourfold.contract import keys
from fourfold.contract.errors import StoreError
from fourfold.contract.records import Trained, Training
from fourfold.contract.strict import from_json, to_json
from fourfold.prepare.step import prepare
from fourfold.store.objects import open_store
from fourfold.study.cells import Cell, Study
from fourfold.train import processes
from fourfold.train.step import train

PLACE = "studies/trainings"
Launch = Callable[[Training, Callable[[], None]], None]
"""Runs the workers of a training, as ``train.step`` wants it."""
HERE: Launch = processes.run


@dataclass(frozen=True)
class Ready:
    """What a cell is measured on.

    Attributes:
        solo: what the solos' training yielded.
        federated: what as many passes over the data in rounds yielded.
        whole: what one model on all rows yielded.
    """

    solo: Trained
    federated: Trained
    whole: Trained


def ready(study: Study, cell: Cell, store: str, tell: Callable[[str], None], launch: Launch = HERE) -> Ready:
    """Trains what a cell needs, where it is not there yet.

    Args:
        study: says how.
        cell: what is needed for.
        store: URI of the store for rows and models.
        tell: says what is being trained.
        launch: of workers.
    """
    once = functools.partial(_once, tell=tell, launch=launch)
    prepared = prepare(store, study.data, study.rows, study.holdout, cell.split, cell.members, cell.seed)
    asked = Training(
        scenario="solo",
        workers=cell.members,
        store=store,
        fingerprint=prepared.manifest.fingerprint,
        split=prepared.split.id,
        output="",
        epochs=study.epochs,
        batch=study.batch,
        learning_rate=study.learning_rate,
        seed=cell.seed,
    )
    alone = replace(asked, scenario="sequential", workers=1, split="")
    initial = cell.start
    if cell.start == "warm":
        initial = f"{once(replace(alone, epochs=1)).training.output}/{keys.model(0)}"
    common = "shared" if cell.start == "independent" else initial
    return Ready(
        solo=once(replace(asked, initial=initial)),
        federated=once(replace(asked, scenario="federated", initial=common)),
        whole=once(alone),
    )


def _once(training: Training, tell: Callable[[str], None], launch: Launch) -> Trained:
    """Trains, unless this very training is there and whole."""
    digest = hashlib.sha256(to_json(training)).hexdigest()[:20]
    training = replace(training, output=f"{training.store.rstrip('/')}/{PLACE}/{digest}")
    place = open_store(training.output)
    try:
        found = from_json(Trained, place.read(keys.TRAINED), keys.TRAINED)
        if found.training == training:
            return found
    except StoreError:
        pass
    tell(f"training {training.scenario} of {training.workers}, {training.epochs} epochs")
    return train(training, launch)
