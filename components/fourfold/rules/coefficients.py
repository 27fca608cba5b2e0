"""Mixes the members with one coefficient a tensor and member, learnt on calibration rows."""

from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf

from fourfold.model import weights
from fourfold.model.pinned import keras
from fourfold.rules.members import Member, is_floating, mean
from fourfold.rules.state import Ground, State

STEPS = 100
RATE = 0.02


def mix(members: Sequence[Member], shares: np.ndarray) -> dict[str, np.ndarray]:
    """W_t = sum over members of c_kt W_kt, for each tensor t.

    Args:
        members: of one structure.
        shares: float64 [members, floating tensors], in graph order.
    """
    merged, tensor = mean(members), 0
    for name, value in merged.items():
        if is_floating(value):
            terms = [
                share * np.asarray(member.weights[name], np.float64)
                for share, member in zip(shares[:, tensor], members, strict=True)
            ]
            merged[name] = np.sum(terms, axis=0).astype(value.dtype)
            tensor += 1
    return merged


def apply(state: State, ground: Ground, steps: int = STEPS, rate: float = RATE) -> State:
    """The rule in a chain.

    Yang et al., 2024, "AdaMerging", layer-wise, here by the cross-entropy of labels: Adam from 1 / K each.
    The coefficients may leave 0 to 1 and are no weights of members.

    Args:
        state: of the chain.
        ground: with calibration rows.
        steps: of Adam, over all calibration rows each.
        rate: its learning rate.
    """
    assert ground.calibration is not None
    x, y = ground.calibration.x, ground.calibration.y
    names = [name for name, value in mean(state.members).items() if is_floating(value)]
    shares = np.full((len(state.members), len(names)), 1 / len(state.members))
    first, second = np.zeros_like(shares), np.zeros_like(shares)
    slopes = _gradients(ground.model, x, y)
    for step in range(1, int(steps) + 1):
        weights.assign(ground.model, mix(state.members, shares))
        gradients = slopes()
        slope = np.array([
            [
                float(np.vdot(gradients[name], np.asarray(member.weights[name], np.float64)))
                if name in gradients else 0.0
                for name in names
            ]
            for member in state.members
        ])  # fmt: skip
        first, second = 0.9 * first + 0.1 * slope, 0.999 * second + 0.001 * np.square(slope)
        change = (first / (1 - 0.9**step)) / (np.sqrt(second / (1 - 0.999**step)) + 1e-8)
        shares = shares - rate * change
    return state.now(
        mix(state.members, shares), "coefficients learnt one number a tensor on calibration rows."
    )


def _gradients(model: keras.Model, x: np.ndarray, y: np.ndarray) -> Callable[[], dict[str, np.ndarray]]:
    """Gives the gradient of the cross-entropy by variable, float64, of those that it depends on."""
    named = weights.named_variables(model)
    values = [variable.value for variable in named.values()]

    @tf.function(autograph=False)
    def slope():
        with tf.GradientTape() as tape:
            tape.watch(values)
            logits = model(x, training=False)
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(y, logits))
        return [None if each is None else tf.convert_to_tensor(each) for each in tape.gradient(loss, values)]

    def found() -> dict[str, np.ndarray]:
        pairs = zip(named, slope(), strict=True)
        return {name: np.asarray(each, np.float64) for name, each in pairs if each is not None}

    return found
