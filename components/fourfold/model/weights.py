"""A model's variables as named arrays: by the layer's place in the graph and the variable's role, never by auto names.

Keras counts names up in a process (``dense``, ``dense_3``), so the same network built second has other names; two layers of
one shape hide it. Places do not change.
"""

import hashlib
from collections.abc import Mapping

import keras
import numpy as np

from fourfold.contract.errors import InvalidInputError


def named_variables(model: keras.Model) -> dict[str, keras.Variable]:
    """The variables of a model, in graph order.

    Returns:
        By name ``<place>:<layer class>/<role>``, such as ``"2:Conv2D/kernel"``: the place is the layer's in the graph, the
        role the variable's within its layer (with the sub-layers between, for nested layers).
    """
    found: dict[str, keras.Variable] = {}
    for place, layer in enumerate(model.layers):
        for index, variable in enumerate(layer.variables):
            role = variable.path.split("/", 1)[1] if variable.path.startswith(f"{layer.name}/") else variable.name
            role = role.rsplit("/", 1)[-1]
            name = f"{place}:{type(layer).__name__}/{role}"
            if name in found:
                name = f"{place}:{type(layer).__name__}/{index}.{role}"
            found[name] = variable
    return found


def arrays(model: keras.Model) -> dict[str, np.ndarray]:
    """The values of a model's variables by the names of ``named_variables``."""
    return {name: np.asarray(variable.numpy()) for name, variable in named_variables(model).items()}


def assign(model: keras.Model, values: Mapping[str, np.ndarray]) -> None:
    """Sets a model's variables.

    Raises:
        InvalidInputError: the names or shapes are not those of the model.
    """
    variables = named_variables(model)
    if list(variables) != list(values):
        raise InvalidInputError(f"weights {sorted(set(variables) ^ set(values))} are in one of model and values only")
    for name, variable in variables.items():
        if tuple(variable.shape) != values[name].shape:
            raise InvalidInputError(f"{name} has shape {tuple(variable.shape)}, got {values[name].shape}")
        variable.assign(values[name])


def digest(values: Mapping[str, np.ndarray]) -> str:
    """A SHA-256 over each array's name (place and role), shape, dtype and bytes, in graph order."""
    sha = hashlib.sha256()
    for name, value in values.items():
        sha.update(f"{name}|{value.shape}|{value.dtype.name}|".encode())
        sha.update(np.ascontiguousarray(value).tobytes())
    return sha.hexdigest()


def structure(model: keras.Model) -> list[str]:
    """What must be equal for two models to be merged: each layer's class, shapes and inputs, in graph order, unnamed.

    Returns:
        One line a layer, such as ``"2 Conv2D (14, 14, 16) from 1 kernel(3, 3, 8, 16) bias(16,)"``.
    """
    places = {layer.name: place for place, layer in enumerate(model.layers)}
    lines = []
    for place, layer in enumerate(model.layers):
        inputs = sorted(
            {
                str(places[history.operation.name])
                for node in layer._inbound_nodes
                for tensor in node.input_tensors
                if (history := tensor._keras_history).operation.name in places
                and history.operation.name != layer.name
            }
        )
        output = getattr(layer, "output", None)
        shape = tuple(output.shape[1:]) if output is not None and hasattr(output, "shape") else "-"
        variables = " ".join(f"{variable.name}{tuple(variable.shape)}" for variable in layer.variables)
        lines.append(f"{place} {type(layer).__name__} {shape} from {','.join(inputs) or '-'} {variables}".rstrip())
    return lines
