"""Members from Keras models, and from what a training wrote."""

from collections.abc import Mapping

import numpy as np

from fourfold.contract import keys
from fourfold.contract.errors import DamagedObjectError
from fourfold.contract.records import Trained, WorkerReport
from fourfold.model import scoring, weights
from fourfold.model.pinned import keras
from fourfold.rules.members import Member
from fourfold.store.formats import arrays_from_bytes, sha256
from fourfold.store.objects import Store


def of_model(
    name: str,
    model: keras.Model,
    rows: int,
    site: int = 0,
    statistics: Mapping[str, np.ndarray] | None = None,
) -> Member:
    """A member from a Keras model.

    Args:
        name: for errors.
        model: trained.
        rows: that it was trained on.
        site: whose rows they are.
        statistics: that were gathered there.
    """
    return Member(
        name=name,
        weights={key: np.array(value) for key, value in weights.arrays(model).items()},
        structure=tuple(weights.structure(model)),
        layer_names=tuple(weights.given_names(model)),
        rows=rows,
        site=site,
        statistics=statistics or {},
    )


def of_training(source: Store, trained: Trained) -> tuple[list[Member], list[keras.Model]]:
    """The models of a training, with what their sites gathered.

    Args:
        source: the training's output.
        trained: its record.

    Returns:
        Them as members, site k being that of model k, and as Keras has them.

    Raises:
        MissingObjectError: a model is not there.
        DamagedObjectError: an object is not what its worker wrote, or no model.
    """
    members, models = [], []
    for chief in trained.chiefs:
        key, sums = keys.model(chief.model), keys.statistics(chief.model)
        models.append(scoring.from_bytes(_read(source, key, chief), key))
        statistics = arrays_from_bytes(_read(source, sums, chief), sums) if sums in chief.objects else {}
        members.append(of_model(f"model {chief.model}", models[-1], chief.rows, chief.model, statistics))
    return members, models


def _read(source: Store, key: str, chief: WorkerReport) -> bytes:
    data = source.read(key)
    if sha256(data) != chief.objects.get(key, sha256(data)):
        raise DamagedObjectError(f"{key} in {source.uri} is not what its worker wrote; train again")
    return data
