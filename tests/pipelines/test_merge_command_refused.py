"""``fourfold merge`` refuses what it cannot do, in words, and writes nothing then."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

from fourfold.contract import exits
from tests.pipelines.merging import CLASSES, OWN, TWO, merge, network, refused, rows, set_head

pytestmark = pytest.mark.usefixtures("two_models")


def saved(**arrays: Any) -> str:
    np.savez("bad.npz", **arrays)
    return "bad.npz"


def text(name: str, content: str = "no such thing") -> str:
    Path(name).write_text(content)
    return name


def model(made: keras.Model) -> str:
    made.save("bad.keras")
    return "bad.keras"


def broken(value: float) -> keras.Model:
    made = network(0)
    set_head(made, [value, 0, 0])
    return made


X, Y = rows(7)
HELD = (*TWO, "--holdout")
FIRST_OWN = (*TWO, "--own", "a.npz", "--own")
BAD: dict[str, tuple[Callable[[], tuple[str, ...]], str]] = {
    "one model": (lambda: ("a.keras", "-o", "out.keras"), "merge takes at least two models, got 1"),
    "no model": (lambda: ("-o", "out.keras"), "Missing argument"),
    "no out": (lambda: ("a.keras", "b.keras"), "Missing option '-o'"),
    "unknown rule": (lambda: (*TWO, "--rule", "plain_maen"), "did you mean 'plain_mean'?"),
    "empty rule": (lambda: (*TWO, "--rule", ","), "unknown rule ''"),
    "unknown number": (lambda: (*TWO, "--rule", "ties:kep=1"), "rule ties has no number 'kep'"),
    "wrong order": (lambda: (*TWO, "--rule", "plain_mean,weight_matching"), "align members first"),
    "missing model": (lambda: ("a.keras", "z.keras", "-o", "out.keras"), "'z.keras' does not exist"),
    "missing rows": (lambda: (*HELD, "z.npz"), "'z.npz' does not exist"),
    "no .keras file": (
        lambda: ("a.keras", text("bad.keras"), "-o", "out.keras"),
        "bad.keras cannot be loaded as a .keras model",
    ),
    "other structure": (
        lambda: ("a.keras", model(network(1, hidden=7)), "-o", "out.keras"),
        "bad.keras has not the structure of a.keras",
    ),
    "other structure, with statistics": (
        lambda: ("a.keras", model(network(1, hidden=7)), "-o", "out.keras", *OWN, "--rule", "fisher"),
        "bad.keras has not the structure of a.keras",
    ),
    "start of other structure": (
        lambda: (*TWO, "--rule", "ties", "--start", model(network(1, hidden=7))),
        "--start bad.keras has not the structure of the models",
    ),
    "start with NaN": (
        lambda: (*TWO, "--rule", "ties", "--start", model(broken(np.nan))),
        "--start bad.keras: 1:Dense/bias holds NaN or infinity",
    ),
    "own for one": (lambda: (*TWO, "--own", "a.npz"), "--own was given 1 times for 2 models"),
    "rows for one": (lambda: (*TWO, "--rows", "3"), "--rows was given 1 times for 2 models"),
    "negative rows": (
        lambda: (*TWO, "--rule", "weighted_mean", "--rows", "3", "--rows", "-1"),
        "b.keras was trained on -1 rows: a count must be 0 or more",
    ),
    "no rows at all": (
        lambda: (*TWO, "--rule", "weighted_mean", "--rows", "0", "--rows", "0"),
        "no member was trained on any row",
    ),
    "no x": (lambda: (*FIRST_OWN, saved(rows=X)), "bad.npz has no array x, only rows"),
    "no y": (lambda: (*HELD, saved(x=X)), "bad.npz has no array y, only x"),
    "pickles": (
        lambda: (*FIRST_OWN, saved(x=np.array([{}, {}], object))),
        "bad.npz cannot be read as .npz without pickles",
    ),
    "no .npz file": (lambda: (*HELD, text("bad.npz")), "bad.npz cannot be read as .npz"),
    "x is one number": (lambda: (*FIRST_OWN, saved(x=np.float32(1))), "x must hold rows of real numbers"),
    "x is words": (lambda: (*FIRST_OWN, saved(x=np.full((9, 4), "a"))), "x must hold rows of real numbers"),
    "y too short": (lambda: (*HELD, saved(x=X, y=Y[:-1])), "a whole class number for each of the 90 rows"),
    "y of floats": (lambda: (*HELD, saved(x=X, y=Y.astype(float))), "got float64 [90]"),
    "y of vectors": (lambda: (*HELD, saved(x=X, y=np.eye(CLASSES, dtype=int)[Y])), "got int64 [90, 3]"),
    "empty x": (lambda: (*HELD, saved(x=X[:0], y=Y[:0])), "bad.npz: x has no rows"),
    "other shape": (
        lambda: (*FIRST_OWN, saved(x=X[:, :3])),
        "a row of x is [3], and the models take [4]",
    ),
    "other rank": (
        lambda: (*HELD, saved(x=X[:, :, None], y=Y)),
        "a row of x is [4, 1], and the models take [4]",
    ),
    "label too large": (lambda: (*HELD, saved(x=X, y=Y + 1)), "class numbers from 0 to 2"),
    "label too large at a site": (
        lambda: (*FIRST_OWN, saved(x=X, y=Y + 1), "--rule", "plain_mean,head_refit"),
        "class numbers from 0 to 2",
    ),
    "negative label": (
        lambda: (*TWO, "--rule", "greedy_soup", "--calibration", saved(x=X, y=Y - 1)),
        "got -1 to 1",
    ),
    "NaN in x": (lambda: (*HELD, saved(x=np.where(X > 0, X, np.nan), y=Y)), "x holds NaN or infinity"),
    "infinity in x": (lambda: (*FIRST_OWN, saved(x=np.full_like(X, np.inf))), "x holds NaN or infinity"),
    "NaN weights": (
        lambda: ("a.keras", model(broken(np.nan)), "-o", "out.keras"),
        "bad.keras: 1:Dense/bias holds NaN or infinity; leave this model out",
    ),
    "NaN weights, with statistics": (
        lambda: ("a.keras", model(broken(np.inf)), "-o", "out.keras", *OWN, "--rule", "regmean"),
        "bad.keras: 1:Dense/bias holds NaN or infinity",
    ),
    "out is a model": (
        lambda: ("a.keras", "b.keras", "-o", "./a.keras"),
        "is one of the files that are read",
    ),
    "out is rows": (lambda: ("a.keras", "b.keras", *OWN, "-o", "b.npz"), "is one of the files that are read"),
    "out is no .keras": (lambda: ("a.keras", "b.keras", "-o", "out.h5"), "--out out.h5 must end in .keras"),
    "out below a file": (
        lambda: ("a.keras", "b.keras", "-o", f"{text('file')}/out.keras"),
        "cannot write --out file/out.keras",
    ),
    "statistics without rows": (lambda: (*TWO, "--rule", "fisher"), "fisher needs Fisher or Gram sums"),
    "sums without rows": (lambda: (*TWO, "--rule", "plain_mean,repair"), "repair needs sums that sites"),
    "ties without a start": (lambda: (*TWO, "--rule", "ties"), "ties needs the weights"),
    "soup without rows": (
        lambda: (*TWO, "--rule", "greedy_soup"),
        "greedy_soup needs pooled rows with labels",
    ),
    "negative seed": (lambda: (*TWO, "--seed", "-1"), "-1 is not in the range x>=0"),
    "margin that is none": (lambda: (*HELD, "h.npz", "--margin", "nan"), "from 0 to 1, got nan"),
    "a scale that is too large": (
        lambda: (*TWO, "--rule", "task_arithmetic:scale=1e300", "--start", "b.keras"),
        "makes NaN or infinity of 0:Dense/kernel",
    ),
}


@pytest.mark.parametrize(("arguments", "said"), BAD.values(), ids=BAD)
def test_bad_input_is_refused_in_words_and_nothing_is_written(arguments, said):
    assert said in refused(*arguments())


def test_numbers_that_go_too_far_end_like_a_training_that_diverged():
    rule = ("--rule", "task_arithmetic:scale=1e300", "--start", "b.keras")
    assert merge(*TWO, *rule).exit_code == exits.DIVERGED


def test_bad_arguments_end_as_bad_input():
    assert merge("a.keras", "-o", "out.keras").exit_code == exits.INVALID_INPUT
    assert merge(*TWO, "--own", "a.npz").exit_code == exits.INVALID_INPUT
