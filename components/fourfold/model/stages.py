"""A model cut into stages for pipeline parallelism: where it can be cut, where best, and the stages.

A layer here is what the model's graph is made of: a Keras layer, a model within the model (one layer), or an
operation such as ``x * 2`` (a layer without variables). A place is the name of the layer after which the
model is cut. Every function raises InvalidInputError if its model is no built Sequential or functional one.
"""

import contextlib
import difflib
import functools
import itertools
import math
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from fourfold.contract.errors import InvalidInputError
from fourfold.model import weights
from fourfold.model.pinned import keras

OPEN = 32  # The length that measure_costs gives an axis which has none, such as that of a text.


def names(model: keras.Model) -> list[str]:
    """One name a layer, in graph order, without the InputLayers: the same in every process.

    Returns:
        The user's name; where Keras made one, the class's counted within this model (``dense``, ``dense_1``),
        without counts that are users' names.
    """
    return list(_graph(model).layers)


def places(model: keras.Model) -> list[str]:
    """The layers after which the model can be cut, in graph order.

    One tensor alone crosses there, without a mask (which would be a second one); all inputs are before it and
    all outputs after it; no layer and no variable is on both sides.
    """
    return list(_graph(model).crossings)


def handoffs(model: keras.Model, at: Sequence[str]) -> list[tuple[int, ...]]:
    """The shape of the tensor that crosses at each place, without its axis of rows; an open axis is 1.

    Raises:
        InvalidInputError: ``at`` is not places of the model in their order.
    """
    graph = _graph(model)
    _check(graph, at)
    return [tuple(size or 1 for size in graph.crossings[name].shape[1:]) for name in at]


def choose(
    model: keras.Model, stages: int, at: Sequence[str] = (), costs: Mapping[str, float] | None = None
) -> tuple[str, ...]:
    """Where to cut: as the user says, or so that the most expensive stage is as cheap as possible.

    Of cuts that are equally good, the one that hands over the fewest values a row (an open axis counts as
    one); of these the latest, the first place first.

    Args:
        model: what is cut.
        stages: their number.
        at: the user's places, one fewer than stages; empty to have them chosen.
        costs: of every layer by name, in any one unit; by default its number of trainable weights.

    Raises:
        InvalidInputError: ``stages`` is below 1 or more than there can be; ``at`` is of another length or not
            places in their order; ``costs`` is not of each layer, finite and 0 or more.
    """
    graph = _graph(model)
    if stages < 1:
        raise InvalidInputError(f"stages must be 1 or more, got {stages}")
    _check(graph, at)
    if at and len(at) != stages - 1:
        raise InvalidInputError(
            f"at must have {stages - 1} names for {stages} stages, got {at}; {graph.would_do}"
        )
    if stages > (most := len(graph.crossings) + 1):
        raise InvalidInputError(f"stages must be {most} or fewer here, got {stages}; {graph.would_do}")
    if at:
        return tuple(at)
    each = _costs(graph, costs)
    stops = [place + 1 for place, name in enumerate(each) if name in graph.crossings]
    sizes = [math.prod(size or 1 for size in tensor.shape[1:]) for tensor in graph.crossings.values()]
    chosen = _balanced(list(each.values()), stops, sizes, stages)
    return tuple(list(graph.crossings)[place] for place in chosen)


def measure_costs(
    model: keras.Model, rows: int, clock: Callable[[], float] = time.perf_counter
) -> dict[str, float]:
    """How long each layer alone takes forward and backward, for ``choose``; the model is not changed.

    Args:
        model: whose layers are measured, on zeros.
        rows: at once, 1 or more, such as those of a micro-batch; an open axis has ``OPEN`` entries.
        clock: gives seconds.

    Returns:
        Seconds by name: the best of three after a first; for a layer that is used twice those of both uses.
    """
    if rows < 1:
        raise InvalidInputError(f"rows must be 1 or more, got {rows}")
    graph = _graph(model)
    costs = {}
    for name, layer in graph.layers.items():
        calls = graph.calls_of([layer])
        inputs = {id(tensor): _entry(tensor) for call in calls for tensor in call.input_tensors}
        tensors = _rebuilt(calls, inputs)
        outputs = [tensors[id(tensor)] for call in calls for tensor in call.outputs]
        costs[name] = _seconds(keras.Model([*inputs.values()], outputs), rows, clock)
    return costs


