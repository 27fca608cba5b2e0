"""Sites: each holds one member's rows, which never leave it; what leaves is sums.

A rule asks all sites the same question and is given the sum of their answers. ``Together`` asks sites that
are in this process, one after another; in a TFJob each worker is one site, and the sum is an all-reduce.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import tensorflow as tf

from fourfold.contract.errors import InvalidInputError
from fourfold.model import linear, measures, scoring, taps, weights
from fourfold.model.pinned import keras

Weights = Mapping[str, np.ndarray]
Sums = dict[str, np.ndarray]
PIECE = 1000
"""Rows whose outputs lie in memory at a time."""
PATCHED = 250
"""Rows of which all patches do."""


@dataclass(frozen=True)
class Scores:
    """How logits count in least squares.

    A logit matters by the curvature of the cross-entropy there, p (1 - p): far from any decision it may be
    off by much. Members are surer of their own rows than they should be, so p is taken of softened logits.

    Attributes:
        temperature: by which logits are divided for p; 0 for no weights at all.
        least: added to each weight.
    """

    temperature: float
    least: float

    def sums(self, each: linear.Map, given: np.ndarray, logits: np.ndarray) -> Sums:
        """What a batch adds; see ``Site.fit``."""
        centred = logits - logits.mean(axis=-1, keepdims=True)
        if not self.temperature:
            return each.sums(given, centred)
        p = measures.probabilities(logits / self.temperature)
        counts = np.sqrt(p * (1 - p) + self.least).astype(np.float32)
        h = each.rows(given)[:, 0]
        gram, cross = [], []
        for count, goal in zip(counts.T, centred.T, strict=True):
            weighed = h * count[:, np.newaxis]
            # Of one array with itself: NumPy computes one triangle, and the result is exactly symmetric.
            gram.append((weighed.T @ weighed).astype(np.float64))
            cross.append((weighed.T @ (count * goal)).astype(np.float64))
        return {"gram": np.stack(gram), "cross": np.stack(cross)[:, :, np.newaxis]}


@dataclass
class Site:
    """One site.

    Attributes:
        index: of the member that was trained here.
        x: its rows [n, ...].
        y: their class numbers [n]; None where they have no labels.
        model: of the members' structure; its weights are set anew for each question.
        maps: of the model, by name.
    """

    index: int
    x: np.ndarray
    y: np.ndarray | None
    model: keras.Model
    maps: Mapping[str, linear.Map]

    def grams(self, values: Weights, names: Sequence[str], rows: int) -> Sums:
        """Of the inputs of layers in a model: ``<layer>`` float64 [B, d, d]; and ``rows``."""
        x = self.x[:rows]
        sums = self._watched(values, names, x, lambda name, given, made: {name: self._gram(name, given)})
        return {**sums, "rows": np.array(float(len(x)))}

    def fit(self, name: str, merged: Weights, own: Weights, rows: int, scores: Scores | None = None) -> Sums:
        """Of a layer's inputs in the merged model and its outputs in this site's own: ``gram``, ``cross``.

        Args:
            name: of the layer.
            merged: weights of the merged model.
            own: weights of this site's member.
            rows: of this site that are used, at most.
            scores: how outputs that are class scores count; None for other outputs. Then the mean over a
                row's outputs is taken off, since logits say the same without.

        Returns:
            float64 [B, d, d] and [B, d, o]; where scores are weighted, a map a class: [o, d, d], [o, d, 1].
        """
        total: Sums = {}
        # In pieces, so that what the site's own model makes of all rows need not lie in memory.
        for x in np.array_split(self.x[:rows], max(1, -(-len(self.x[:rows]) // PIECE))):
            made: list[np.ndarray] = []
            self._watched(own, [name], x, lambda _, given, out, made=made: made.append(out) or {})
            made.reverse()

            def see(_: str, given: np.ndarray, __: np.ndarray, made=made) -> Sums:
                out = made.pop()
                if scores is None:
                    return self.maps[name].sums(given, out)
                return scores.sums(self.maps[name], given, out)

            _add(total, self._watched(merged, [name], x, see))
        return total

    def outputs(self, each: Sequence[Weights], names: Sequence[str], rows: int) -> Sums:
        """Sums and sums of squares of what layers make of the rows, in several models.

        Returns:
            ``<model>/<layer>`` float64 [2, units] by the model's place in ``each``; and ``count/<layer>``.
        """
        found: Sums = {}
        for place, values in enumerate(each):

            def see(name: str, given: np.ndarray, made: np.ndarray, place: int = place) -> Sums:
                flat = made.reshape(-1, made.shape[-1]).astype(np.float64)
                told = {f"{place}/{name}": np.stack([flat.sum(axis=0), np.square(flat).sum(axis=0)])}
                return told if place else {**told, f"count/{name}": np.array(float(len(flat)))}

            found |= self._watched(values, names, self.x[:rows], see)
        return found

    def crossed(self, each: Sequence[Weights], names: Sequence[str], rows: int) -> Sums:
        """How units of the first model go with those of each other one, on the same rows.

        Returns:
            ``<model>/<layer>`` float64 [units, units]: sums of products of the first model's units (rows)
            and the other's (columns); and as ``outputs`` for all models, under ``sums/``.
        """
        found = {f"sums/{key}": value for key, value in self.outputs(each, names, rows).items()}
        first: list[np.ndarray] = []
        x = self.x[:rows]
        self._watched(each[0], names, x, lambda name, given, made: first.append(made) or {})
        for place, values in list(enumerate(each))[1:]:
            left = first[::-1]

            def see(name: str, given: np.ndarray, made: np.ndarray, place: int = place, left=left) -> Sums:
                a, b = (part.reshape(-1, part.shape[-1]).astype(np.float64) for part in (left.pop(), made))
                return {f"{place}/{name}": a.T @ b}

            found |= self._watched(values, names, x, see)
        return found

    def fisher(self, values: Weights, rows: int, seed: int) -> Sums:
        """The diagonal of the Fisher information: ``<variable>`` summed over rows; and ``rows``.

        Labels are drawn from what the model itself says of a row (Matena and Raffel, 2022, equation 3).
        """
        weights.assign(self.model, values)
        x = self.x[:rows]
        variables = weights.named_variables(self.model)
        trained = {id(variable) for variable in self.model.trainable_variables}
        asked = {name: variable for name, variable in variables.items() if id(variable) in trained}
        logits = scoring.logits(self.model, x).astype(np.float64)
        noise = np.random.default_rng(seed).gumbel(size=logits.shape)
        labels = np.argmax(logits + noise, axis=-1)
        squares = _Squares(self.model, list(asked.values()))
        for row, label in zip(x, labels, strict=True):
            squares.add(row[np.newaxis], np.array([label]))
        return {**dict(zip(asked, squares.taken(), strict=True)), "rows": np.array(float(len(x)))}

    def head_inputs(self, name: str, values: Weights, rows: int) -> np.ndarray:
        """What reaches the last layer, with the 1 of a bias, float32 [n, d]; it stays at this site."""
        taken: list[np.ndarray] = []
        each = self.maps[name]
        self._watched(
            values, [name], self.x[:rows], lambda _, given, made: taken.append(each.rows(given)) or {}
        )
        return np.concatenate(taken)[:, 0]

    def labels(self, rows: int) -> np.ndarray:
        """The class numbers of the first rows.

        Raises:
            InvalidInputError: they are not known.
        """
        if self.y is None:
            raise InvalidInputError(f"the rows of site {self.index} have no labels, and the rule needs them")
        return self.y[:rows]

    def _gram(self, name: str, given: np.ndarray) -> np.ndarray:
        return self.maps[name].sums(given)["gram"]

    def _watched(
        self,
        values: Weights,
        names: Sequence[str],
        x: np.ndarray,
        see: Callable[[str, np.ndarray, np.ndarray], Sums],
    ) -> Sums:
        """The sum over batches of what ``see`` makes of layers in a model with these weights."""
        weights.assign(self.model, values)
        total: Sums = {}

        def add(name: str, given: np.ndarray, made: np.ndarray) -> None:
            _add(total, see(name, given, made))

        # Rows that are seen at many places take much memory there; sums of the others are large themselves.
        batch = PATCHED if any(self.maps[name].sees_places for name in names) else PIECE
        taps.watch(self.model, {name: self.maps[name].layer for name in names}, x, add, batch)
        return total


class Sites(Protocol):
    """All sites."""

    exchanges: int
    sent: int

    def total(self, ask: Callable[[Site], Sums]) -> Sums:
        """The sum over all sites of their answers to a question."""
        ...


class Together:
    """Sites that are in this process.

    Attributes:
        exchanges: how often they were asked.
        sent: bytes that all of them gave.
    """

    def __init__(self, sites: Sequence[Site]):
        self.sites, self.exchanges, self.sent = sites, 0, 0

    def total(self, ask: Callable[[Site], Sums]) -> Sums:
        """See ``Sites``."""
        self.exchanges += 1
        total: Sums = {}
        for site in self.sites:
            answer = ask(site)
            self.sent += sum(value.nbytes for value in answer.values())
            _add(total, answer)
        return total


def _add(total: Sums, more: Sums) -> None:
    for key, value in more.items():
        if key in total:
            total[key] += value
        else:
            total[key] = np.array(value, np.float64)


class _Squares:
    """Sums of squares of gradients, a row at a time."""

    def __init__(self, model: keras.Model, variables: Sequence[keras.Variable]):
        self.sums = [tf.Variable(tf.zeros(each.shape, tf.float64)) for each in variables]
        values = [each.value for each in variables]

        def add(x, y):
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(
                    tf.nn.sparse_softmax_cross_entropy_with_logits(y, model(x, training=False))
                )
            for total, gradient in zip(self.sums, tape.gradient(loss, values), strict=True):
                if gradient is not None:
                    total.assign_add(tf.square(tf.cast(tf.convert_to_tensor(gradient), tf.float64)))

        self.add = tf.function(add, autograph=False, reduce_retracing=True)

    def taken(self) -> list[np.ndarray]:
        return [total.numpy() for total in self.sums]
