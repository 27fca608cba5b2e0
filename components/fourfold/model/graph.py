"""Which units of a Keras model may change places, read from its graph.

Each tensor's last axis is followed from layer to layer: which unit of which group stands at each of its
positions. A layer that makes new units begins a group; an addition makes two groups one; what is not
understood holds its inputs' units, and its outputs', where they are. Rows' other axes (height, width, time)
are never permuted.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from fourfold.model import weights
from fourfold.model.pinned import keras
from fourfold.model.symmetry import Axis, Group, Symmetry

layers = keras.layers

ALIKE = (
    layers.Activation, layers.ReLU, layers.LeakyReLU, layers.ELU, layers.Dropout,
    layers.SpatialDropout1D, layers.SpatialDropout2D, layers.GaussianNoise, layers.GaussianDropout,
    layers.MaxPooling1D, layers.MaxPooling2D, layers.AveragePooling1D, layers.AveragePooling2D,
    layers.GlobalAveragePooling1D, layers.GlobalAveragePooling2D, layers.GlobalMaxPooling1D,
    layers.GlobalMaxPooling2D, layers.ZeroPadding1D, layers.ZeroPadding2D, layers.Cropping1D,
    layers.Cropping2D, layers.UpSampling1D, layers.UpSampling2D, layers.Rescaling, layers.Softmax,
    layers.Masking, layers.Identity, layers.ActivityRegularization,
)  # fmt: skip
"""Layers that treat every position of the last axis alike, and leave it where it is."""
JOINING = (layers.Add, layers.Subtract, layers.Multiply, layers.Average, layers.Maximum, layers.Minimum)
"""Layers that join tensors position by position."""
OPERATIONS = ("Add", "Subtract", "Multiply", "Maximum", "Minimum", "Relu", "Sigmoid", "Tanh", "Gelu", "Silu")
"""Operations on tensors that do as those two kinds do, by the name of their class."""
WHOLE_KERNEL = (layers.Dense, layers.Conv1D, layers.Conv2D, layers.Conv3D)
DEPTHWISE = (layers.DepthwiseConv1D, layers.DepthwiseConv2D)


@dataclass
class _Open:
    """A group while the graph is read; groups that turn out to be one point to the first."""

    name: str
    size: int
    same_as: "_Open | None" = None
    blocks: int = 1
    held: str = ""

    def root(self) -> "_Open":
        return self if self.same_as is None else self.same_as.root()


@dataclass(frozen=True)
class _Units:
    """What stands along an axis: the group and the unit of each position."""

    groups: tuple[_Open, ...]
    group: np.ndarray
    unit: np.ndarray
    block: bool = False

    def __len__(self) -> int:
        return len(self.unit)


@dataclass
class _Reading:
    """What is known so far."""

    names: dict[int, str]
    axes: dict[str, tuple[_Units | None, ...]] = field(default_factory=dict)
    untreated: dict[str, str] = field(default_factory=dict)
    groups: list[_Open] = field(default_factory=list)


def read(model: keras.Model) -> Symmetry:
    """Reads a model's graph.

    Args:
        model: any; what is no Sequential or functional model, or a layer that is not understood, holds the
            units that reach it.

    Returns:
        What may change places, by the names of ``weights.named_variables``.
    """
    reading = _Reading({id(variable): name for name, variable in weights.named_variables(model).items()})
    inputs = [_fixed(reading, f"input {place}", tensor) for place, tensor in enumerate(_inputs(model))]
    outputs = _run(reading, model, inputs)
    for units in outputs:
        _hold(units, "is an output of the model")
    return _closed(reading)


def _inputs(model: keras.Model) -> list[Any]:
    try:
        return list(model.inputs)
    except AttributeError:
        return []


def _closed(reading: _Reading) -> Symmetry:
    roots: list[_Open] = []
    for each in reading.groups:
        if not any(each.root() is root for root in roots):
            roots.append(each.root())
    number = {id(root): index for index, root in enumerate(roots)}
    groups = [Group(root.name, root.size, root.blocks, not root.held) for root in roots]

    def axis(units: _Units | None) -> Axis | None:
        if units is None:
            return None
        of = np.array([number[id(each.root())] for each in units.groups], np.int64)
        return Axis(of[units.group], units.unit, units.block)

    return Symmetry(
        tuple(groups),
        {name: tuple(axis(units) for units in axes) for name, axes in reading.axes.items()},
        tuple(f"the units of {root.name} stay where they are: {root.held}" for root in roots if root.held),
        tuple(reading.untreated.values()),
    )


def _run(reading: _Reading, model: Any, inputs: Sequence[_Units | None]) -> list[_Units | None]:
    """Follows the units through a model; gives those of its outputs."""
    functional = getattr(model, "_functional", None) or model
    if not hasattr(functional, "_nodes_by_depth") or not type(model).call.__module__.startswith("keras."):
        return [_not_understood(reading, model, list(inputs), None)]
    found = dict(zip((id(tensor) for tensor in functional.inputs), inputs, strict=True))
    for _, nodes in sorted(functional._nodes_by_depth.items(), reverse=True):
        for node in nodes:
            if node.is_input:
                continue
            given = [found.get(id(tensor)) for tensor in node.input_tensors]
            if _may_tell_apart(node):
                made = [_not_understood(reading, node.operation, given, each) for each in node.outputs]
            else:
                made = _through(reading, node.operation, given, node.outputs)
            found |= zip((id(tensor) for tensor in node.outputs), made, strict=True)
    return [found.get(id(tensor)) for tensor in functional.outputs]


def _may_tell_apart(node: Any) -> bool:
    """True where a class, an activation or a constant is not Keras' own: it may treat units unlike."""
    layer = node.operation
    if isinstance(layer, keras.Model):
        return False
    activation = getattr(layer, "activation", None)
    codes = [type(layer).call, *([] if activation is None else [activation])]
    if any(not str(getattr(code, "__module__", "")).startswith(("keras.", "tensorflow.")) for code in codes):
        return True
    if isinstance(activation, keras.Layer) and not isinstance(activation, ALIKE):
        return True
    constants = [
        value
        for value in keras.tree.flatten([node.arguments.args, node.arguments.kwargs])
        if not isinstance(value, keras.KerasTensor)
    ]
    if isinstance(layer, layers.Rescaling):
        constants += [layer.scale, layer.offset]
    return any(np.ndim(value) > 0 and np.size(value) > 1 for value in constants if not isinstance(value, str))


