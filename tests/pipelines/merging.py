"""Tiny models and their rows for the command ``fourfold merge``, and what it says of them."""

from pathlib import Path

import keras
import numpy as np
from click.testing import CliRunner, Result

from fourfold_pipelines.cli import main

INPUTS, CLASSES = 4, 3
CENTRES = np.random.default_rng(42).normal(size=(CLASSES, INPUTS)) * 3


def network(seed: int, hidden: int = 6, batch_norm: bool = False) -> keras.Model:
    keras.utils.set_random_seed(seed)
    between = [keras.layers.BatchNormalization()] if batch_norm else []
    return keras.Sequential(
        [
            keras.Input((INPUTS,)),
            keras.layers.Dense(hidden, activation="relu"),
            *between,
            keras.layers.Dense(CLASSES),
        ]
    )


def rows(seed: int, count: int = 90) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    y = np.arange(count) % CLASSES
    return (CENTRES[y] + generator.normal(size=(count, INPUTS))).astype(np.float32), y


def set_head(model: keras.Model, bias: list[float]) -> None:
    """Makes a model say the same of every row."""
    kernel, _ = model.layers[-1].get_weights()
    model.layers[-1].set_weights([0 * kernel, np.array(bias, np.float32)])


def merge(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["merge", *arguments])


def done(*arguments: str) -> str:
    """What a command that ends well says, on one line."""
    result = merge(*arguments)
    assert result.exit_code == 0, (result.output, result.exception)
    return " ".join(result.output.split())


def refused(*arguments: str) -> str:
    """What a command says that ends with an error for users, having written nothing."""
    before = {path: path.stat().st_mtime_ns for path in Path().rglob("*")}
    result = merge(*arguments)
    assert result.exit_code != 0, result.output
    assert isinstance(result.exception, SystemExit), repr(result.exception)
    assert "Traceback" not in result.output
    assert {path: path.stat().st_mtime_ns for path in Path().rglob("*")} == before
    return " ".join(result.output.split())


def weights(name: str = "out.keras") -> list[np.ndarray]:
    return keras.models.load_model(name, compile=False).get_weights()  # pyright: ignore


TWO = ("a.keras", "b.keras", "-o", "out.keras")
OWN = ("--own", "a.npz", "--own", "b.npz")
