"""The epochs of one worker: which steps are taken in one call, what is measured between calls."""

import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from fourfold.contract import keys, plan as plans
from fourfold.contract.errors import DivergedError
from fourfold.contract.records import Epoch, Round, Training, WorkerReport
from fourfold.model import weights
from fourfold.store.objects import open_store
from fourfold.worker import busy, input, parts, probes as probing, save, words
from fourfold.worker.rounds import Rounds
from fourfold.worker.steps import Group, Steps

FLOAT = 4
SECONDS_A_CALL = 1.0
"""Steps are taken in calls of about this length; between two calls progress is told."""
BYTES_A_CALL = 64e6
"""Rows of one call are at most about so large."""
FIRST_STEPS = 8
"""Steps of the first call, when nobody's pace is known."""


class Epochs:
    """What the epochs of one training share.

    Args:
        training: what is trained.
        plan: of the training.
        shard: this worker's rows.
        built: its copy of the model.
        steps: takes steps.
        group: its place among those that it exchanges with.
        rounds: merges weights, where they are merged in rounds.
        probes: takes features, where they are taken.
        tell: tells an event.
        clock: seconds.
    """

    def __init__(
        self,
        training: Training,
        plan: plans.Plan,
        shard: input.Shard,
        built: parts.Parts,
        steps: Steps,
        group: Group,
        rounds: Rounds | None,
        probes: probing.Probes | None,
        tell: Callable[..., None],
        clock: Callable[[], float] = time.perf_counter,
    ):
        self.training, self.plan, self.shard, self.built, self.steps = training, plan, shard, built, steps
        self.group, self.rounds, self.probes, self.tell, self.clock = group, rounds, probes, tell, clock
        self.rows_of_all = int(shard.totals.sum())
        self.own_rows = np.diff(shard.bounds)
        # Of the mean worker, so that it is the same on all.
        row = FLOAT * float(np.prod(shard.manifest.shape))
        self.bytes_a_step = row * max(1.0, float(shard.totals.max(initial=1.0))) / group.world
        self.pace, self.pace_of_all, self.taken = 0.0, 0.0, 0
        self.seconds, self.distance, self.drift = 0.0, 0.0, 0.0
        self.trace: tuple[str, dict[str, np.ndarray], np.ndarray] | None = None
        self.busy: list = []
        self.stream = shard.reader.epoch([])

    def epoch(self, epoch: int, report: WorkerReport) -> WorkerReport:
        """One pass over the rows of the group.

        Args:
            epoch: counted from 0.
            report: what there was to say before.

        Returns:
            The report with what this epoch adds.

        Raises:
            DivergedError: the loss is not finite any more.
        """
        windows = self.shard.windows(epoch)
        self.stream, order = self.shard.reader.epoch(windows), np.concatenate(windows)
        self.seconds, total, rounds = 0.0, 0.0, []
        for first, last in self._rounds():
            loss = self._take(epoch, order, first, last)
            if self.rounds:
                rounds.append(self._merge(first, last, loss))
                loss = (rounds[-1].loss or 0.0) * rounds[-1].rows
            self._write_trace()
            total += loss
        started = self.clock()
        self.steps.average_statistics(len(self.shard.numbers), self.rows_of_all)
        self.seconds += self.clock() - started + self.stream.waited
        read = input.read_by(self.shard, self.stream.waited, int(self.own_rows.sum()))
        right = self.steps.sum_over_group(np.array([self._count_right()], np.float64))
        self.shard.reader.take_served()
        done = Epoch(
            loss=float(total / self.rows_of_all),
            accuracy=float(right[0] / self.rows_of_all),
            seconds=self.seconds,
            rows=self.rows_of_all,
        )
        report = replace(
            report,
            epochs=[*report.epochs, done],
            digests=[*report.digests, weights.digest(weights.arrays(self.built.pull()))],
            rounds=[*report.rounds, *rounds],
            busy=self.busy or report.busy,
            inputs=[*report.inputs, read],
        )
        if self.group.copies_back and self.group.world > 1:
            report = replace(report, distance=self.distance, drift=self.drift)
        return self._measured(report) if len(report.epochs) == 1 else report

    def state(self) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
        """The state that a restart needs: what all copies share, and what is this worker's own."""
        shared, own = self._variables()
        probed = self.probes.state() if self.probes else {}
        return parts.values(shared), {**parts.values(own), **{f"probe/{k}": v for k, v in probed.items()}}

    def restore(
        self, report: WorkerReport, shared: dict[str, np.ndarray], own: dict[str, np.ndarray]
    ) -> None:
        """Goes on from a state as of ``state``."""
        of_all, of_this = self._variables()
        parts.restore({**of_all, **of_this}, {**shared, **own})
        if self.rounds:
            self.rounds.start()
        if self.probes:
            self.probes.restore({name: own[f"probe/{name}"] for name in ("steps", "features")})
        self.taken = len(report.epochs) * self.shard.steps
        self.distance, self.drift = report.distance or 0.0, report.drift or 0.0

    def _variables(self) -> tuple[dict[str, list], dict[str, list]]:
        """The variables of that state by kind: shared, and this worker's own."""
        found = self.built.saved()
        shared, own = {"weight": found["weight"]}, {"rest": found["rest"]}
        (own if self.rounds else shared)["optimizer"] = found["optimizer"]
        if self.rounds:
            shared["velocity"] = [self.rounds.velocity]
        return shared, own

    def _count_right(self) -> int:
        """How many of its rows the model gets right."""
        rows, right = self.shard.rows(), 0
        while rows.left:
            right += self.steps.count_right(*rows.take(min(rows.left, input.MEASURED_AT_ONCE)))
        return right

    def _rounds(self) -> list[tuple[int, int]]:
        """First and last (excluded) step of each round; one, where nothing is merged in rounds."""
        steps = self.shard.steps
        length = self.training.local_steps or steps if self.rounds else steps
        return [(first, min(first + length, steps)) for first in range(0, steps, length)]

    def _take(self, epoch: int, order: np.ndarray, step: int, last: int) -> float:
        """Takes steps up to ``last``; gives their loss, summed over rows."""
        begun, losses = step, []
        while step < last:
            self._write_trace()
            count = self._steps_in_next_call(epoch, step, last)
            # A worker that takes steps by itself leaves those out in which it has no row.
            mine = np.arange(step, step + count)
            totals = self.shard.totals[mine]
            if self.rounds:
                mine = mine[self.own_rows[mine] > 0]
                totals = self.own_rows[mine].astype(np.float32)
            first, end = self.shard.bounds[step], self.shard.bounds[step + count]
            rows = order[first:end]
            bounds = np.append(self.shard.bounds[mine], end) - first
            if self.taken in self.training.trace:
                key = keys.trace(self.shard.worker, self.taken)
                self.trace = (key, self.built.state(), self.shard.numbers[rows])
            self._run(epoch, step, len(rows), bounds, totals, losses)
            step, self.taken = step + count, self.taken + count
            if self.probes and step in probing.marks(self.shard.steps):
                self.probes.take(self.taken)
            if self.group.rank == 0 and step < self.shard.steps:
                of = self.own_rows if self.rounds else self.shard.totals
                self._tell_progress(epoch, step, float(np.sum(losses) / max(of[begun:step].sum(), 1)))
        return float(np.sum(losses, dtype=np.float64))

    def _run(
        self,
        epoch: int,
        step: int,
        rows: int,
        bounds: np.ndarray,
        totals: np.ndarray,
        losses: list[float],
    ) -> None:
        """Takes the steps of one call."""
        x, y = self.stream.take(rows)
        if not len(totals):
            return
        started = self.clock()
        if self._is_watched(self.taken):
            taken, self.busy = busy.during(lambda: self.steps.run(x, y, bounds, totals, self.pace))
        else:
            taken = self.steps.run(x, y, bounds, totals, self.pace)
        seconds = self.clock() - started
        self.seconds += seconds
        self._check(epoch, step, taken.losses / totals)
        losses.extend(taken.losses.tolist())
        # All workers' steps must fall into the same calls: the next goes by everybody's pace.
        self.pace_of_all, self.pace = taken.pace, seconds / len(totals)
        self.distance = max(self.distance, taken.distance)
        self.drift = max(self.drift, taken.drift)

    def _merge(self, first: int, last: int, loss: float) -> Round:
        assert self.rounds is not None
        own, rows = int(self.own_rows[first:last].sum()), int(self.shard.totals[first:last].sum())
        started = self.clock()
        distance = self.rounds.merge(own, rows)
        self.seconds += self.clock() - started
        summed = self.steps.sum_over_group(np.array([loss, distance * own], np.float64))
        return Round(
            steps=last - first,
            rows=rows,
            loss=float(summed[0] / rows) if rows else None,
            distance=float(summed[1] / rows) if rows else 0.0,
        )

    def _steps_in_next_call(self, epoch: int, step: int, last: int) -> int:
        """About a second's worth of steps, equal on all workers that exchange; up to where a call ends."""
        count = max(1, int(SECONDS_A_CALL / self.pace_of_all)) if self.pace_of_all > 0 else FIRST_STEPS
        count = min(count, max(1, int(BYTES_A_CALL / self.bytes_a_step)))
        begin = epoch * self.shard.steps
        ends = {begin + last, *(end for each in self.training.trace for end in (each, each + 1))}
        if self.plan.scenario.splits_model:
            ends |= {self._watched, self._watched + 1}
        if self.probes:
            ends |= {begin + mark for mark in probing.marks(self.shard.steps)}
        return min([count, *(end - self.taken for end in ends if end > self.taken)])

    @property
    def _watched(self) -> int:
        """The step in which it is watched when stages work: the last epoch's second, if there are two."""
        return (self.training.epochs - 1) * self.shard.steps + min(1, self.shard.steps - 1)

    def _is_watched(self, step: int) -> bool:
        plan = self.plan
        if self.training.debug or self.group.rank or not plan.scenario.splits_model or plan.stage_a_process:
            # Of stages on other processes nothing is seen here, which would look as if they had not worked.
            return False
        return step == self._watched

    def _measured(self, report: WorkerReport) -> WorkerReport:
        """Adds what is measured once: bytes that a step sends, and the time that merging takes of it."""
        steps = self.shard.steps
        sent = words.bytes_per_step(
            self.plan,
            weights=self.steps.weights,
            rows=float(self.own_rows.sum()) / steps,
            handed=self.built.handed,
            steps_a_round=self.training.local_steps or steps,
        )
        report = replace(report, bytes_per_step=sent)
        if not self.plan.scenario.exchanges or self.rounds or self.group.world == 1:
            return report
        merging, step = self.steps.sum_over_group(
            np.array([self.steps.seconds_of_merge(), self.seconds / steps], np.float64)
        )
        share = min(1.0, float(merging / step))
        report = replace(report, merge_share=share)
        said = words.of_merge(self.training, share)
        if said and self.group.rank == 0:
            self.tell("said", scenario=self.training.scenario, message=said)
        return replace(report, said=[*report.said, said]) if said else report

    def _check(self, epoch: int, step: int, means: np.ndarray) -> None:
        wrong = np.flatnonzero(~np.isfinite(means))
        if len(wrong):
            raise DivergedError(
                f"{self.training.scenario} diverged: the loss is {means[wrong[0]]} at step "
                f"{step + int(wrong[0]) + 1} of {self.shard.steps} in epoch {epoch + 1}; "
                f"with --optimizer {self.training.optimizer} a --learning-rate far below "
                f"{self.training.learning_rate:g} should help; 0.001 is usual for adam, 0.01 to 0.1 for sgd"
            )

    def _write_trace(self) -> None:
        """Writes the state around the last step, if asked for: after its merge, where it has one."""
        if self.trace is not None:
            key, before, numbers = self.trace
            self.trace = None
            save.write_trace(open_store(self.training.output), key, before, self.built.state(), numbers)

    def _tell_progress(self, epoch: int, step: int, loss: float) -> None:
        self.tell(
            "progress",
            scenario=self.training.scenario,
            model=self.plan.model_of(self.shard.worker),
            models=len(self.plan.groups),
            epoch=epoch + 1,
            epochs=self.training.epochs,
            step=step,
            steps=self.shard.steps,
            loss=loss,
        )
