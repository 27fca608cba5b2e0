"""The compiled training step: forward, backward, one sum over the group, one update; many steps in one call.

A step's rows may be taken in micro-batches, whose gradients are summed, and through stages that lie on
devices of their own. TensorFlow runs what does not depend on each other at once: while one stage works on a
micro-batch, the next works on the one before (Huang et al., GPipe, 2019).

Where workers exchange, all gradients and the loss travel as one flat vector, summed once over the workers of
the group inside ``strategy.run``. The sum is divided by the rows of the whole step, which gives the gradient
of the mean loss over those rows, also where shards or micro-batches differ in size. The optimiser is applied
after the sum, in the cross-replica context, in the same ``tf.function``: handed reduced gradients inside the
replica context, a Keras 3 optimiser would sum them once more.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import tensorflow as tf

from fourfold.worker import exchange
from fourfold.worker.gradients import Gradients
from fourfold.worker.parts import Parts


@dataclass(frozen=True)
class Group:
    """How a worker's steps go together with its peers'.

    Attributes:
        rank: among the workers of the group.
        world: workers of the group.
        exchanges: whether gradients are summed over the group at every step.
        copies_back: whether worker 0's weights are set in all after every step.
        reduce: sums a flat vector over the replicas, inside ``strategy.run``; None for the fastest way.
    """

    rank: int = 0
    world: int = 1
    exchanges: bool = True
    copies_back: bool = False
    reduce: Callable[[tf.Tensor], tf.Tensor] | None = None


@dataclass(frozen=True)
class Taken:
    """What some steps yielded.

    Attributes:
        losses: of each step, summed over its rows (of the group, where it exchanges), float32 [K].
        pace: mean of the group's ``pace``, equal on all its workers.
        distance: largest distance of the weights to worker 0's after a step, once those were copied back.
        drift: likewise, before they were copied back.
    """

    losses: np.ndarray
    pace: float
    distance: float
    drift: float


class Steps:
    """Trains a worker's copy of a model on rows that are ready.

    Args:
        strategy: joins the workers of the group.
        parts: the model, in whole or in stages; its outputs are logits [n, classes] for rows [n, ...].
        shape: of one row.
        group: this worker's place.
        micro_batches: parts that a step's rows are taken in, one after the other, M.
        proximal: mu; the loss has mu / 2 times the squared distance to ``anchor`` (Li et al., FedProx, 2020).
        anchor: flat weights float32 [n] that local steps are held to; None where mu is 0.
    """

    def __init__(
        self,
        strategy: tf.distribute.Strategy,
        parts: Parts,
        shape: tuple[int, ...],
        group: Group,
        micro_batches: int = 1,
        proximal: float = 0.0,
        anchor: tf.Variable | None = None,
    ):
        self._strategy, self._parts, self._group, self._shape = strategy, parts, group, shape
        self._local = strategy.num_replicas_in_sync // group.world
        self._single = strategy.num_replicas_in_sync == 1 and group.reduce is None
        self._alone = self._single or not group.exchanges
        self._shapes = [tuple(variable.shape) for variable in parts.trainable]
        self._sizes = [int(np.prod(shape, dtype=np.int64)) for shape in self._shapes]
        self._gradients = Gradients(parts, micro_batches)
        self._proximal, self._anchor = proximal, anchor
        self._reduce, self._reduce_weights, self._reduce_nothing = (
            group.reduce or exchange.fastest(group.world, self._local) for _ in range(3)
        )
        row = tf.TensorSpec([None, *shape], tf.float32)
        # Without autograph, which would rewrite every layer's call: tracing takes half the time.
        self._run = tf.function(
            self._run_steps,
            autograph=False,
            input_signature=[
                row,
                tf.TensorSpec([None], tf.int32),
                tf.TensorSpec([None], tf.int32),
                tf.TensorSpec([None], tf.float32),
                tf.TensorSpec([], tf.float32),
            ],
        )
        self._measure = tf.function(
            self._measure_rows, autograph=False, input_signature=[row, tf.TensorSpec([None], tf.int32)]
        )
        self._sum = tf.function(
            self._sum_vector, autograph=False, input_signature=[tf.TensorSpec([None], tf.float64)]
        )
        self._average = tf.function(
            self._average_state, autograph=False, input_signature=[tf.TensorSpec([], tf.float64)]
        )
        self._merge = tf.function(
            self._merge_nothing, autograph=False, input_signature=[tf.TensorSpec([], tf.int32)]
        )

    def compile(self) -> None:
        """Traces the step and readies it, so that its time does not count as training."""
        nothing = np.zeros((0, *self._shape), np.float32), np.zeros(0, np.int32)
        self.run(*nothing, np.zeros(1), np.zeros(0), 0.0)
        self._measure.get_concrete_function()

    def run(self, x: np.ndarray, y: np.ndarray, bounds: np.ndarray, totals: np.ndarray, pace: float) -> Taken:
        """Takes some steps. Workers that exchange call it with the same number of steps.

        Args:
            x: rows [n, ...] float32, in the order in which they are taken.
            y: class numbers [n] int32.
            bounds: where each of the K steps begins and ends [K + 1] int32.
            totals: rows of each step, over the group where it exchanges, [K] float32.
            pace: this worker's seconds a step, as it was before.
        """
        arguments = (x, y, bounds.astype(np.int32), totals.astype(np.float32), np.float32(pace))
        losses, pace_of_all, distance, drift = self._run(*map(tf.convert_to_tensor, arguments))
        return Taken(losses.numpy(), float(pace_of_all), float(distance), float(drift))

    def count_right(self, x: np.ndarray, y: np.ndarray, batch: int = 500) -> int:
        """How many of a worker's rows the model gets right, in inference mode.

        Args:
            x: rows [n, ...] float32.
            y: class numbers [n] int32.
            batch: rows at once.
        """
        return sum(
            int(
                self._measure(
                    *map(tf.convert_to_tensor, (x[start : start + batch], y[start : start + batch]))
                )
            )
            for start in range(0, len(y), batch)
        )

    def sum_over_group(self, values: np.ndarray) -> np.ndarray:
        """The sum of a float64 vector [n] over the workers of the group; every worker must call it."""
        return values if self._single else self._sum(tf.convert_to_tensor(values / self._local)).numpy()

    def average_statistics(self, rows: int, rows_of_all: int) -> None:
        """Sets floating-point state that is not trained (BatchNorm's moving statistics) to its mean.

        The strategy does not average it between workers; the copies would differ.

        Args:
            rows: rows of this worker, its weight in the mean.
            rows_of_all: rows of the group.
        """
        if not self._single and self._parts.statistics:
            self._average(tf.constant(rows / rows_of_all / self._local, tf.float64))

    def seconds_of_merge(self, times: int = 20, clock: Callable[[], float] = time.perf_counter) -> float:
        """Seconds that one sum of the flat vector takes, nothing else; every worker must call it."""
        if self._alone:
            return 0.0
        self._merge(tf.constant(times))
        started = clock()
        self._merge(tf.constant(times))
        return (clock() - started) / times

    @property
    def weights(self) -> int:
        """How many weights are trained."""
        return sum(self._sizes)

    def _sum_vector(self, values):
        # The sum needs a tensor that lies on the replica, not one that came in from outside.
        return self._first(self._strategy.run(lambda: exchange.over_replicas(tf.identity(values))))

    def _first(self, values):
        return tf.nest.map_structure(lambda v: self._strategy.experimental_local_results(v)[0], values)

    def _average_state(self, share):
        state = self._parts.statistics

        def average():
            return [exchange.over_replicas(tf.cast(v.value, tf.float64) * share) for v in state]

        for variable, mean in zip(state, self._first(self._strategy.run(average)), strict=True):
            variable.assign(tf.cast(mean, variable.dtype))

    def _merge_nothing(self, times):
        def merge(step, vector):
            merged = self._first(self._strategy.run(self._reduce_nothing, args=(vector,)))
            return step + 1, tf.ensure_shape(merged * 0.0, [self.weights + 2])

        start = (tf.constant(0), tf.zeros(self.weights + 2))
        return tf.while_loop(lambda step, _: step < times, merge, start, parallel_iterations=1)[1]

    def _run_steps(self, x, y, bounds, totals, pace):
        count = tf.shape(totals)[0]

        def take(step, losses, _, distance, drift):
            rows = slice(bounds[step], bounds[step + 1])
            gradients, loss, pace_of_all = self._summed(x[rows], y[rows], pace)
            self._apply(gradients, totals[step])
            distance, drift = self._copy_back(distance, drift)
            return step + 1, losses.write(step, loss), pace_of_all, distance, drift

        _, losses, pace_of_all, distance, drift = tf.while_loop(
            lambda step, *_: step < count,
            take,
            (tf.constant(0), tf.TensorArray(tf.float32, size=count), pace, tf.zeros([]), tf.zeros([])),
            parallel_iterations=1,
        )
        return losses.stack(), pace_of_all, distance, drift

    def _summed(self, x, y, pace):
        """Gradients by variable and the loss, summed over the rows of the step, and the mean pace."""
        if self._alone:
            gradients, loss = self._first(self._strategy.run(self._gradients.summed, args=(x, y)))
            return gradients, loss, pace
        total = self._first(self._strategy.run(self._flat_gradients, args=(x, y, pace)))
        *gradients, loss, paces = tf.split(total, [*self._sizes, 1, 1])
        return gradients, loss[0], paces[0] / self._strategy.num_replicas_in_sync

    def _apply(self, gradients, rows):
        """Updates each stage by the mean gradient, where the stage lies."""
        pulls = tf.split(self._anchor, self._sizes) if self._anchor is not None else [None] * len(gradients)
        given = iter(zip(gradients, self._shapes, pulls, strict=True))
        for index, (stage, optimizer) in enumerate(
            zip(self._parts.stages, self._parts.optimizers, strict=True)
        ):
            with self._parts.on(index):
                pairs = []
                for variable, (gradient, shape, pull) in zip(stage.trainable_variables, given, strict=False):
                    mean = tf.reshape(gradient / rows, shape)
                    if pull is not None:
                        away = tf.cast(variable.value, tf.float32) - tf.reshape(pull, shape)
                        mean += self._proximal * away
                    pairs.append((tf.cast(mean, variable.dtype), variable))
                if pairs:
                    optimizer.apply_gradients(pairs)

    def _copy_back(self, distance, drift):
        """Sets worker 0's weights in every worker, and measures how far apart they were, and are."""
        if not self._group.copies_back or self._alone:
            return distance, drift
        before = self._parts.flat()
        share = before if self._group.rank == 0 else tf.zeros_like(before)
        of_first = self._first(self._strategy.run(lambda: self._reduce_weights(tf.identity(share))))
        self._parts.assign_flat(of_first)
        after = self._parts.flat()
        return tf.maximum(distance, tf.norm(after - of_first)), tf.maximum(drift, tf.norm(before - of_first))

    def _flat_gradients(self, x, y, pace):
        """One replica's gradients and loss, summed over its rows, then the group: float32 [weights + 2]."""
        if self._local > 1:
            replica = tf.distribute.get_replica_context().replica_id_in_sync_group % self._local
            rows = tf.shape(y)[0]
            mine = slice(rows * replica // self._local, rows * (replica + 1) // self._local)
            x, y = x[mine], y[mine]
        # A worker may have no row in a step (a small shard, a last batch of one row): it adds zeros.
        own = tf.cond(tf.size(y) > 0, lambda: self._flat(x, y), lambda: tf.zeros(self.weights + 1))
        return self._reduce(tf.concat([own, [pace]], axis=0))

    def _flat(self, x, y):
        gradients, loss = self._gradients.summed(x, y)
        return tf.concat([*(tf.reshape(gradient, [-1]) for gradient in gradients), [loss]], axis=0)

    def _measure_rows(self, x, y):
        logits = self._parts.forward(x)
        return tf.reduce_sum(tf.cast(tf.equal(tf.argmax(logits, axis=-1, output_type=tf.int32), y), tf.int32))
