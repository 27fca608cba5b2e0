"""What a training yields, written into the store: the model, its scores, a worker's report, traces."""

import os
import platform
import time
from collections.abc import Sequence
from importlib import metadata

import numpy as np

from fourfold.cache import dataset
from fourfold.contract import keys
from fourfold.contract.errors import DamagedObjectError, DivergedError, PeerLostError
from fourfold.contract.records import Training
from fourfold.model import scoring, weights
from fourfold.model.pinned import keras
from fourfold.store.formats import arrays_to_bytes, sha256
from fourfold.store.objects import Store, open_store


def write_model(output: Store, index: int, model: keras.Model, training: Training) -> dict[str, str]:
    """Writes a trained model, and the logits that the model *as saved* gives for the hold-out and test rows.

    Args:
        output: the training's output.
        index: of the model.
        model: trained.
        training: names the data set.

    Returns:
        The sha256 of each object written, by key.

    Raises:
        DivergedError: a weight is not finite.
        DamagedObjectError: the saved model is not the trained one.
    """
    trained = weights.arrays(model)
    for name, value in trained.items():
        if "float" in value.dtype.name and not np.isfinite(value.astype(np.float64)).all():
            raise DivergedError(
                f"{training.scenario} diverged: {name} is not finite; use a smaller --learning-rate"
            )
    data = scoring.to_bytes(model)
    loaded = scoring.from_bytes(data, keys.model(index))
    if weights.digest(weights.arrays(loaded)) != weights.digest(trained):
        raise DamagedObjectError(f"{keys.model(index)} does not hold the weights that were trained")
    store = open_store(training.store)
    manifest = dataset.read_manifest(store, training.fingerprint)
    logits = {
        part: scoring.logits(loaded, dataset.read_rows(store, manifest, part)[0])
        for part in ("holdout", "test")
    }
    objects = {keys.model(index): data, keys.scores(index): arrays_to_bytes(logits)}
    for key, content in objects.items():
        output.write(key, content)
    return {key: sha256(content) for key, content in objects.items()}


def wait_for_reports(output: Store, workers: Sequence[int], seconds: float) -> None:
    """Waits until every worker has written its report, which each does when it needs its peers no more.

    Args:
        output: the training's output.
        workers: whose reports are waited for.
        seconds: how long.

    Raises:
        PeerLostError: a report did not come; the error names the worker.
    """
    deadline = time.monotonic() + seconds
    missing = list(workers)
    while missing := [worker for worker in missing if not output.exists(keys.worker(worker))]:
        if time.monotonic() > deadline:
            raise PeerLostError(f"worker {missing[0]} did not finish within {seconds:g} s of its peers")
        time.sleep(0.1)


def environment(threads: int) -> dict[str, str]:
    """What the last bits of a training depend on besides its arguments."""
    names = ("tensorflow", "tensorflow-cpu", "keras", "numpy")
    versions = {}
    for name in names:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return {
        "python": platform.python_version(),
        **versions,
        "threads": str(threads),
        "cpu": _cpu(),
        "TF_ENABLE_ONEDNN_OPTS": os.environ.get("TF_ENABLE_ONEDNN_OPTS", "default"),
    }


def _cpu() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:  # noqa: PTH123
            for line in file:
                if line.startswith("model name"):
                    return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def write_trace(
    output: Store, key: str, before: dict[str, np.ndarray], after: dict[str, np.ndarray], numbers: np.ndarray
) -> None:
    """Writes the state before and after one step, and the numbers of the rows that this worker took in it.

    Args:
        output: the training's output.
        key: of the object.
        before: as of ``parts.Parts.state``.
        after: as of ``parts.Parts.state``.
        numbers: row numbers in the training part [n] int64.
    """
    arrays = {f"before/{name}": value for name, value in before.items()}
    arrays |= {f"after/{name}": value for name, value in after.items()}
    output.write(key, arrays_to_bytes({**arrays, "rows": numbers}))
