"""Layers as linear maps: inputs and a 1 as rows of a matrix, weights and bias as another.

A layer is B maps side by side of d inputs and o outputs each: one of a Dense layer or a convolution (over
the patches that it reads), G of a grouped convolution, one a channel of a depthwise one and of a
normalisation, one a token of an embedding. What is fitted by least squares needs of many rows only two sums:
of each input times each, and of each input times each output.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import tensorflow as tf

from fourfold.model import weights
from fourfold.model.pinned import keras

layers = keras.layers

Weights = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Map:
    """One layer.

    Attributes:
        name: what the names of its variables begin with.
        layer: it.
    """

    name: str
    layer: keras.Layer

    @property
    def inputs(self) -> int:
        """Inputs of each map, with the 1 of a bias."""
        return self.matrix({k: np.asarray(v) for k, v in _variables(self).items()}).shape[1]

    @property
    def normalises(self) -> bool:
        """True where the layer scales channels by their own mean and spread."""
        return isinstance(self.layer, layers.BatchNormalization | layers.LayerNormalization)

    @property
    def sees_places(self) -> bool:
        """True where a row is many inputs of the layer: a convolution sees each place of an image."""
        return not isinstance(self.layer, layers.Dense) or len(self.layer.input.shape) > 2

    def sums(self, x: np.ndarray, y: np.ndarray | None = None) -> dict[str, np.ndarray]:
        """What a batch adds.

        Args:
            x: what goes into the layer.
            y: what should come out, before the activation; None where only inputs count.

        Returns:
            ``gram`` float64 [B, d, d], and with ``y`` ``cross`` float64 [B, d, o].
        """
        if isinstance(self.layer, layers.Embedding):
            return self._of_tokens(x, y)
        h = self.rows(x)
        if isinstance(self.layer, layers.BatchNormalization):
            h = h.astype(np.float64)  # Moments are differences of sums, which float32 loses far from 0.
        found = {"gram": _products(h, h)}
        if y is not None:
            found["cross"] = _products(h, self._targets(y, h.shape[1]))
        return found

    def matrix(self, values: Weights) -> np.ndarray:
        """The layer's weights as a matrix [B, d, o], float64."""
        v = {key: np.asarray(value, np.float64) for key, value in self._own(values).items()}
        if isinstance(self.layer, layers.Embedding):
            return v["embeddings"][:, np.newaxis, :]
        if self.normalises:
            return self._of_normalisation(v)
        kernel = v["kernel"]
        if isinstance(self.layer, layers.DepthwiseConv1D | layers.DepthwiseConv2D):
            made = np.moveaxis(kernel.reshape(-1, *kernel.shape[-2:]), 1, 0)
        else:
            blocks = getattr(self.layer, "groups", 1)
            flat = kernel.reshape(-1, blocks, kernel.shape[-1] // blocks)
            made = np.moveaxis(flat, 1, 0)
        if "bias" in v:
            made = np.concatenate([made, v["bias"].reshape(made.shape[0], 1, -1)], axis=1)
        return made

    def arrays(
        self, matrix: np.ndarray, values: Weights, gram: np.ndarray | None = None
    ) -> dict[str, np.ndarray]:
        """The layer's variables with the weights of a matrix.

        Args:
            matrix: [B, d, o].
            values: of the model; what a matrix does not say is kept, and dtypes are.
            gram: of the inputs that the matrix was fitted to: a normalisation takes its moving statistics
                from there.
        """
        own = self._own(values)
        v: dict[str, np.ndarray] = {}
        if isinstance(self.layer, layers.Embedding):
            v["embeddings"] = matrix[:, 0, :]
        elif self.normalises:
            v = self._normalising(matrix, own, gram)
        else:
            if "bias" in own:
                matrix, v["bias"] = matrix[:, :-1], matrix[:, -1].reshape(own["bias"].shape)
            v["kernel"] = np.moveaxis(matrix, 0, 1).reshape(own["kernel"].shape)
        return {f"{self.name}/{key}": value.astype(own[key].dtype) for key, value in v.items()}

    def _own(self, values: Weights) -> dict[str, np.ndarray]:
        start = f"{self.name}/"
        return {
            key.removeprefix(start): value
            for key, value in values.items()
            if key.startswith(start) and "/" not in key.removeprefix(start)
        }

    def rows(self, x: np.ndarray) -> np.ndarray:
        """Inputs as rows [n, B, d], with the 1 of a bias."""
        layer = self.layer
        if isinstance(layer, layers.Dense):
            h = x.reshape(-1, 1, x.shape[-1])
            biased = layer.use_bias
        elif isinstance(layer, layers.BatchNormalization):
            h, biased = x.reshape(-1, x.shape[-1], 1), True
        elif isinstance(layer, layers.LayerNormalization):
            wide = x.astype(np.float32)
            centred = wide - wide.mean(axis=-1, keepdims=True)
            h = centred / np.sqrt(np.square(centred).mean(axis=-1, keepdims=True) + layer.epsilon)
            h, biased = h.reshape(-1, x.shape[-1], 1), layer.center
        else:
            h, biased = self._patches(x), layer.use_bias
        h = h.astype(np.float32, copy=False)
        if not biased:
            return h
        return np.concatenate([h, np.ones((*h.shape[:2], 1), np.float32)], axis=2)

    def _patches(self, x: np.ndarray) -> np.ndarray:
        layer = self.layer
        sizes, strides, rates = (
            list(each) for each in (layer.kernel_size, layer.strides, layer.dilation_rate)
        )
        padding = layer.padding
        images = x.astype(np.float32, copy=False)
        if len(sizes) == 1:
            if padding == "causal":
                before = rates[0] * (sizes[0] - 1)
                images, padding = np.pad(images, ((0, 0), (before, 0), (0, 0))), "valid"
            images = images[:, np.newaxis]
            sizes, strides, rates = [1, *sizes], [1, *strides], [1, *rates]
        found = tf.image.extract_patches(
            images,
            sizes=[1, *sizes, 1],
            strides=[1, *strides, 1],
            rates=[1, *rates, 1],
            padding=padding.upper(),
        ).numpy()
        channels = x.shape[-1]
        depthwise = isinstance(layer, layers.DepthwiseConv1D | layers.DepthwiseConv2D)
        blocks = channels if depthwise else layer.groups
        places = found.reshape(-1, int(np.prod(sizes)), blocks, channels // blocks)
        return np.moveaxis(places, 2, 1).reshape(len(places), blocks, -1)

    def _targets(self, y: np.ndarray, blocks: int) -> np.ndarray:
        return y.reshape(-1, blocks, y.shape[-1] // blocks).astype(np.float32, copy=False)

    def _of_tokens(self, x: np.ndarray, y: np.ndarray | None) -> dict[str, np.ndarray]:
        tokens = x.astype(np.int64).reshape(-1)
        counts = np.bincount(tokens, minlength=self.layer.input_dim).astype(np.float64)
        found = {"gram": counts[:, np.newaxis, np.newaxis]}
        if y is not None:
            cross = np.zeros((self.layer.input_dim, y.shape[-1]))
            np.add.at(cross, tokens, y.reshape(-1, y.shape[-1]).astype(np.float64))
            found["cross"] = cross[:, np.newaxis, :]
        return found

    def _of_normalisation(self, v: Mapping[str, np.ndarray]) -> np.ndarray:
        """Slope and level of each channel, [C, 2, 1] or [C, 1, 1] where nothing is added."""
        size = len(next(iter(v.values())))
        slope, level = v.get("gamma", np.ones(size)), v.get("beta", np.zeros(size))
        if isinstance(self.layer, layers.BatchNormalization):
            slope = slope / np.sqrt(v["moving_variance"] + self.layer.epsilon)
            level = level - v["moving_mean"] * slope
        elif not self.layer.center:
            return slope[:, np.newaxis, np.newaxis]
        return np.stack([slope, level], axis=1)[:, :, np.newaxis]

    def _normalising(
        self, matrix: np.ndarray, own: Weights, gram: np.ndarray | None
    ) -> dict[str, np.ndarray]:
        slope = matrix[:, 0, 0]
        level = matrix[:, 1, 0] if matrix.shape[1] > 1 else np.zeros(len(slope))
        if not isinstance(self.layer, layers.BatchNormalization):
            named = {"gamma": slope, "beta": level}
            return {key: value for key, value in named.items() if key in own}
        mean, variance = (np.asarray(own[f"moving_{key}"], np.float64) for key in ("mean", "variance"))
        if gram is not None:
            mean, variance = moments(gram)
        wide = np.sqrt(variance + self.layer.epsilon)
        found = {"moving_mean": mean, "moving_variance": variance}
        if "gamma" in own:
            found["gamma"] = slope * wide
        if "beta" in own:
            found["beta"] = level + mean * slope
        return found


def _products(h: np.ndarray, t: np.ndarray) -> np.ndarray:
    """The sum over rows of each column of [n, B, d] times each of [n, B, o], float64 [B, d, o]."""
    if h.shape[1] == 1:
        return (h[:, 0].T @ t[:, 0]).astype(np.float64)[np.newaxis]
    return np.einsum("nbd,nbo->bdo", h, t, optimize=True).astype(np.float64)


def moments(gram: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance of each channel, from the sums of a normalisation's inputs [C, 2, 2]."""
    rows = np.maximum(gram[:, 1, 1], 1.0)
    mean = gram[:, 0, 1] / rows
    return mean, np.maximum(gram[:, 0, 0] / rows - np.square(mean), 0.0)


def maps(model: keras.Model, widest: int = 4096) -> tuple[dict[str, Map], list[str]]:
    """The layers of a model that are linear maps.

    Args:
        model: any.
        widest: inputs of a map at most; what is wider would need sums of more than its square.

    Returns:
        Them by the names that their variables begin with, in graph order; and a sentence on each other layer
        with weights.
    """
    found, said = {}, []
    for name, layer in weights.named_layers(model).items():
        why = _no_map(layer)
        each = Map(name, layer)
        if not why and each.inputs > widest:
            why = f"it has {each.inputs:,} inputs, more than {widest:,}"
        if why:
            said.append(f"{layer.name} ({type(layer).__name__}): {why}")
        else:
            found[name] = each
    return found, said


def _no_map(layer: keras.Layer) -> str:
    if isinstance(layer, keras.Model):
        return "a model with weights of its own"
    if not type(layer).call.__module__.startswith("keras."):
        return "a class of its own"
    if getattr(layer, "data_format", "channels_last") == "channels_first":
        return "its channels come first"
    if isinstance(layer, layers.BatchNormalization | layers.LayerNormalization):
        axes = layer.axis if isinstance(layer.axis, list | tuple) else [layer.axis]
        last = len(layer.variables[0].shape) if layer.variables else 0
        if last != 1 or not _is_last(layer, axes) or getattr(layer, "rms_scaling", False):
            return "it does not normalise over the last axis"
        return ""
    kinds = (
        layers.Dense, layers.Conv1D, layers.Conv2D, layers.DepthwiseConv1D, layers.DepthwiseConv2D,
        layers.Embedding,
    )  # fmt: skip
    return "" if isinstance(layer, kinds) else "not a layer that is linear in its weights"


def _is_last(layer: keras.Layer, axes: Sequence[int]) -> bool:
    given = [node.input_tensors[0].shape for node in layer._inbound_nodes]
    return list(axes) == [-1] or (bool(given) and all(list(axes) == [len(shape) - 1] for shape in given))


def _variables(each: Map) -> dict[str, np.ndarray]:
    return {f"{each.name}/{variable.name}": variable.numpy() for variable in each.layer.variables}