def _through(
    reading: _Reading, layer: Any, given: list[_Units | None], outputs: Sequence[Any]
) -> list[_Units | None]:
    if isinstance(layer, keras.Model):
        return _run(reading, layer, given)
    first = given[0] if given else None
    if getattr(layer, "data_format", "channels_last") == "channels_first":
        return [_not_understood(reading, layer, given, tensor) for tensor in outputs]
    size = outputs[0].shape[-1] if outputs[0].shape else None
    if isinstance(layer, WHOLE_KERNEL):
        return [_kernel(reading, layer, first)]
    if isinstance(layer, DEPTHWISE):
        return [_depthwise(reading, layer, first)]
    if isinstance(layer, layers.Embedding):
        return [_embedding(reading, layer)]
    if isinstance(layer, layers.BatchNormalization | layers.LayerNormalization | layers.PReLU):
        return [_by_unit(reading, layer, first, outputs[0])]
    if isinstance(layer, layers.Flatten):
        return [_tiled(first, size)]
    if isinstance(layer, layers.Reshape):
        return [first if first is not None and size == len(first) else _tiled(first, size)]
    if isinstance(layer, ALIKE) and first is not None and size == len(first):
        return [first]
    if isinstance(layer, layers.Concatenate) and _axis_is_last(layer, outputs[0]):
        return [_joined(given)]
    operation = type(layer).__name__ in OPERATIONS and type(layer).__module__.startswith("keras.")
    if isinstance(layer, JOINING) or (operation and not layer_variables(layer)):
        units = [each for each in given if each is not None]
        if units and all(len(each) == size for each in units) and len(units) == len(given):
            for other in units[1:]:
                _unite(units[0], other, getattr(layer, "name", "an addition"))
            return [units[0]]
    return [_not_understood(reading, layer, given, tensor) for tensor in outputs]


def layer_variables(layer: Any) -> list[Any]:
    """The variables of a layer or an operation."""
    return list(getattr(layer, "variables", []))


def _axis_is_last(layer: Any, output: Any) -> bool:
    return layer.axis in (-1, len(output.shape) - 1)


def _new(reading: _Reading, name: str, size: int) -> _Units:
    group = _Open(name, size)
    reading.groups.append(group)
    return _Units((group,), np.zeros(size, np.int64), np.arange(size))


def _fixed(reading: _Reading, name: str, tensor: Any) -> _Units | None:
    if not tensor.shape or tensor.shape[-1] is None:
        return None
    units = _new(reading, name, int(tensor.shape[-1]))
    _hold(units, "they are the model's input")
    return units


def _hold(units: _Units | None, why: str) -> None:
    for group in units.groups if units else ():
        group.root().held = group.root().held or why


def _tiled(units: _Units | None, size: int | None) -> _Units | None:
    """After other axes were folded into the last one: the units again and again."""
    if units is None or size is None or size % len(units):
        _hold(units, "they are folded with an axis whose length is open")
        return None
    times = size // len(units)
    return replace(units, group=np.tile(units.group, times), unit=np.tile(units.unit, times))


def _joined(given: Sequence[_Units | None]) -> _Units | None:
    """One after another; a group that comes twice stays where it is."""
    units = [each for each in given if each is not None]
    if len(units) != len(given):
        for each in units:
            _hold(each, "they are joined with something that is not understood")
        return None
    groups = tuple(group for each in units for group in each.groups)
    starts = np.cumsum([0, *(len(each.groups) for each in units)])
    return _Units(
        groups,
        np.concatenate([each.group + start for each, start in zip(units, starts, strict=False)]),
        np.concatenate([each.unit for each in units]),
    )


