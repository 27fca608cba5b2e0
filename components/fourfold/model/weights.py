"""A model's variables as named arrays: by the layer's place in the graph and the variable's role.

Never by auto names: Keras counts them up in a process (``dense``, ``dense_3``), so the same network built
second has other names; two layers of one shape hide it. Places do not change.
"""

import hashlib
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from fourfold.contract.errors import InvalidInputError
from fourfold.model.pinned import keras


def named_variables(model: keras.Model) -> dict[str, keras.Variable]:
    """The variables that a model's file holds, each once, in graph order.

    The state of random generators (Dropout's seed) is none of them: Keras does not save it.

    Returns:
        By name ``<place>:<layer class>/<role>``, such as ``"2:Conv2D/kernel"``: the place is the layer's in
        the graph, the role the variable's within its layer. A layer within a layer has a place there, such as
        ``"1:Sequential/0:Dense/kernel"``. What has the same role in one layer is counted, ``"kernel.1"``.
    """
    found: dict[str, keras.Variable] = {}
    _gather(model, "", found, set())
    return found


def _gather(layer: keras.Layer, within: str, found: dict[str, keras.Variable], seen: set[int]) -> None:
    inner = _sublayers(layer)
    theirs = {id(variable) for sublayer in inner for variable in sublayer.variables}
    for variable in _saved(layer):
        if id(variable) not in theirs and id(variable) not in seen:
            seen.add(id(variable))
            role = name = within + _role(variable)
            count = 0
            while name in found:
                count += 1
                name = f"{role}.{count}"
            found[name] = variable
    for place, sublayer in enumerate(inner):
        _gather(sublayer, f"{within}{place}:{type(sublayer).__name__}/", found, seen)


def named_layers(model: keras.Model) -> dict[str, keras.Layer]:
    """The layers within a model that have variables of their own, each once, in graph order.

    Returns:
        By what the names of their variables begin with, such as ``"2:Conv2D"``.
    """
    found: dict[str, keras.Layer] = {}
    _gather_layers(model, "", found)
    return found


def _gather_layers(layer: keras.Layer, within: str, found: dict[str, keras.Layer]) -> None:
    for place, sublayer in enumerate(_sublayers(layer)):
        name = f"{within}{place}:{type(sublayer).__name__}"
        theirs = {id(variable) for inner in _sublayers(sublayer) for variable in inner.variables}
        own = any(id(variable) not in theirs for variable in _saved(sublayer))
        if own and not any(sublayer is other for other in found.values()):
            found[name] = sublayer
        _gather_layers(sublayer, f"{name}/", found)


def _sublayers(layer: keras.Layer) -> list[keras.Layer]:
    """The layers of a model in graph order, or those that a layer is made of."""
    if isinstance(layer, keras.Model):
        return layer.layers
    return list(layer._flatten_layers(include_self=False, recursive=False))


def _saved(layer: keras.Layer) -> list[keras.Variable]:
    return [variable for variable in layer.variables if variable.name != "seed_generator_state"]


def _role(variable: keras.Variable) -> str:
    """A variable's name in its layer, without the count that Keras gives one that has no name of its own."""
    return re.sub(r"^variable_\d+$", "variable", variable.name)


def given_names(model: keras.Model) -> list[str]:
    """The names that users gave a model's layers, in graph order; empty where Keras made one of the class."""
    return ["" if _is_auto_name(layer) else layer.name for layer in model.layers]


def _is_auto_name(layer: keras.Layer) -> bool:
    return re.sub(r"_\d+$", "", layer.name).replace("_", "") == type(layer).__name__.lower()


def arrays(model: keras.Model) -> dict[str, np.ndarray]:
    """The values of a model's variables by the names of ``named_variables``."""
    return {name: np.asarray(variable.numpy()) for name, variable in named_variables(model).items()}


def assign(model: keras.Model, values: Mapping[str, np.ndarray]) -> None:
    """Sets a model's variables, all or none.

    Args:
        model: whose variables are set.
        values: by the names of ``named_variables``, in any order.

    Raises:
        InvalidInputError: the names or shapes are not those of the model.
    """
    variables = named_variables(model)
    if set(variables) != set(values):
        raise InvalidInputError(
            f"weights {sorted(set(variables) ^ set(values))} are in one of model and values only"
        )
    for name, variable in variables.items():
        if tuple(variable.shape) != values[name].shape:
            raise InvalidInputError(f"{name} has shape {tuple(variable.shape)}, got {values[name].shape}")
    for name, variable in variables.items():
        variable.assign(values[name])


def digest(values: Mapping[str, np.ndarray]) -> str:
    """A SHA-256 over each array's name (place and role), shape, dtype and bytes, in graph order."""
    sha = hashlib.sha256()
    for name, value in values.items():
        sha.update(f"{name}|{value.shape}|{value.dtype.name}|".encode())
        sha.update(np.ascontiguousarray(value).tobytes())
    return sha.hexdigest()


def structure(model: keras.Model) -> list[str]:
    """What must be equal for two models to be merged: each layer's class, shapes and inputs, in graph order.

    Returns:
        One line a layer, without its name, such as ``"5 Dense (10,) from 4 kernel(784, 10) bias(10,)
        {activation='linear', units=10, use_bias=True}"``; a layer that is used twice has ``from 0;2``. The
        layers of a model within the model follow it, as ``"2.0 Dense ..."``.
    """
    return _lines(model, "")


def _lines(model: keras.Model, within: str) -> list[str]:
    places = {id(layer): str(place) for place, layer in enumerate(model.layers)}
    lines = []
    for place, layer in enumerate(model.layers):
        output = getattr(layer, "output", None)
        shape = tuple(output.shape[1:]) if output is not None and hasattr(output, "shape") else "-"
        variables = " ".join(f"{_role(variable)}{tuple(variable.shape)}" for variable in _saved(layer))
        line = f"{within}{place} {type(layer).__name__} {shape} from {_inputs(layer, places)} {variables}"
        lines.append(f"{line.rstrip()} {_settings(layer)}".rstrip())
        if isinstance(layer, keras.Model):
            lines.extend(_lines(layer, f"{within}{place}."))
    return lines


def _settings(layer: keras.Layer) -> str:
    """What a layer computes with besides its variables, such as its activation, but not how it starts."""
    if isinstance(layer, keras.Model):
        return ""
    kept = _without_names(layer.get_config())
    return "{" + ", ".join(f"{key}={value!r}" for key, value in sorted(kept.items())) + "}"


def _without_names(value: Any) -> Any:
    """A configuration without what two layers of one structure may differ in."""
    if isinstance(value, list | tuple):
        return [_without_names(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {
        key: _without_names(item)
        for key, item in value.items()
        if key not in ("name", "trainable", "dtype", "seed", "batch_shape", "build_config")
        and not key.endswith(("initializer", "regularizer", "constraint"))
    }


def _inputs(layer: keras.Layer, places: Mapping[int, str]) -> str:
    """The places of the layers that a layer takes its inputs from, in their order, a group a use."""
    uses = (
        ",".join(places[id(origin)] for origin in _origins(node) if id(origin) in places)
        for node in layer._inbound_nodes
    )
    return ";".join(dict.fromkeys(use for use in uses if use)) or "-"


def _origins(node: Any) -> list[Any]:
    return [tensor._keras_history.operation for tensor in node.input_tensors]
