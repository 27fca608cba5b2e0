"""Stages at work: time is counted once for whoever is at work, and overlap needs two stages."""

import pytest
from hypothesis import given, strategies as st

from fourfold.page import lanes

TICKS = st.integers(0, 30)
SPANS = st.lists(st.tuples(st.integers(0, 3), TICKS, TICKS), max_size=12)
"""Their ends are whole numbers, so that time can be counted tick by tick; some end before they begin."""


def counted(spans) -> tuple[int, int]:
    """The same by counting: for each tick, how many stages are at work."""
    at_work = [len({s for s, begin, end in spans if begin <= tick < end}) for tick in range(31)]
    return sum(stages >= 1 for stages in at_work), sum(stages >= 2 for stages in at_work)


@given(SPANS)
def test_it_is_what_counting_gives(spans):
    found = lanes.overlap(spans)

    assert (found.seconds_any, found.seconds_two) == counted(spans)
    assert 0 <= found.share <= 1


@given(SPANS, st.randoms())
def test_the_order_of_spans_does_not_matter(spans, random):
    mixed = list(spans)
    random.shuffle(mixed)

    assert lanes.overlap(mixed) == lanes.overlap(spans)


@given(SPANS)
def test_a_span_told_twice_or_in_two_pieces_counts_once(spans):
    halves = [piece for s, b, e in spans for piece in ((s, b, (b + e) / 2), (s, (b + e) / 2, e))]

    assert lanes.overlap(halves + spans) == lanes.overlap(spans)


@given(SPANS)
def test_one_stage_never_overlaps_with_itself(spans):
    assert lanes.overlap((0, begin, end) for _, begin, end in spans).seconds_two == 0


@given(SPANS, st.integers(1, 9))
def test_when_the_step_began_does_not_matter(spans, later):
    assert lanes.overlap((s, b + later, e + later) for s, b, e in spans) == lanes.overlap(spans)


def test_stages_that_hand_over_are_not_at_work_at_once():
    found = lanes.overlap([(0, 0.0, 0.1), (1, 0.1, 0.3), (0, 0.3, 0.4)])

    assert found.seconds_two == 0
    assert found.seconds_any == pytest.approx(0.4)
    assert lanes.sentence(found).endswith("no speed-up is claimed.")


def test_the_sentence_has_the_share_and_the_times():
    said = lanes.sentence(lanes.overlap([(0, 0.0, 0.002), (1, 0.001, 0.004)]))

    assert "two stages or more were at work at once for 25.0 % of the time" in said
    assert "1.00 of 4.00 ms" in said
    assert "speed-up" not in said


def test_nothing_at_work_is_no_share():
    for spans in ([], [(0, 1.0, 1.0)], [(0, 2.0, 1.0)]):
        assert lanes.overlap(spans) == lanes.Overlap(0.0, 0.0)
        assert lanes.overlap(spans).share == 0
