"""Numbers from logits: accuracy, cross-entropy, soft vote, confusion. Plain NumPy, in float64."""

from collections.abc import Mapping, Sequence

import numpy as np

from fourfold.contract.errors import InvalidInputError
from fourfold.contract.records import ModelScore
from fourfold.contract.strict import finite


def probabilities(logits: np.ndarray) -> np.ndarray:
    """Softmax over the last axis.

    Args:
        logits: [n, classes], any float dtype.

    Returns:
        float64 [n, classes]; each row sums to 1, or is NaN where a logit is NaN or +infinity.
    """
    wide = logits.astype(np.float64)
    with np.errstate(invalid="ignore"):
        powers = np.exp(wide - wide.max(axis=-1, keepdims=True))
        return powers / powers.sum(axis=-1, keepdims=True)


def cross_entropy(logits: np.ndarray, labels: np.ndarray) -> float:
    """Mean over rows of -log of the probability given to the right class.

    Args:
        logits: [n, classes].
        labels: [n] class numbers.

    Returns:
        Nats; NaN where a logit is not finite.
    """
    wide = logits.astype(np.float64)
    with np.errstate(invalid="ignore"):
        shifted = wide - wide.max(axis=-1, keepdims=True)
        log_sums = np.log(np.exp(shifted).sum(axis=-1))
        return float(np.mean(log_sums - shifted[np.arange(len(labels)), labels]))


def accuracy(scores: np.ndarray, labels: np.ndarray) -> float:
    """Share of rows whose largest score (logit or probability) is the right class's; NaN counts as wrong."""
    return float(np.mean(_predicted(scores) == labels))


def confusion(scores: np.ndarray, labels: np.ndarray, classes: int) -> np.ndarray:
    """Rows by true class (first axis) and predicted class (second axis).

    Args:
        scores: [n, classes].
        labels: [n] class numbers.
        classes: number of classes.

    Returns:
        int64 [classes, classes]; rows without a finite score are left out.
    """
    predicted = _predicted(scores)
    counted = predicted >= 0
    table = np.zeros((classes, classes), dtype=np.int64)
    np.add.at(table, (labels[counted], predicted[counted]), 1)
    return table


def roc(scores: np.ndarray, labels: np.ndarray, points: int = 101) -> tuple[np.ndarray, float | None]:
    """The receiver operating characteristic over all classes, each against the rest (micro-average).

    Every pair of a row and a class is one decision: its score is the probability given to the class, it is
    positive where the class is the row's. A point's rates count the decisions at or above its threshold
    (Fawcett, 2006).

    Args:
        scores: logits [n, classes]; rows that are not finite are left out.
        labels: [n] class numbers.
        points: kept at most, evenly along the curve; at least 2.

    Returns:
        float64 [points, 3]: false positive rate, true positive rate, threshold, all finite, from (0, 0) to
        (1, 1); and the area under the curve of all points (1 at best, 0.5 for chance). No points and None
        where no row is finite, or there is one class only.
    """
    given = probabilities(scores)
    kept = np.isfinite(given).all(axis=-1)
    given, wanted = given[kept], labels[kept]
    if not len(given) or given.shape[1] < 2:
        return np.zeros((0, 3)), None
    positive = (np.arange(given.shape[1]) == wanted[:, None]).ravel()
    flat = given.ravel()
    order = np.argsort(-flat, kind="stable")
    ends = np.flatnonzero(np.append(np.diff(flat[order]) != 0, True))
    hits = np.cumsum(positive[order])[ends]
    misses = 1 + ends - hits
    # Where nothing is taken: a threshold above every probability; infinity is no JSON.
    found = np.column_stack(
        [np.append(0, misses) / misses[-1], np.append(0, hits) / hits[-1], np.append(2.0, flat[order][ends])]
    )
    area = float(np.sum(np.diff(found[:, 0]) * (found[1:, 1] + found[:-1, 1]) / 2))
    # Even steps along both rates, so that the bend of a good curve keeps its points.
    along = found[:, 0] + found[:, 1]
    chosen = np.searchsorted(along, np.linspace(0, 2, min(points, len(found))))
    return found[np.unique(np.clip(chosen, 0, len(found) - 1))], area


def soft_vote(members: Sequence[np.ndarray]) -> np.ndarray:
    """The mean of the members' probabilities, every member with the same weight (Hansen, Salamon, 1990).

    Args:
        members: logits [n, classes] of each model for the same rows.

    Returns:
        float64 [n, classes], rows summing to 1.

    Raises:
        InvalidInputError: there are no members, or their shapes differ.
    """
    if not members or len({member.shape for member in members}) != 1:
        raise InvalidInputError(
            f"a vote needs members with one shape, got {[member.shape for member in members]}"
        )
    return np.mean([probabilities(member) for member in members], axis=0)


def vote_loss(voted: np.ndarray, labels: np.ndarray) -> float:
    """Mean over rows of -log of the voted probability of the right class, nats.

    Args:
        voted: probabilities [n, classes].
        labels: [n] class numbers.
    """
    with np.errstate(divide="ignore"):
        return float(np.mean(-np.log(voted[np.arange(len(labels)), labels])))


def score(logits: Mapping[str, np.ndarray], labels: Mapping[str, np.ndarray], digest: str = "") -> ModelScore:
    """A model's score.

    Args:
        logits: of the ``holdout`` and ``test`` rows, [n, classes].
        labels: likewise, [n].
        digest: of the model's weights.
    """
    return ModelScore(
        accuracy=accuracy(logits["test"], labels["test"]),
        loss=finite(cross_entropy(logits["test"], labels["test"])),
        holdout_accuracy=accuracy(logits["holdout"], labels["holdout"]),
        holdout_loss=finite(cross_entropy(logits["holdout"], labels["holdout"])),
        weights_sha256=digest,
    )


def _predicted(scores: np.ndarray) -> np.ndarray:
    """The class with the largest score, -1 where a score is NaN."""
    return np.where(np.isnan(scores).any(axis=-1), -1, np.argmax(scores, axis=-1))
