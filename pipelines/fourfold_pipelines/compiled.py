"""Writes pipelines as YAML for Kubeflow."""

import contextlib
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kfp import compiler

from fourfold.contract.errors import FourfoldError
from fourfold_pipelines import experiment, merge_study, train
from fourfold_pipelines.chosen import Chosen, check_name

PIPELINES: dict[str, tuple[str, Callable[[Chosen], Any]]] = {
    "experiment": (experiment.NAME, experiment.build),
    "train": (train.NAME, train.build),
    "merge-study": (merge_study.NAME, merge_study.build),
}
"""By the name of the file: the pipeline's own name, and what builds it."""


DESCRIPTION = "Trains one Keras model every way there is to split the work, and compares."


def write(pipeline: str, chosen: Chosen, target: Path, name: str = "") -> None:
    """Compiles a pipeline into a file, which appears whole.

    Args:
        pipeline: one of ``PIPELINES``.
        chosen: what it is built with.
        target: the file.
        name: of the pipeline in Kubeflow; empty for the usual one.

    Raises:
        InvalidInputError: the name, or what was chosen, cannot be used.
        FourfoldError: the file cannot be written.
    """
    usual, build = PIPELINES[pipeline]
    check_name(name or usual)
    part = target.with_name(f".part-{target.name}")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with warnings.catch_warnings():
            # Of resources set on a task that passes them on, which is what they are set for.
            warnings.simplefilter("ignore")
            compiler.Compiler().compile(build(chosen), str(part), pipeline_name=name or usual)
        part.replace(target)
    except OSError as error:
        raise FourfoldError(f"cannot write {target}: {error.strerror or error}") from error
    finally:
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)
