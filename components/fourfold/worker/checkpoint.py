"""A training's state after each epoch, so that workers that are started again go on from there.

All workers of a group enter the save. Each writes what is its own; the chief writes what all copies share,
and last a manifest with the sha256 of every object: an epoch without one does not exist. All resume from the
same epoch, the chief's word.
"""

import dataclasses
import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from fourfold.contract import keys
from fourfold.contract.errors import DamagedObjectError, MissingObjectError
from fourfold.contract.plan import Plan
from fourfold.contract.records import Training, WorkerReport
from fourfold.contract.strict import from_json, to_json
from fourfold.store.formats import arrays_from_bytes, arrays_to_bytes, sha256
from fourfold.store.objects import Store, open_store

KEPT = 2
"""Epochs that are kept: the last, and the one before while the last is being written."""


@dataclass(frozen=True)
class Saved:
    """The manifest of one epoch.

    Attributes:
        training: digest of what is trained.
        epoch: counted from 1; what it holds is the state after it.
        objects: sha256 of each object, by key.
    """

    training: str
    epoch: int
    objects: dict[str, str]


class Checkpoints:
    """The checkpoints of one group of workers.

    Args:
        output: the training's output.
        training: what is trained; what was saved of another training is not resumed.
        model: index of the group's model.
        workers: indices of the group's workers, the chief first.
        worker: this one.
        sum_over_group: the sum of a float64 vector over the group, for which all its workers meet.
    """

    def __init__(
        self,
        output: Store,
        training: Training,
        model: int,
        workers: tuple[int, ...],
        worker: int,
        sum_over_group: Callable[[np.ndarray], np.ndarray],
    ):
        self._output, self._model, self._workers, self._worker = output, model, workers, worker
        self._sum = sum_over_group
        self._training = identity(training)

    @property
    def _is_chief(self) -> bool:
        return self._worker == self._workers[0]

    def save(
        self, epoch: int, shared: dict[str, np.ndarray], own: dict[str, np.ndarray], report: WorkerReport
    ) -> None:
        """Saves the state after an epoch; every worker of the group must call it.

        Args:
            epoch: counted from 1.
            shared: equal on all workers.
            own: of this worker.
            report: what there is to say so far.

        Raises:
            StoreError: the store did not take it.
        """
        data = {keys.own_state(self._model, epoch, self._worker): arrays_to_bytes(own)}
        data[keys.saved_report(self._model, epoch, self._worker)] = to_json(report)
        if self._is_chief:
            data[keys.shared_state(self._model, epoch)] = arrays_to_bytes(shared)
        for key, content in data.items():
            self._output.write(key, content)
        self._sum(np.zeros(1))
        if not self._is_chief:
            return
        objects = {key: sha256(content) for key, content in data.items()}
        for peer in self._workers[1:]:
            for key in (
                keys.own_state(self._model, epoch, peer),
                keys.saved_report(self._model, epoch, peer),
            ):
                objects[key] = sha256(self._output.read(key))
        saved = Saved(self._training, epoch, objects)
        self._output.write(keys.saved(self._model, epoch), to_json(saved))
        self._forget(epoch - KEPT)

    def resume(self) -> tuple[WorkerReport, dict[str, np.ndarray], dict[str, np.ndarray]] | None:
        """Finds the last epoch that is whole; every worker of the group must call it.

        Returns:
            This worker's report so far, the shared and its own state; None to begin at the beginning.

        Raises:
            DamagedObjectError: what the chief found whole is not.
            StoreError: the store did not answer; what it has is not known.
        """
        saved = self._last() if self._is_chief else None
        epoch = int(self._sum(np.array([float(saved.epoch if saved else 0)]))[0])
        if not epoch:
            return None
        saved = saved or self._read_manifest(epoch)
        report = from_json(
            WorkerReport, self._read(saved, keys.saved_report(self._model, epoch, self._worker)), "checkpoint"
        )
        shared, own = (
            arrays_from_bytes(self._read(saved, key), key)
            for key in (
                keys.shared_state(self._model, epoch),
                keys.own_state(self._model, epoch, self._worker),
            )
        )
        return report, shared, own

    def _last(self) -> Saved | None:
        """The newest epoch of which every object is as it was written."""
        prefix = keys.checkpoints(self._model)
        manifests = [key for key in self._output.list(prefix) if key.rsplit("/", 1)[-1] == keys.SAVED]
        for key in sorted(manifests, reverse=True):
            try:
                saved = from_json(Saved, self._output.read(key), key)
                if saved.training != self._training:
                    continue
                for name in saved.objects:
                    self._read(saved, name)
                return saved
            except (DamagedObjectError, MissingObjectError) as error:
                print(f"fourfold: a checkpoint is left out: {error}", flush=True)
        return None

    def _read_manifest(self, epoch: int) -> Saved:
        key = keys.saved(self._model, epoch)
        return from_json(Saved, self._output.read(key), key)

    def _read(self, saved: Saved, key: str) -> bytes:
        data = self._output.read(key)
        if sha256(data) != saved.objects.get(key):
            raise DamagedObjectError(f"{key} in {self._output.uri} is not what was saved; delete it")
        return data

    def _forget(self, epoch: int) -> None:
        """Deletes the epochs up to this one, their manifests first."""
        found = self._output.list(keys.checkpoints(self._model))
        old = [key for key in found if keys.epoch_of(key) <= epoch]
        for key in sorted(old, key=lambda key: not key.endswith(keys.SAVED)):
            self._output.delete(key)


def is_done(training: Training, plan: Plan, process: int) -> bool:
    """Whether a process's work is done, and that of all it works with: it was only started again.

    One that is killed in the moment in which all leave would wait in vain for peers that are done.

    Args:
        training: what is trained.
        plan: of the training.
        process: its index.
    """
    output = open_store(training.output)
    needed = {peer for worker in plan.workers_of(process) or (0,) for peer in plan.group_of(worker)}
    try:
        reports = [from_json(WorkerReport, output.read(keys.worker(w)), keys.worker(w)) for w in needed]
    except (MissingObjectError, DamagedObjectError):
        return False
    return all(report.training == identity(training) for report in reports)


def identity(training: Training) -> str:
    """Digest of what is trained, apart from where its result goes and how long workers wait."""
    told: dict[str, Any] = {"output": "", "store": "", "trace": []}
    # Where rows lie, and how far ahead they are read, changes nothing of what is trained.
    told["caching"] = dataclasses.replace(training.caching, ram=0, disk=0, ahead=0)
    told |= {"start_seconds": 0.0, "finish_seconds": 0.0}
    return hashlib.sha256(to_json(dataclasses.replace(training, **told))).hexdigest()
