"""What a study has done, kept in the store cell by cell."""

from collections.abc import Callable

from fourfold.contract.errors import MissingObjectError
from fourfold.contract.strict import from_json, to_json
from fourfold.store.objects import open_store
from fourfold.study.cells import Cell, Study, key
from fourfold.study.measure import Result, measure
from fourfold.study.trainings import HERE, Launch, ready

CELLS = "studies/cells"


def measured(
    study: Study, cell: Cell, store: str, tell: Callable[[str], None], launch: Launch = HERE
) -> tuple[Result, bool]:
    """A cell's result: the one that is kept, or a new one, which is kept then.

    Args:
        study: says how.
        cell: which.
        store: URI of the store for rows, models and results.
        tell: says what is being done.
        launch: of workers, where models have to be trained.

    Returns:
        The result, and whether it was there.
    """
    kept, name = open_store(store), f"{CELLS}/{key(study, cell)}.json"
    try:
        return from_json(Result, kept.read(name), name), True
    except MissingObjectError:
        pass
    result = measure(study, cell, ready(study, cell, store, tell, launch), tell)
    kept.write(name, to_json(result))
    return result, False
