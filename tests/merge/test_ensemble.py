"""The vote of several models as one model that plain Keras loads."""

from typing import Any

import keras
import numpy as np
import pytest

from fourfold.merge import ensemble
from fourfold.model import measures, network, scoring


@pytest.mark.parametrize("count", [1, 2, 3])
def test_it_gives_the_logarithm_of_the_mean_probability_also_when_loaded(tmp_path, count):
    models = [network.build((28, 28, 1), 10, seed=seed) for seed in range(count)]
    x = np.random.default_rng(0).random((5, 28, 28, 1), np.float32)

    ensemble.of(models).save(tmp_path / "vote.keras")

    loaded: Any = keras.models.load_model(tmp_path / "vote.keras", compile=False)
    expected = measures.soft_vote([scoring.logits(model, x) for model in models])
    np.testing.assert_allclose(np.exp(scoring.logits(loaded, x)), expected, rtol=1e-4)


def test_members_stay_as_they_were():
    model = network.build((28, 28, 1), 10, seed=0)
    name, before = model.name, [value.copy() for value in model.get_weights()]

    ensemble.of([model, model])

    assert model.name == name
    for a, b in zip(before, model.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)
