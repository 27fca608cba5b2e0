"""The loss between models, against functions whose loss is known."""

import numpy as np
import pytest

from fourfold.merge import landscape


def weights(*values: float) -> dict[str, np.ndarray]:
    return {"kernel": np.array(values, np.float64), "seed": np.array([3], np.int64)}


def test_a_line_goes_from_one_to_the_other_through_the_mean():
    seen = []

    def measure(values):
        seen.append(values["kernel"].tolist())
        return float(values["kernel"][0]), 0.5

    found = landscape.line(measure, (0, 1), weights(0, 4), weights(2, 0), aligned=False)

    assert seen[0] == [0, 4] and seen[-1] == [2, 0] and seen[5] == pytest.approx([1, 2])
    assert found.losses == pytest.approx(np.linspace(0, 2, 11))
    assert found.barrier == pytest.approx(0, abs=1e-12)


def test_a_barrier_is_how_far_the_loss_rises_above_the_line_between_the_ends():
    # sin(pi x) on a slope: above the chord by 1 in the middle.
    found = landscape.line(
        lambda v: (float(np.sin(np.pi * v["kernel"][0]) + v["kernel"][0]), 0.5),
        (0, 1), weights(0), weights(1), aligned=True,
    )  # fmt: skip

    assert found.barrier == pytest.approx(1)
    assert found.aligned


def test_a_valley_is_no_barrier_and_a_loss_that_is_no_number_is_null():
    valley = landscape.line(
        lambda v: ((v["kernel"][0] - 0.5) ** 2, 0.5), (0, 1), weights(0), weights(1), False
    )
    broken = landscape.line(lambda v: (float("nan"), 0.0), (0, 1), weights(0), weights(1), False)

    assert valley.barrier == 0
    assert broken.losses == [None] * 11 and broken.barrier == 0


def test_state_that_is_not_floating_point_is_the_firsts():
    found = landscape.between(weights(0), {**weights(1), "seed": np.array([9], np.int64)}, 0.5)

    assert found["seed"].tolist() == [3] and found["seed"].dtype == np.int64


def test_a_plane_shows_its_points_where_they_are():
    found = landscape.plane(
        lambda v: (float(np.square(v["kernel"]).sum()), 0.5),
        {"a": weights(0, 0, 0), "b": weights(2, 0, 0), "c": weights(1, 1, 0), "near": weights(0, 1, 7)},
    )

    assert found is not None
    assert found.points == {
        "a": [0, 0],
        "b": pytest.approx([1, 0]),
        "c": pytest.approx([0.5, 0.5]),
        "near": pytest.approx([0, 0.5]),
    }
    for row, y in zip(found.losses, found.y, strict=True):
        assert row == pytest.approx([4 * x * x + 4 * y * y for x in found.x])
    assert min(found.x) < 0 < 1 < max(found.x)


@pytest.mark.parametrize("third", [(0, 0), (3, 0)])
def test_points_on_a_line_make_no_plane(third):
    points = {"a": weights(0, 0), "b": weights(1, 0), "c": weights(*third)}

    assert landscape.plane(lambda v: (0.0, 0.0), points) is None
    assert (
        landscape.plane(lambda v: (0.0, 0.0), {"a": points["a"], "b": points["a"], "c": points["c"]}) is None
    )
