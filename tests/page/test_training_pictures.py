"""Pictures of the inside of a training: every pair, round and stage is there, whatever the numbers."""

import math
import re
import xml.etree.ElementTree as ElementTree
from itertools import combinations

import pytest
from hypothesis import given, settings, strategies as st

from fourfold.page import training_pictures
from tests.page.test_pictures import SVG, texts

NUMBERS = st.floats(0, 1e6)


def drawn(svg: str) -> list[str]:
    """The paths of a picture; one of gaps alone is empty."""
    return [element.get("d", "") for element in ElementTree.fromstring(svg).iter(f"{SVG}path")]


@pytest.mark.parametrize("members", [2, 3, 5, 6])
def test_pairs_have_names_where_a_legend_can_hold_them(members):
    pairs = [list(pair) for pair in combinations(range(members), 2)]

    svg = training_pictures.distances("trio", [0, 20], pairs, [[1.0] * len(pairs)] * 2)

    named = {f"{left} and {right}" for left, right in pairs} & set(texts(svg))
    assert len(named) == (len(pairs) if len(pairs) <= training_pictures.NAMED else 0)


@settings(max_examples=8)
@given(st.lists(st.tuples(NUMBERS, NUMBERS), min_size=1, max_size=4))
def test_any_distances_can_be_drawn_without_a_warning(values):
    svg = training_pictures.distances("trio", list(range(len(values))), [[0, 1], [0, 2]], values)

    assert all("nan" not in path for path in drawn(svg))
    assert {"0 and 1", "0 and 2", "step"} <= set(texts(svg))


def test_equal_models_are_a_line_at_zero():
    assert "0 and 1" in texts(training_pictures.distances("trio", [0, 1], [[0, 1]], [[0.0], [0.0]]))


@settings(max_examples=8)
@given(st.lists(st.tuples(st.none() | NUMBERS, NUMBERS), min_size=1, max_size=4))
def test_any_rounds_can_be_drawn_without_a_warning_also_without_a_loss(rounds):
    losses, apart = zip(*rounds, strict=True)

    svg = training_pictures.rounds("turns", losses, apart)

    assert all("nan" not in path for path in drawn(svg))
    assert {"local loss (nats)", "distance to the merge", "round"} <= set(texts(svg))


@pytest.mark.parametrize("rounds", [1, 2, 7, 40])
def test_rounds_on_the_axis_are_whole(rounds):
    written = texts(training_pictures.rounds("turns", [1.0] * rounds, [1.0] * rounds))

    axis = written[: written.index("round")]
    assert axis
    assert all(re.fullmatch(r"\d+", text) for text in axis)


@settings(max_examples=8)
@given(
    st.lists(
        st.tuples(st.integers(0, 9), st.floats(0, 9), st.floats(0, 9)).map(
            lambda s: (s[0], s[1], s[1] + s[2])
        ),
        min_size=1,
        max_size=12,
    )
)
def test_every_stage_has_a_lane_of_its_own(spans):
    svg = training_pictures.lanes("line", spans)

    assert [text for text in texts(svg) if text.startswith("stage")] == [
        f"stage {stage}" for stage in sorted({stage for stage, _, _ in spans})
    ]


def test_times_are_in_milliseconds():
    written = texts(training_pictures.lanes("line", [(0, 0.0, 0.010)]))

    assert "ms since the step began" in written
    assert max(float(text) for text in written if re.fullmatch(r"[\d.]+", text)) == pytest.approx(10)


def test_a_span_is_drawn_as_long_as_it_was():
    svg = training_pictures.lanes("line", [(0, 0.0, 0.003), (1, 0.003, 0.004)])

    wide = sorted(_width(path) for path in drawn(svg) if path.count("L") == 3 and path.rstrip().endswith("z"))
    first, second = (width for width in wide if width > 1)
    assert second / first == pytest.approx(3, rel=1e-3)


def _width(path: str) -> float:
    across = [float(x) for x in re.findall(r"[ML] ([-\d.]+)", path)]
    return max(across) - min(across) if across else math.nan