def cut(
    model: keras.Model,
    at: Sequence[str],
    place: Callable[[int], contextlib.AbstractContextManager] = contextlib.nullcontext,
) -> list[keras.Model]:
    """The stages: new models of new layers with the values of the model's, which is not changed.

    One after the other they compute what the model does. Each takes the tensor that the one before gives; the
    first takes the model's inputs and the last gives its outputs. Their trainable variables, one stage after
    the other, are in the order of ``model.trainable_variables``.

    Args:
        model: what is cut.
        at: the places, in their order; none for one stage.
        place: entered with a stage's number from 0 while its variables are made, such as ``tf.device``.

    Raises:
        InvalidInputError: ``at`` is not places of the model in their order; a layer cannot be made again from
            its config; two layers have a variable in common; or a variable is in no layer of the graph.
    """
    graph, functional = _graph(model), _functional(model)
    _check(graph, at)
    bounds = [0, *(names(model).index(name) + 1 for name in at), len(graph.layers)]
    handed = [functional.input, *(graph.crossings[name] for name in at), functional.output]
    stages = []
    for stage, (start, stop) in enumerate(itertools.pairwise(bounds)):
        calls = graph.calls_of(list(graph.layers.values())[start:stop])
        with place(stage):
            entries = {id(tensor): _entry(tensor) for tensor in keras.tree.flatten(handed[stage])}
            tensors = _rebuilt(calls, entries)
            new = functools.partial(keras.tree.map_structure, lambda old, found=tensors: found[id(old)])
            stages.append(keras.Model(new(handed[stage]), new(handed[stage + 1]), name=f"stage_{stage}"))
    push(model, stages)
    for variable, other in pairs(model, stages):
        other.trainable = variable.trainable and model.trainable
    return stages


def pairs(model: keras.Model, stages: Sequence[keras.Model]) -> list[tuple[keras.Variable, keras.Variable]]:
    """Each variable of the model with its counterpart in the stages, by the layer's name and the role in it.

    Args:
        model: what was cut, or the same network built again.
        stages: that ``cut`` made.

    Returns:
        In the order of ``model.variables``, with the state of random generators (Dropout's seed).

    Raises:
        InvalidInputError: a variable has no counterpart of its shape and dtype, or more than one.
    """
    ours, theirs = _variables([model]), _variables(stages)
    if odd := sorted(set(ours) ^ set(theirs)):
        raise InvalidInputError(
            f"variables {odd} are in one of model and stages only: stages must be what cut makes of this "
            "model, and the get_config of each layer must say all that the layer is made from"
        )
    found: dict[int, keras.Variable] = {}
    for name, variable in ours.items():
        if found.setdefault(id(variable), theirs[name]) is not theirs[name]:
            raise InvalidInputError(
                f"{name} is in another layer, too, and would be two in the stages: use one layer twice"
            )
    if lost := [variable.path for variable in model.variables if id(variable) not in found]:
        raise InvalidInputError(f"variables {lost} are in no layer of the model's graph: take them out")
    return [(variable, found[id(variable)]) for variable in model.variables]


def pull(model: keras.Model, stages: Sequence[keras.Model]) -> None:
    """Gives the model the values of the stages' variables. Raises as ``pairs``, then nothing is changed."""
    for variable, other in pairs(model, stages):
        variable.assign(other)


def push(model: keras.Model, stages: Sequence[keras.Model]) -> None:
    """Gives the stages the values of the model's variables. Raises as ``pairs``, then nothing is changed."""
    for variable, other in pairs(model, stages):
        other.assign(variable)
    for layer in itertools.chain.from_iterable(stage._flatten_layers() for stage in stages):
        if isinstance(layer, keras.layers.Normalization):  # It computes with constants made of its variables.
            layer.finalize_state()


def said(model: keras.Model) -> list[str]:
    """What a user should know before rows pass in micro-batches, if anything; a frozen layer is exact."""
    normalising = [
        name
        for name, layer in _graph(model).layers.items()
        for inner in (layer._flatten_layers() if isinstance(layer, keras.Layer) else [])
        if isinstance(inner, keras.layers.BatchNormalization) and inner.trainable
    ]
    if not normalising:
        return []
    return [
        f"BatchNormalization ({', '.join(dict.fromkeys(normalising))}) takes the statistics of the rows "
        "that it gets: in a pipeline those of a micro-batch, so the pipeline is not exactly the uncut model."
    ]