def _unite(a: _Units, b: _Units, where: str) -> None:
    """Makes the groups of two axes one, position by position; where they do not fit each stays as it is."""
    if np.array_equal(a.unit, b.unit) and np.array_equal(a.group, b.group):
        ours, theirs = ([group.root() for group in units.groups] for units in (a, b))
        if all(one.size == other.size for one, other in zip(ours, theirs, strict=True)):
            for one, other in zip(ours, theirs, strict=True):
                if one is not other:
                    one.blocks = math.lcm(one.blocks, other.blocks)
                    one.held = one.held or other.held
                    other.same_as = one
            return
    for units in (a, b):
        _hold(units, f"{where} joins them with others in another order")


def _set(reading: _Reading, variable: Any, axes: tuple[_Units | None, ...], where: str) -> None:
    """Says what a variable's axes are along; one that is used twice has to have the same units each time."""
    if variable is None or id(variable) not in reading.names:
        return
    name = reading.names[id(variable)]
    before = reading.axes.setdefault(name, axes)
    if before is axes:
        return
    for one, other in zip(before, axes, strict=True):
        if one is not None and other is not None and len(one) == len(other):
            _unite(one, other, where)
        else:
            _hold(one, f"{where} is used twice")
            _hold(other, f"{where} is used twice")


def _again(reading: _Reading, layer: Any, made: Callable[[], _Units]) -> _Units:
    """The units that a layer makes; the same when it is used again."""
    name = reading.names.get(id(layer.kernel if hasattr(layer, "kernel") else layer.embeddings), "")
    before = reading.axes.get(name)
    return before[-1] if before and before[-1] is not None else made()


def _kernel(reading: _Reading, layer: Any, given: _Units | None) -> _Units:
    """Dense and convolutions: the kernel's last axis makes units, the one before reads them."""
    kernel, groups = layer.kernel, getattr(layer, "groups", 1)
    made = _again(reading, layer, lambda: _new(reading, layer.name, int(kernel.shape[-1])))
    reads = given
    if groups > 1:
        _in_blocks(made, groups)
        if given is not None and len(given.groups) == 1 and np.array_equal(given.unit, np.arange(len(given))):
            _in_blocks(given, groups)
            width = len(given) // groups
            reads = replace(given, group=given.group[:width], unit=np.arange(width), block=True)
        else:
            _hold(given, f"{layer.name} reads them in groups")
            reads = None
    _set(reading, kernel, (*[None] * (len(kernel.shape) - 2), reads, made), layer.name)
    _set(reading, layer.bias, (made,), layer.name)
    return made


def _in_blocks(units: _Units, blocks: int) -> None:
    root = units.groups[0].root()
    root.blocks = math.lcm(root.blocks, blocks)
    if root.size % root.blocks:
        _hold(units, "grouped convolutions read them in groups that do not fit into each other")


def _depthwise(reading: _Reading, layer: Any, given: _Units | None) -> _Units | None:
    """Each unit by itself: the units stay, each as often as the depth multiplier says."""
    times = layer.depth_multiplier
    if given is None:
        return None
    made = replace(given, group=np.repeat(given.group, times), unit=np.repeat(given.unit, times))
    kernel = layer.kernel
    _set(reading, kernel, (*[None] * (len(kernel.shape) - 2), given, None), layer.name)
    _set(reading, layer.bias, (made,), layer.name)
    return made


def _embedding(reading: _Reading, layer: Any) -> _Units:
    made = _again(reading, layer, lambda: _new(reading, layer.name, int(layer.output_dim)))
    _set(reading, layer.embeddings, (None, made), layer.name)
    return made


def _by_unit(reading: _Reading, layer: Any, given: _Units | None, output: Any) -> _Units | None:
    """Layers with a number a unit: normalisation over the last axis, and PReLU."""
    axis = getattr(layer, "axis", None)
    axes = axis if isinstance(axis, list | tuple) else [axis]
    last = len(output.shape) - 1
    if given is None or not (isinstance(layer, layers.PReLU) or list(axes) in ([-1], [last])):
        return _not_understood(reading, layer, [given], output)
    for variable in layer_variables(layer):
        if variable.name != "seed_generator_state":
            own = given if variable.shape[-1] == len(given) else None  # PReLU may share one number.
            _set(reading, variable, (*[None] * (len(variable.shape) - 1), own), layer.name)
    return given


def _not_understood(
    reading: _Reading, layer: Any, given: Sequence[_Units | None], output: Any
) -> _Units | None:
    for units in given:
        _hold(units, f"{layer.name} ({type(layer).__name__}) is not understood")
    if any(id(variable) in reading.names for variable in layer_variables(layer)):
        reading.untreated[layer.name] = (
            f"{layer.name} ({type(layer).__name__}) is not understood: its weights are averaged as they stand"
        )
    if output is None or not output.shape or output.shape[-1] is None:
        return None
    units = _new(reading, layer.name, int(output.shape[-1]))
    _hold(units, f"{layer.name} ({type(layer).__name__}) is not understood")
    return units
