"""Pictures of what lies between models: every line, point and unit is there, whatever the losses."""

import re
import xml.etree.ElementTree as ElementTree

import pytest
from hypothesis import given, settings, strategies as st

from fourfold.page import merge_pictures
from tests.page.test_pictures import SVG, texts
from tests.page.test_training_pictures import drawn

LOSSES = st.none() | st.floats(0, 1e6)


def line(losses, aligned=False, members=(0, 1)) -> dict:
    return {
        "members": list(members),
        "aligned": aligned,
        "losses": list(losses),
        "accuracies": [0.5] * len(losses),
    }


def plane_of(losses, points=None) -> dict:
    sides = [list(range(len(each))) for each in (losses[0], losses)]
    return {"x": sides[0], "y": sides[1], "losses": losses, "points": points or {"solo 0": [0, 0]}}


BOTH = [line([1.0, 2.0, 1.5]), line([1.0, 1.2, 1.5], aligned=True)]
PLANE = plane_of([[1.0, 2.0, 3.0], [2.0, 1.0, 2.0], [3.0, 4.0, 9.0]], {"solo 0": [0, 0], "solo 1": [1, 0]})
PICTURES = {"lines": lambda: merge_pictures.lines(BOTH), "plane": lambda: merge_pictures.plane(PLANE)}
every_picture = pytest.mark.parametrize("draw", PICTURES.values(), ids=PICTURES)


@every_picture
def test_a_picture_is_one_svg_element_with_a_label_for_those_who_do_not_see_it(draw):
    root = ElementTree.fromstring(draw())
    assert root.tag == f"{SVG}svg"
    assert root.attrib["role"] == "img"
    assert "loss" in root.attrib["aria-label"].lower()


@every_picture
def test_a_picture_needs_nothing_else(draw):
    svg = re.sub(r'xmlns(:\w+)?="[^"]*"', "", draw())
    assert not re.search(r"http|<script|<metadata", svg)
    assert set(re.findall(r"(?:url\(|href=\")(.)", svg)) <= {"#", "d"}  # Shades lie within it as data.


@every_picture
def test_losses_have_their_unit(draw):
    assert "hold-out loss (nats)" in texts(draw())


def test_lines_say_which_models_they_join_and_whether_units_were_matched():
    written = texts(merge_pictures.lines([line([1, 2], members=(2, 5)), line([1, 2], True, (2, 5))]))
    assert {"solo 2 to solo 5, as they are", "solo 2 to solo 5, units matched"} <= set(written)
    assert written.count("share of solo 5: 0 is solo 2, 0.5 the plain mean") == 2
    assert "hold-out accuracy (%)" in written


def curves(svg: str) -> list[str]:
    """The paths of the lines that were drawn, by their width; markers and axes are others."""
    found = ElementTree.fromstring(svg).iter(f"{SVG}path")
    return [path.get("d", "") for path in found if "stroke-width: 1.6" in path.get("style", "")]


def test_a_loss_that_is_not_finite_leaves_a_gap():
    whole = curves(merge_pictures.lines([line([1, 2, 3, 2, 1])]))
    gap = curves(merge_pictures.lines([line([1, 2, None, 2, 1])]))
    assert whole[0].count("M") == 1
    assert gap[0].count("M") == 2
    assert gap[0].count("L") == whole[0].count("L") - 2


@settings(max_examples=8)
@given(st.lists(LOSSES, min_size=2, max_size=5))
def test_any_losses_along_a_line_can_be_drawn_without_a_warning(losses):
    svg = merge_pictures.lines([line(losses)])
    assert all("nan" not in path for path in drawn(svg))
    assert "hold-out loss (nats)" in texts(svg)


def test_a_plane_names_every_model_in_it_and_its_axes():
    written = set(texts(merge_pictures.plane(PLANE)))
    assert {"solo 0", "solo 1", "from solo 0 (0) to solo 1 (1)", "at a right angle, same unit"} <= written


def test_a_plane_without_any_finite_loss_is_no_picture():
    assert merge_pictures.plane(plane_of([[None, None], [None, None]])) == ""


@settings(max_examples=8)
@given(st.lists(LOSSES, min_size=9, max_size=9))
def test_any_losses_on_a_plane_can_be_drawn_without_a_warning(losses):
    svg = merge_pictures.plane(plane_of([losses[:3], losses[3:6], losses[6:]]))
    assert (svg == "") == all(loss is None for loss in losses)
    if svg:
        assert all("nan" not in path for path in drawn(svg))
        assert "hold-out loss (nats)" in texts(svg)


@pytest.mark.parametrize("loss", [0.0, 1.0, 1e30])
def test_a_flat_plane_can_be_drawn(loss):
    assert "solo 0" in texts(merge_pictures.plane(plane_of([[loss] * 3] * 3)))


def test_the_same_numbers_give_the_same_picture():
    assert merge_pictures.plane(PLANE) == merge_pictures.plane(PLANE)
    assert merge_pictures.lines(BOTH) == merge_pictures.lines(BOTH)
