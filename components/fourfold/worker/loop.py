"""The training of one worker, as one story."""

import sys
import time
from collections.abc import Callable

import numpy as np

from fourfold.contract import events, keys, plan as plans
from fourfold.contract.errors import DivergedError
from fourfold.contract.records import Epoch, Training, WorkerReport, to_json
from fourfold.model import network, weights
from fourfold.model.pinned import keras
from fourfold.store.objects import open_store
from fourfold.worker import cluster, input, save
from fourfold.worker.steps import Steps

SECONDS_A_CALL = 1.0
"""Steps are taken in calls of about this length; between two calls progress is told."""
FIRST_STEPS = 8
"""Steps of the first call, when nobody's pace is known."""


def train(training: Training, role: cluster.Role, process: str) -> WorkerReport:
    """Trains this worker's model, together with its peers where the plan says so, and writes what it yields.

    Args:
        training: what to train.
        role: this worker's place among all workers.
        process: what this worker is called in the results.

    Raises:
        DivergedError: the loss or a weight is not finite any more.
        StoreError: rows cannot be read, or results not written.
    """
    plan = plans.plan(training.scenario, training.workers)
    group = role.in_group(plan)
    # What an earlier try left must not be taken for this one's; peers meet after this.
    open_store(training.output).delete(keys.worker(role.rank))
    strategy = cluster.make_strategy(group, training.threads)
    tell("started", scenario=training.scenario, worker=role.rank, workers=plan.workers, process=process)

    shard = input.read_shard(training, plan, role.rank)
    shape, classes = tuple(shard.manifest.shape), len(shard.manifest.class_names)
    with strategy.scope():
        model = network.build(shape, classes, training.seed)
        optimizer = network.optimizer(training.optimizer, training.learning_rate)
        optimizer.build(model.trainable_variables)
    steps = Steps(strategy, model, optimizer, shape, group.world)
    steps.compile()

    story = _Story(training, role, group, plan, shard, model, optimizer, steps)
    epochs, digests = [], []
    for epoch in range(training.epochs):
        epochs.append(story.epoch(epoch))
        digests.append(weights.digest(weights.arrays(model)))
        if group.rank == 0:
            tell(
                "epoch",
                scenario=training.scenario,
                model=plan.model_of(role.rank),
                models=len(plan.groups),
                epoch=epoch + 1,
                epochs=training.epochs,
                loss=epochs[-1].loss,
                accuracy=epochs[-1].accuracy,
                seconds=epochs[-1].seconds,
                rows=epochs[-1].rows,
            )
    output = open_store(training.output)
    index = plan.model_of(role.rank)
    objects = save.write_model(output, index, model, training) if group.rank == 0 else {}
    report = WorkerReport(
        worker=role.rank,
        process=process,
        model=index,
        rows=len(shard.y),
        epochs=epochs,
        digests=digests,
        objects=objects,
        environment=save.environment(training.threads),
    )
    output.write(keys.worker(role.rank), to_json(report))
    # A sum is done here before its last piece has reached the peer: nobody leaves before all are done.
    save.wait_for_reports(output, plan.group_of(role.rank), training.finish_seconds)
    return report


def tell(kind: str, **fields) -> None:
    """Tells the launcher an event."""
    sys.stdout.write(events.encode(kind, **fields) + "\n")
    sys.stdout.flush()


class _Story:
    """What the epochs of one training share."""

    def __init__(
        self,
        training: Training,
        role: cluster.Role,
        group: cluster.Role,
        plan: plans.Plan,
        shard: input.Shard,
        model: keras.Model,
        optimizer: keras.optimizers.Optimizer,
        steps: Steps,
        clock: Callable[[], float] = time.perf_counter,
    ):
        self.training, self.role, self.group, self.plan = training, role, group, plan
        self.shard, self.model, self.optimizer, self.steps = shard, model, optimizer, steps
        self.clock = clock
        self.rows_of_all = int(shard.totals.sum())
        self.pace, self.pace_of_all, self.taken = 0.0, 0.0, 0

    def epoch(self, epoch: int) -> Epoch:
        """One pass over the rows of the group."""
        order = input.order(self.training.seed, epoch, self.shard.index, len(self.shard.y))
        losses, seconds, step = [], 0.0, 0
        while step < self.shard.steps:
            count = self._steps_in_next_call(self.shard.steps - step)
            traced = self.taken in self.training.trace
            before = save.state(self.model, self.optimizer) if traced else {}
            first, last = self.shard.bounds[step], self.shard.bounds[step + count]
            rows = order[first:last]
            started = self.clock()
            summed, pace_of_all = self.steps.run(
                self.shard.x[rows],
                self.shard.y[rows],
                self.shard.bounds[step : step + count + 1] - first,
                self.shard.totals[step : step + count],
                self.pace,
            )
            taken = self.clock() - started
            seconds += taken
            self._check(epoch, step, summed / self.shard.totals[step : step + count])
            if traced:
                self._write_trace(before, self.shard.numbers[rows])
            losses.extend(summed.tolist())
            step, self.taken = step + count, self.taken + count
            # All workers' steps must fall into the same calls: the next goes by everybody's pace.
            self.pace_of_all, self.pace = pace_of_all, taken / count
            if self.group.rank == 0 and step < self.shard.steps:
                self._tell_progress(epoch, step, float(np.sum(losses) / self.shard.totals[:step].sum()))
        started = self.clock()
        self.steps.average_statistics(len(self.shard.y), self.rows_of_all)
        seconds += self.clock() - started
        right = self.steps.sum_over_group(
            np.array([self.steps.count_right(self.shard.x, self.shard.y)], np.float64)
        )
        return Epoch(
            loss=float(np.sum(losses, dtype=np.float64) / self.rows_of_all),
            accuracy=float(right[0] / self.rows_of_all),
            seconds=seconds,
            rows=self.rows_of_all,
        )

    def _steps_in_next_call(self, left: int) -> int:
        """About a second's worth of steps, equal on all workers; a traced step is alone."""
        count = min(
            left, max(1, int(SECONDS_A_CALL / self.pace_of_all)) if self.pace_of_all > 0 else FIRST_STEPS
        )
        if self.taken in self.training.trace:
            return 1
        ahead = [step - self.taken for step in self.training.trace if step > self.taken]
        return min([count, *ahead])

    def _check(self, epoch: int, step: int, means: np.ndarray) -> None:
        wrong = np.flatnonzero(~np.isfinite(means))
        if len(wrong):
            raise DivergedError(
                f"{self.training.scenario} diverged: the loss is {means[wrong[0]]} at step "
                f"{step + int(wrong[0]) + 1} of {self.shard.steps} in epoch {epoch + 1}; "
                f"with --optimizer {self.training.optimizer} a --learning-rate far below "
                f"{self.training.learning_rate:g} should help; 0.001 is usual for adam, 0.01 to 0.1 for sgd"
            )

    def _write_trace(self, before: dict[str, np.ndarray], numbers: np.ndarray) -> None:
        save.write_trace(
            open_store(self.training.output),
            keys.trace(self.role.rank, self.taken),
            before,
            save.state(self.model, self.optimizer),
            numbers,
        )

    def _tell_progress(self, epoch: int, step: int, loss: float) -> None:
        tell(
            "progress",
            scenario=self.training.scenario,
            model=self.plan.model_of(self.role.rank),
            models=len(self.plan.groups),
            epoch=epoch + 1,
            epochs=self.training.epochs,
            step=step,
            steps=self.shard.steps,
            loss=loss,
        )
