"""What goes into the layers of a model and what they make of it, before their activation."""

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from fourfold.model.pinned import keras

See = Callable[[str, np.ndarray, np.ndarray], None]
"""Is told a layer's name, what went in and what came out before its activation, with each batch."""


class _EnoughError(Exception):
    """The last layer that anybody asked for has been seen."""


def watch(
    model: keras.Model,
    layers: Mapping[str, keras.Layer],
    x: np.ndarray,
    see: See,
    batch: int = 250,
) -> None:
    """Runs a model in inference mode, and shows what goes through layers.

    Args:
        model: any; also one whose layers lie in models within it.
        layers: of it, by the names that they are called by; a layer that is used twice is seen twice.
        x: rows [n, ...].
        see: told of each batch in turn, of each layer in the order in which the model uses them.
        batch: rows at once.
    """
    left: Counter[str] = Counter()
    uses: dict[str, int] = {}
    with _tapped(layers, see, left):
        for start in range(0, len(x), batch):
            left.clear()
            left.update(uses)
            with contextlib.suppress(_EnoughError):
                model(keras.ops.convert_to_tensor(x[start : start + batch]), training=False)
            # The first run is a whole one, since only that shows how often a layer is used: counts below 0.
            uses = uses or {name: -count for name, count in left.items()}


def order(model: keras.Model, layers: Mapping[str, keras.Layer], x: np.ndarray) -> list[str]:
    """The names of layers in the order in which the model first uses them; unused ones are left out."""
    used: list[str] = []
    watch(model, layers, x[:1], lambda name, taken, made: used.append(name))
    return list(dict.fromkeys(used))


@contextlib.contextmanager
def _tapped(layers: Mapping[str, keras.Layer], see: See, left: Counter[str]) -> Iterator[None]:
    with contextlib.ExitStack() as undo:
        for name, layer in layers.items():
            undo.callback(_tap(name, layer, see, left))
        yield


def _tap(name: str, layer: Any, see: See, left: Counter[str]) -> Callable[[], None]:
    """Puts a tap on a layer; gives what takes it off."""
    call, activation = layer.call, getattr(layer, "activation", None)
    before: list[Any] = []

    def activated(tensor: Any, *args: Any, **kwargs: Any) -> Any:
        before.append(tensor)
        assert activation is not None
        return activation(tensor, *args, **kwargs)

    def called(inputs: Any, *args: Any, **kwargs: Any) -> Any:
        before.clear()
        output = call(inputs, *args, **kwargs)
        see(name, _array(inputs), _array(before[-1] if before else output))
        left[name] -= 1
        if not any(left.values()):
            raise _EnoughError
        return output

    layer.call = called
    if activation is not None:
        layer.activation = activated

    def off() -> None:
        layer.call = call
        if activation is not None:
            layer.activation = activation

    return off


def _array(tensor: Any) -> np.ndarray:
    return np.asarray(keras.ops.convert_to_numpy(tensor))
