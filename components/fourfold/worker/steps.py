"""The compiled training step: forward, backward, one sum over the group, one update; many steps in one call.

All gradients and the loss travel as one flat vector, summed once over the workers of the group inside
``strategy.run``. The sum is divided by the rows of the whole step, which gives the gradient of the mean loss
over those rows, also where shards differ in size. The optimiser is applied after the sum, in the
cross-replica context, in the same ``tf.function``: handed reduced gradients inside the replica context, a
Keras 3 optimiser would sum them once more.
"""

from collections.abc import Callable

import numpy as np
import tensorflow as tf

from fourfold.model.pinned import keras
from fourfold.worker import exchange


class Steps:
    """Trains a model on rows that are ready.

    Args:
        strategy: joins the workers of the group; the model and the optimiser are built in its scope.
        model: gives logits [n, classes] for rows [n, ...].
        optimizer: built on the model's trainable variables.
        shape: of one row.
        world: workers of the group.
        reduce: sums a flat vector over the replicas, inside ``strategy.run``; None for the fastest way.
    """

    def __init__(
        self,
        strategy: tf.distribute.Strategy,
        model: keras.Model,
        optimizer: keras.optimizers.Optimizer,
        shape: tuple[int, ...],
        world: int,
        reduce: Callable[[tf.Tensor], tf.Tensor] | None = None,
    ):
        self._strategy = strategy
        self._model = model
        self._optimizer = optimizer
        self._local = strategy.num_replicas_in_sync // world
        self._alone = strategy.num_replicas_in_sync == 1 and reduce is None
        on_cpu = not tf.config.list_physical_devices("GPU")
        two = world == 2 and self._local == 1 and on_cpu
        self._reduce = reduce or (exchange.between_two() if two else exchange.over_replicas)
        self._shapes = [tuple(variable.shape) for variable in model.trainable_variables]
        self._sizes = [int(np.prod(shape, dtype=np.int64)) for shape in self._shapes]
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
        self._state = [v for v in model.non_trainable_variables if tf.as_dtype(v.dtype).is_floating]
        self._average = tf.function(
            self._average_state, autograph=False, input_signature=[tf.TensorSpec([], tf.float64)]
        )

    def compile(self) -> None:
        """Traces the step, so that its time does not count as training."""
        self._run.get_concrete_function()
        self._measure.get_concrete_function()

    def run(
        self, x: np.ndarray, y: np.ndarray, bounds: np.ndarray, totals: np.ndarray, pace: float
    ) -> tuple[np.ndarray, float]:
        """Takes some steps. All workers of the group call it with the same number of steps.

        Args:
            x: rows [n, ...] float32, in the order in which they are taken.
            y: class numbers [n] int32.
            bounds: where each of the K steps begins and ends [K + 1] int32.
            totals: rows of each step over the group [K] float32.
            pace: this worker's seconds a step, as it was before.

        Returns:
            Each step's loss, summed over the rows of the group, float32 [K]; and the mean of all workers'
            ``pace``, equal on all workers.
        """
        losses, pace_of_all = self._run(
            x, y, bounds.astype(np.int32), totals.astype(np.float32), np.float32(pace)
        )
        return losses.numpy(), float(pace_of_all)

    def count_right(self, x: np.ndarray, y: np.ndarray, batch: int = 500) -> int:
        """How many of a worker's rows the model gets right, in inference mode.

        Args:
            x: rows [n, ...] float32.
            y: class numbers [n] int32.
            batch: rows at once.
        """
        return sum(
            int(self._measure(x[start : start + batch], y[start : start + batch]))
            for start in range(0, len(y), batch)
        )

    def sum_over_group(self, values: np.ndarray) -> np.ndarray:
        """The sum of a float64 vector [n] over the workers of the group; every worker must call it."""
        return values if self._alone else self._sum(values / self._local).numpy()

    def average_statistics(self, rows: int, rows_of_all: int) -> None:
        """Sets floating-point state that is not trained (BatchNorm's moving statistics) to its mean.

        The strategy does not average it between workers; the copies would differ.

        Args:
            rows: rows of this worker, its weight in the mean.
            rows_of_all: rows of the group.
        """
        if not self._alone and self._state:
            self._average(rows / rows_of_all / self._local)

    def _sum_vector(self, values):
        # The sum needs a tensor that lies on the replica, not one that came in from outside.
        total = self._strategy.run(lambda: exchange.over_replicas(tf.identity(values)))
        return self._strategy.experimental_local_results(total)[0]

    def _average_state(self, share):
        def average():
            return [exchange.over_replicas(tf.cast(v.value, tf.float64) * share) for v in self._state]

        for variable, value in zip(self._state, self._strategy.run(average), strict=True):
            mean = self._strategy.experimental_local_results(value)[0]
            variable.assign(tf.cast(mean, variable.dtype))

    def _run_steps(self, x, y, bounds, totals, pace):
        count = tf.shape(totals)[0]

        def take(step, losses, _):
            rows = slice(bounds[step], bounds[step + 1])
            total = self._strategy.run(self._flat_gradients, args=(x[rows], y[rows], pace))
            total = self._strategy.experimental_local_results(total)[0]
            *gradients, loss, paces = tf.split(total, [*self._sizes, 1, 1])
            gradients = [
                tf.cast(tf.reshape(gradient / totals[step], shape), variable.dtype)
                for gradient, shape, variable in zip(
                    gradients, self._shapes, self._model.trainable_variables, strict=True
                )
            ]
            self._optimizer.apply_gradients(zip(gradients, self._model.trainable_variables, strict=True))
            return step + 1, losses.write(step, loss[0]), paces[0] / self._strategy.num_replicas_in_sync

        _, losses, pace_of_all = tf.while_loop(
            lambda step, *_: step < count,
            take,
            (tf.constant(0), tf.TensorArray(tf.float32, size=count), pace),
            parallel_iterations=1,
        )
        return losses.stack(), pace_of_all

    def _flat_gradients(self, x, y, pace):
        """One replica's gradients and loss, summed over its rows, then the group: float32 [weights + 2]."""
        if self._local > 1:
            replica = tf.distribute.get_replica_context().replica_id_in_sync_group % self._local
            rows = tf.shape(y)[0]
            mine = slice(rows * replica // self._local, rows * (replica + 1) // self._local)
            x, y = x[mine], y[mine]
        # A worker may have no row in a step (a small shard, a last batch of one row): it adds zeros.
        own = tf.cond(
            tf.size(y) > 0, lambda: self._summed_over_rows(x, y), lambda: tf.zeros(sum(self._sizes) + 1)
        )
        flat = tf.concat([own, [pace]], axis=0)
        return flat if self._alone else self._reduce(flat)

    def _summed_over_rows(self, x, y):
        with tf.GradientTape() as tape:
            logits = self._model(x, training=True)
            loss = tf.reduce_sum(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits))
            if self._model.losses:
                loss += tf.add_n(self._model.losses) * tf.cast(tf.shape(y)[0], tf.float32)
        variables = [variable.value for variable in self._model.trainable_variables]
        gradients = tape.gradient(loss, variables, unconnected_gradients=tf.UnconnectedGradients.ZERO)
        flat = [
            tf.reshape(tf.cast(tf.convert_to_tensor(gradient), tf.float32), [-1]) for gradient in gradients
        ]
        return tf.concat([*flat, [loss]], axis=0)

    def _measure_rows(self, x, y):
        logits = self._model(x, training=False)
        return tf.reduce_sum(tf.cast(tf.equal(tf.argmax(logits, axis=-1, output_type=tf.int32), y), tf.int32))
