"""The arithmetic of a cache: the source's sum, and what must hold of any."""

import pytest
from hypothesis import given, strategies as st

from fourfold.cache.worth import worth
from fourfold.contract.errors import InvalidInputError

COUNTS, TIMES = st.integers(1, 10**6), st.integers(0, 10**6)


def test_the_worked_sum_of_the_source():
    found = worth(rows=60_000, batch=128, epochs=10, miss=8, hit=1)
    assert found.batches == 469
    assert found.without == 37_520
    assert (found.filling, found.hitting, found.within) == (3_752, 4_221, 7_973)
    assert found.gain == pytest.approx(4.7, abs=0.01)


@given(COUNTS, COUNTS, st.integers(1, 10**6), TIMES)
def test_one_epoch_gains_nothing(rows, batch, miss, hit):
    assert worth(rows, batch, 1, miss, hit).gain == 1


@given(COUNTS, COUNTS, st.integers(1, 1000), TIMES, TIMES)
def test_whole_numbers_stay_exact_and_more_epochs_gain_more_where_a_hit_costs_less(
    rows, batch, epochs, miss, hit
):
    found, next_ = worth(rows, batch, epochs, miss, hit), worth(rows, batch, epochs + 1, miss, hit)
    assert (found.batches - 1) * batch < rows <= found.batches * batch
    assert found.without - found.within == (epochs - 1) * found.batches * (miss - hit)
    assert isinstance(found.within, int)
    if miss >= hit:
        assert next_.gain >= found.gain >= 1
        assert not hit or found.gain <= miss / hit


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"rows": 0}, "rows must be at least 1, got 0"),
        ({"batch": -1}, "batch must be at least 1"),
        ({"epochs": 0}, "epochs must be at least 1"),
        ({"miss": -0.5}, "the time of a miss must be a number from 0"),
        ({"hit": float("nan")}, "the time of a hit must be a number from 0 on, got nan"),
        ({"miss": float("inf")}, "got inf"),
    ],
)
def test_numbers_out_of_range_are_refused(wrong, said):
    with pytest.raises(InvalidInputError, match=said):
        worth(**{"rows": 10, "batch": 2, "epochs": 3, "miss": 2, "hit": 1, **wrong})
