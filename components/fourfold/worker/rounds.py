"""Merging weights after rounds of local steps.

The merge is the mean of the workers' weights, weighted by the rows of the round (McMahan et al., FedAvg,
2017); with a server momentum beta the change over the round adds to beta times the changes before (Hsu et
al., FedAvgM, 2019). Each worker keeps its own optimiser's state over rounds.
"""

import tensorflow as tf

from fourfold.worker import exchange
from fourfold.worker.parts import Parts


class Rounds:
    """Merges the weights of a group's workers.

    Args:
        strategy: joins the workers of the group, one replica each.
        parts: this worker's copy of the model.
        momentum: of the merged weights over rounds, beta; 0 for none.
    """

    def __init__(self, strategy: tf.distribute.Strategy, parts: Parts, momentum: float):
        self._strategy, self._parts, self._momentum = strategy, parts, momentum
        self.anchor = tf.Variable(parts.flat(), trainable=False)
        self.velocity = tf.Variable(tf.zeros_like(self.anchor), trainable=False)
        self._sum = exchange.fastest(strategy.num_replicas_in_sync, local=1)
        self._run = tf.function(self._merge, autograph=False, input_signature=[tf.TensorSpec([], tf.float32)])

    def merge(self, rows: int, rows_of_all: int) -> float:
        """Sets the merged weights in all workers; every worker of the group must call it.

        Args:
            rows: that this worker took in the round; 0 gives its weights no say.
            rows_of_all: of the group, at least 1.

        Returns:
            The Euclidean distance of this worker's weights to the merge.
        """
        return float(self._run(tf.constant(rows / rows_of_all, tf.float32)))

    def start(self) -> None:
        """Takes the weights as they are for the start of the first round."""
        self.anchor.assign(self._parts.flat())

    def _merge(self, share):
        own = self._parts.flat()
        # The changes are averaged, not the weights: they are small, so less is lost in rounding.
        change = (own - self.anchor) * share
        if self._strategy.num_replicas_in_sync > 1:
            summed = self._strategy.run(lambda: self._sum(tf.identity(change)))
            change = self._strategy.experimental_local_results(summed)[0]
        if self._momentum:
            change += self._momentum * self.velocity
            self.velocity.assign(change)
        merged = self.anchor + change
        self._parts.assign_flat(merged)
        self.anchor.assign(merged)
        return tf.norm(own - merged)