@dataclass(frozen=True)
class _Graph:
    layers: dict[str, Any]  # By name, in graph order.
    calls: list[Any]  # Keras' nodes, each one use of a layer, in an order in which they can be computed.
    crossings: dict[str, Any]  # By place, in graph order: the tensor that crosses there.

    def calls_of(self, layers: Sequence[Any]) -> list[Any]:
        return [call for call in self.calls if any(call.operation is layer for layer in layers)]

    @property
    def would_do(self) -> str:
        return f"it can be cut after: {', '.join(self.crossings) or 'no layer'}"


def _graph(model: keras.Model) -> _Graph:
    functional = _functional(model)
    layers = _named([functional])
    depths = sorted(functional._nodes_by_depth.items(), reverse=True)
    calls = [node for _, nodes in depths for node in nodes if not node.is_input]
    return _Graph(layers, calls, _crossings(functional, layers, calls))


def _functional(model: keras.Model) -> Any:
    """The model itself, or the functional model inside a Sequential."""
    functional = model._functional if isinstance(model, keras.Sequential) else model
    if not (isinstance(functional, keras.Function) and type(model).call.__module__.startswith("keras.")):
        raise InvalidInputError(
            "a model that is cut into stages must be Sequential or functional, and built, got "
            f"{type(model).__name__} {model.name!r}: begin a Sequential with keras.Input, or write it as "
            "keras.Model(inputs, outputs) without a call of its own"
        )
    return functional


def _named(functionals: Iterable[Any]) -> dict[str, Any]:
    """The layers by name, in graph order: of one model, or of stages as if they were one."""
    given: dict[int, str] = {}
    layers = []
    for each in functionals:
        given |= zip(map(id, each.layers), weights.given_names(each), strict=True)
        layers += [layer for layer in each.operations if not isinstance(layer, keras.layers.InputLayer)]
    taken = {given.get(id(layer), "") for layer in layers}
    found = {}
    for layer in layers:
        auto = re.sub(r"_\d+$", "", layer.name)
        counted = itertools.chain([auto], (f"{auto}_{count}" for count in itertools.count(1)))
        name = given.get(id(layer)) or next(free for free in counted if free not in taken)
        taken.add(name)
        found[name] = layer
    return found


def _crossings(functional: Any, layers: Mapping[str, Any], calls: Sequence[Any]) -> dict[str, Any]:
    """By place the tensor that crosses; of a layer that is used on both sides two do, its results."""
    position = {id(layer): place for place, layer in enumerate(layers.values())}
    made = {id(tensor): -1 for tensor in functional.inputs}
    made |= {id(tensor): position[id(call.operation)] for call in calls for tensor in call.outputs}
    crossing: list[dict[int, Any]] = [{} for _ in layers]
    apart = [(made[id(tensor)], len(layers)) for tensor in functional.outputs]  # No place from, before to.
    for call in calls:
        for tensor in call.input_tensors:
            for place in range(max(made[id(tensor)], 0), position[id(call.operation)]):
                crossing[place][id(tensor)] = tensor
    owners: dict[int, int] = {}
    for place, layer in enumerate(layers.values()):
        apart += [(owners.setdefault(id(each), place), place) for each in getattr(layer, "variables", [])]
    barred = {place for start, stop in apart for place in range(start, stop)}
    return {
        name: tensor
        for place, name in enumerate(layers)
        for tensor in crossing[place].values()
        if place not in barred and len(crossing[place]) == 1
        if getattr(tensor, "_keras_mask", None) is None
    }


def _check(graph: _Graph, at: Sequence[str]) -> None:
    named = list(graph.layers)
    for name in at:
        if name not in named:
            near = [f" did you mean {each!r}?" for each in difflib.get_close_matches(name, named, n=1)]
            raise InvalidInputError(f"at has {name!r}, which is no layer;{''.join(near)} {graph.would_do}")
        if name not in graph.crossings:
            rule = "one tensor alone must cross there, and no layer be on both sides"
            raise InvalidInputError(f"at has {name!r}, but {rule}; {graph.would_do}")
    if any(named.index(first) >= named.index(second) for first, second in itertools.pairwise(at)):
        raise InvalidInputError(f"at must be in graph order, each once, got {at}; {graph.would_do}")


def _costs(graph: _Graph, costs: Mapping[str, float] | None) -> dict[str, float]:
    if costs is None:
        trained = {name: getattr(layer, "trainable_variables", []) for name, layer in graph.layers.items()}
        return {name: sum(math.prod(each.shape) for each in theirs) for name, theirs in trained.items()}
    if odd := sorted(set(graph.layers) ^ set(costs)):
        raise InvalidInputError(f"costs must have each layer of the model, got {odd} in one of them only")
    if bad := {name: cost for name, cost in costs.items() if not 0 <= cost < math.inf}:
        raise InvalidInputError(f"costs must be finite and not negative, got {bad}")
    return {name: costs[name] for name in graph.layers}


