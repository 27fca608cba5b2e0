"""A worker's copy of the model: whole, or as stages on devices of their own."""

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from fourfold.model import stages as cutting, weights
from fourfold.model.pinned import keras


class Parts:
    """What a worker trains: a model, or the stages that it was cut into, each with an optimiser of its own.

    An optimiser that goes by one variable at a time (all of ours do) is the same whole or in pieces.

    Args:
        whole: the model; where it was cut, a twin that holds the stages' weights after ``pull``.
        stages: in their order; the model itself where it was not cut.
        optimizers: one a stage, built on its variables.
        devices: one a stage; empty where the strategy says.
        cut: names of the layers after which the model was cut.
    """

    def __init__(
        self,
        whole: keras.Model,
        stages: Sequence[keras.Model],
        optimizers: Sequence[keras.optimizers.Optimizer],
        devices: Sequence[str] = (),
        cut: Sequence[str] = (),
    ):
        self.whole, self.stages, self.optimizers = whole, list(stages), list(optimizers)
        self.devices, self.cut = list(devices), list(cut)
        self.handed = (
            [int(np.prod([size or 1 for size in shape])) for shape in cutting.handoffs(whole, cut)]
            if cut
            else []
        )

    @property
    def trainable(self) -> list[keras.Variable]:
        """The variables that are trained, in the order of the whole model."""
        return [variable for stage in self.stages for variable in stage.trainable_variables]

    @property
    def statistics(self) -> list[keras.Variable]:
        """Floating-point variables that are not trained."""
        found = [variable for stage in self.stages for variable in stage.non_trainable_variables]
        return [variable for variable in found if tf.as_dtype(variable.dtype).is_floating]

    def on(self, stage: int) -> contextlib.AbstractContextManager[Any]:
        """A scope in which what is computed lies on the stage's device."""
        return tf.device(self.devices[stage]) if self.devices else contextlib.nullcontext()

    def forward(self, x: tf.Tensor) -> tf.Tensor:
        """The model's outputs for rows [n, ...], in inference mode."""
        for index, stage in enumerate(self.stages):
            with self.on(index):
                x = stage(x, training=False)
        return x

    def flat(self) -> tf.Tensor:
        """The trained weights as one vector, float32 [n]."""
        return tf.concat([tf.reshape(tf.cast(v.value, tf.float32), [-1]) for v in self.trainable], axis=0)

    def assign_flat(self, vector: tf.Tensor) -> None:
        """Sets the trained weights to those of a vector as of ``flat``."""
        sizes = [int(np.prod(variable.shape)) for variable in self.trainable]
        for variable, value in zip(self.trainable, tf.split(vector, sizes), strict=True):
            variable.assign(tf.cast(tf.reshape(value, variable.shape), variable.dtype))

    def pull(self) -> keras.Model:
        """The whole model with the weights that are trained."""
        if self.stages[0] is not self.whole:
            cutting.pull(self.whole, self.stages)
        return self.whole

    def optimizer_variables(self) -> list[Any]:
        """The optimisers' variables in the order of an optimiser of the whole model.

        Keras keeps the step and the learning rate first, then what it has for each variable in turn.
        """
        first, *others = [optimizer.variables for optimizer in self.optimizers]
        return [*first, *(variable for other in others for variable in other[2:])]

    def state(self) -> dict[str, np.ndarray]:
        """The model's and the optimiser's variables by name, as they are now."""
        named = {f"model/{name}": value for name, value in weights.arrays(self.pull()).items()}
        for index, variable in enumerate(self.optimizer_variables()):
            named[f"optimizer/{index:03d}"] = np.asarray(variable.numpy())
        return named

    def saved(self) -> dict[str, list[Any]]:
        """All variables that a restart needs, by kind and in order: trained, the optimisers', and the rest.

        The rest are moving statistics and what layers draw with: Dropout's seed is in no model's file.
        """
        rest = [variable for stage in self.stages for variable in stage.non_trainable_variables]
        # Every stage's optimiser counts its steps, which Adam's bias correction goes by.
        optimizers = [variable for optimizer in self.optimizers for variable in optimizer.variables]
        return {"weight": self.trainable, "optimizer": optimizers, "rest": rest}


def values(variables: dict[str, list[Any]]) -> dict[str, np.ndarray]:
    """The values of variables, by kind and place."""
    return {
        f"{kind}/{place:04d}": np.asarray(variable.numpy())
        for kind, found in variables.items()
        for place, variable in enumerate(found)
    }


def restore(variables: dict[str, list[Any]], state: dict[str, np.ndarray]) -> None:
    """Sets variables to what ``values`` gave; state of other kinds is left alone."""
    for kind, found in variables.items():
        for place, variable in enumerate(found):
            variable.assign(state[f"{kind}/{place:04d}"])


def whole(model: keras.Model, optimizer: keras.optimizers.Optimizer) -> Parts:
    """A model that is not cut; the optimiser is built on its variables."""
    optimizer.build(model.trainable_variables)
    return Parts(model, [model], [optimizer])


def staged(
    model: keras.Model,
    optimizer: Callable[[], keras.optimizers.Optimizer],
    cut: Sequence[str],
    devices: Sequence[str],
) -> Parts:
    """A model cut into stages.

    Args:
        model: to be cut; it stays as the twin.
        optimizer: makes one.
        cut: names of the layers after which it is cut, one fewer than devices.
        devices: one a stage.
    """
    made = cutting.cut(model, cut, lambda stage: tf.device(devices[stage]))
    optimizers = []
    for stage, device in zip(made, devices, strict=True):
        with tf.device(device):
            optimizers.append(optimizer())
            optimizers[-1].build(stage.trainable_variables)
    return Parts(model, made, optimizers, devices, cut)
