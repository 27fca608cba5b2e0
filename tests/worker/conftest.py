"""Trainings that several tests look at."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from fourfold.contract.records import Trained
from fourfold.train.step import train
from tests.conftest import training_of


@pytest.fixture(scope="session")
def once(store: Path, workers: None, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Trained]:
    """Trains by real processes what is asked for; by the same arguments only once."""
    done: dict[str, Trained] = {}

    def trained(scenario: str, rows: int, split: str = "contiguous", workers: int = 1, **fields) -> Trained:
        key = json.dumps([scenario, rows, split, workers, fields], sort_keys=True)
        if key not in done:
            output = tmp_path_factory.mktemp(scenario)
            done[key] = train(training_of(store, output, scenario, rows, split, workers, **fields))
        return done[key]

    return trained