def _balanced(costs: Sequence[float], stops: Sequence[int], sizes: Sequence[int], stages: int) -> list[int]:
    """The best places by number; ``stops``: how many layers are before each; ``sizes``: what crosses it."""
    bounds, crossing = [0, *stops, len(costs)], [0, *sizes, 0]
    end = len(bounds) - 1
    spans = list(itertools.combinations(range(end + 1), 2))
    cost = {(start, stop): math.fsum(costs[bounds[start] : bounds[stop]]) for start, stop in spans}
    worst = {0: 0.0}  # By where the stages so far end: what the most expensive one costs, at best.
    for _ in range(stages):
        ways = [(stop, max(worst[start], cost[start, stop])) for start, stop in spans if start in worst]
        worst = dict(sorted(ways, reverse=True))
    best: dict[int, tuple[int, tuple[int, ...]]] = {0: (0, ())}  # What is handed over, and where, negated.
    for _ in range(stages):
        steps = [span for span in spans if span[0] in best and cost[span] <= worst[end]]
        ways = [(stop, (best[start][0] + crossing[stop], (*best[start][1], -stop))) for start, stop in steps]
        best = dict(sorted(ways, reverse=True))
    return [-stop - 1 for stop in best[end][1][:-1]]


def _entry(tensor: Any) -> Any:
    """What takes a tensor's part where a graph begins: the model's own input again, or a new one."""
    maker = tensor._keras_history.operation
    if isinstance(maker, keras.layers.InputLayer):
        return _clone(maker).output
    return keras.Input(batch_shape=tensor.shape, dtype=tensor.dtype)


def _rebuilt(calls: Iterable[Any], entries: Mapping[int, Any]) -> dict[int, Any]:
    """Makes the calls again with new layers; the tensors and those of ``entries``, by the ids of the old."""
    tensors, clones = dict(entries), {}
    for call in calls:
        if call.operation not in clones:
            clones[call.operation] = _clone(call.operation)
        args, kwargs = call.arguments.fill_in(tensors)
        outputs = keras.tree.flatten(clones[call.operation](*args, **kwargs))
        tensors |= zip(map(id, call.outputs), outputs, strict=True)
    return tensors


def _clone(layer: Any) -> Any:
    try:
        return type(layer).from_config(layer.get_config())
    except Exception as error:  # A layer of the user's may raise anything.
        raise InvalidInputError(
            f"{layer.name!r} cannot be made again from its config, as in a stage: {error}; write it as a "
            "layer whose get_config says all that its __init__ takes"
        ) from error


def _variables(models: Iterable[keras.Model]) -> dict[str, keras.Variable]:
    """The variables of one model, or of stages as if one, by layer, role, dtype and shape."""
    found = {}
    for name, layer in _named(map(_functional, models)).items():
        if isinstance(layer, keras.Layer):
            seeds = [each for each in layer.variables if each.name == "seed_generator_state"]
            roles = {f"seed.{count}": each for count, each in enumerate(seeds)}
            for role, each in (weights.named_variables(layer) | roles).items():
                found[f"{name}/{role} {each.dtype} {tuple(each.shape)}"] = each
    return found


def _seconds(model: Any, rows: int, clock: Callable[[], float]) -> float:
    shapes = [[rows, *(size or OPEN for size in tensor.shape[1:])] for tensor in model.inputs]
    inputs = [tf.zeros(shape, each.dtype) for shape, each in zip(shapes, model.inputs, strict=True)]
    sources = [tensor for tensor in inputs if tensor.dtype.is_floating]

    @tf.function
    def step():
        with tf.GradientTape() as tape:
            tape.watch(sources)
            outputs = keras.tree.flatten(model(inputs, training=True))
            floats = [tf.cast(output, tf.float32) for output in outputs if output.dtype.is_floating]
            total = tf.add_n([tf.zeros([]), *map(tf.reduce_sum, floats)])
        return outputs, tape.gradient(total, [*sources, *(each.value for each in model.trainable_variables)])

    taken = []
    for _ in range(4):
        begun = clock()
        step()
        tf.test.experimental.sync_devices()
        taken.append(clock() - begun)
    return min(taken[1:])  # The first traces.
