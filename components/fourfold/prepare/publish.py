"""Runs the step and hands its result to KFP: the manifest as an artifact, the names as parameters."""

from typing import Any, NamedTuple

from fourfold.contract import caching, events
from fourfold.contract.again import again
from fourfold.contract.strict import to_json
from fourfold.contract.whole import whole
from fourfold.prepare.step import prepare
from fourfold.store.folder import write_file


class Outputs(NamedTuple):
    """The component's output parameters."""

    fingerprint: str
    split_id: str


def run(
    store: str,
    data: str,
    rows: int,
    holdout: int,
    split: str,
    workers: int,
    seed: int,
    cache: str,
    code: str,
    dataset_path: str,
    metadata: dict[str, Any],
) -> Outputs:
    """The component's body; arguments as in ``component``."""
    with events.step("prepare", code):
        rows, holdout, workers, seed = whole(rows=rows, holdout=holdout, workers=workers, seed=seed)
        how = caching.read(cache)
        done = again(lambda: prepare(store, data, rows, holdout, split, workers, seed, how))
        write_file(dataset_path, to_json(done.manifest))
        metadata.update(
            fingerprint=done.manifest.fingerprint,
            source=done.manifest.source,
            rows=done.manifest.rows("train"),
            classes=str(done.manifest.parts["train"].classes),
            split=done.split.rule,
            rows_a_worker=str(done.split.sizes),
            reused=str(done.reused),
        )
        return Outputs(done.manifest.fingerprint, done.split.id)
