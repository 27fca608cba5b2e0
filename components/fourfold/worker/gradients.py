"""Gradients of a step's rows: through all stages with one tape, summed over micro-batches."""

from typing import Any

import tensorflow as tf

from fourfold.worker.parts import Parts


class Gradients:
    """The gradients of a model's loss.

    Args:
        parts: the model, in whole or in stages; its outputs are logits [n, classes] for rows [n, ...].
        micro_batches: parts that the rows are taken in, one after the other, M.
    """

    def __init__(self, parts: Parts, micro_batches: int):
        self._parts, self._micro_batches = parts, micro_batches

    def summed(self, x: tf.Tensor, y: tf.Tensor) -> tuple[list[tf.Tensor], tf.Tensor]:
        """Gradients and loss, each a sum over the rows.

        Args:
            x: rows [n, ...] float32, n at least 1; micro-batches differ by a row where M does not divide n.
            y: class numbers [n] int32.

        Returns:
            Float32 by variable, in their order and shape; and the loss, float32 [].
        """
        if self._micro_batches == 1:
            return self._of(x, y, 1.0)
        found = [self._of_micro_batch(x, y, index) for index in range(self._micro_batches)]
        by_variable = iter(zip(*(gradients for gradients, _ in found), strict=True))
        gradients = []
        for index, stage in enumerate(self._parts.stages):
            with self._parts.on(index), tf.name_scope(f"stage_{index}"):
                gradients += [tf.add_n(next(by_variable)) for _ in stage.trainable_variables]
        return gradients, tf.add_n([loss for _, loss in found])

    def _of_micro_batch(self, x, y, index):
        rows = tf.shape(y)[0]
        first = rows * index // self._micro_batches
        last = rows * (index + 1) // self._micro_batches
        # A micro-batch of fewer rows than there are micro-batches may have none: a row that counts nothing.
        begin = tf.minimum(first, rows - 1)
        mine = slice(begin, tf.maximum(last, begin + 1))
        return self._of(x[mine], y[mine], tf.cast(last > first, tf.float32))

    def _of(self, x, y, weight):
        """Gradients of ``weight`` times the summed loss: one tape, each stage's part where the stage lies."""
        parts = self._parts
        rows = tf.cast(tf.shape(y)[0], tf.float32)
        handed, penalties = [x], []
        with tf.GradientTape(persistent=len(parts.stages) > 1) as tape:
            for index, stage in enumerate(parts.stages):
                with parts.on(index), tf.name_scope(f"stage_{index}"):
                    handed.append(stage(handed[-1], training=True))
                    penalties.append(tf.add_n(stage.losses) * rows * weight if stage.losses else None)
            with parts.on(len(parts.stages) - 1), tf.name_scope(f"stage_{len(parts.stages) - 1}"):
                logits = tf.cast(handed[-1], tf.float32)
                each = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits)
                loss = tf.reduce_sum(each) * weight
                # What a layer's weights cost belongs to the loss.
                targets = [loss if penalties[-1] is None else loss + penalties[-1]]
        total = targets[0] + sum(penalty for penalty in penalties[:-1] if penalty is not None)
        gradients: list[tf.Tensor] = []
        outer: list[Any] | None = None
        for index in reversed(range(len(parts.stages))):
            # TensorFlow computes gradients where they are asked for, not where the layers lie.
            with parts.on(index), tf.name_scope(f"stage_{index}"):
                own = [variable.value for variable in parts.stages[index].trainable_variables]
                sources = [*own, *([handed[index]] if index else [])]
                found: Any = tape.gradient(
                    targets,
                    sources,
                    output_gradients=outer,
                    unconnected_gradients=tf.UnconnectedGradients.ZERO,
                )
                gradients = [
                    tf.cast(tf.convert_to_tensor(gradient), tf.float32) for gradient in found[: len(own)]
                ] + gradients
            if index:
                targets, outer = [handed[index]], [found[-1]]
                if penalties[index - 1] is not None:
                    targets, outer = [*targets, penalties[index - 1]], [*outer, tf.ones([])]
        return gradients, total
