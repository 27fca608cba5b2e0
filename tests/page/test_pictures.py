"""Pictures: SVG that stands in a page, takes its colours from it, and shows every line and bar."""

import re
import xml.etree.ElementTree as ElementTree

import pytest
from hypothesis import given, settings, strategies as st

from fourfold.page import pictures, training_pictures

SVG = "{http://www.w3.org/2000/svg}"
NAMES = ["sequential", "data_parallel", "solo"]
NUMBERS = st.floats(0, 1e6)


def model(*epochs: tuple[float, float]) -> dict:
    return {"epochs": [{"loss": loss, "accuracy": accuracy} for loss, accuracy in epochs]}


def texts(svg: str) -> list[str]:
    """What is written in a picture; it is XML by itself."""
    return ["".join(element.itertext()) for element in ElementTree.fromstring(svg).iter(f"{SVG}text")]


PICTURES = {
    "curves": lambda: pictures.curves({"sequential": {"models": [model((2.3, 0.1), (1.0, 0.7))]}}),
    "accuracies": lambda: pictures.accuracies([("solo 0", 0.5, "a trained model"), ("vote", 1.0, "a vote")]),
    "classes": lambda: pictures.classes([[3, 0], [1, 2]], ["cat", "dog"]),
    "distances": lambda: training_pictures.distances("trio", [0, 9], [[0, 1], [0, 2]], [[1, 2], [3, 4]]),
    "rounds": lambda: training_pictures.rounds("turns", [2.0, None], [0.5, 0.25]),
    "lanes": lambda: training_pictures.lanes("line", [(0, 0.0, 0.001), (1, 0.001, 0.003)]),
    "lanes of another": lambda: training_pictures.lanes("net", [(0, 0.0, 0.001)]),
}
every_picture = pytest.mark.parametrize("draw", PICTURES.values(), ids=PICTURES)


@every_picture
def test_a_picture_is_one_svg_element_with_a_label_for_those_who_do_not_see_it(draw):
    root = ElementTree.fromstring(draw())
    assert root.tag == f"{SVG}svg"
    assert root.attrib["role"] == "img"
    assert len(root.attrib["aria-label"]) > 10
    assert "viewBox" in root.attrib
    assert not {"width", "height"} & set(root.attrib)


@every_picture
def test_a_picture_takes_its_colours_from_the_page(draw):
    svg = draw()
    assert "currentColor" in svg
    assert not re.search(r"#000000|#ffffff|:\s*black|:\s*white", svg)


@every_picture
def test_a_picture_needs_nothing_else(draw):
    svg = re.sub(r'xmlns(:\w+)?="[^"]*"', "", draw())
    assert "http" not in svg
    assert "<script" not in svg
    assert "<metadata" not in svg
    assert set(re.findall(r"url\((.)", svg)) <= {"#"}


@every_picture
def test_the_same_numbers_give_the_same_picture(draw):
    assert draw() == draw()


def test_two_pictures_of_one_page_have_no_id_in_common():
    ids = [set(re.findall(r'\sid="([^"]*)"', draw())) for draw in PICTURES.values()]
    assert sum(map(len, ids)) == len(set.union(*ids))


def test_every_model_has_a_name_in_the_curves():
    scenarios = {
        "sequential": {"models": [model((2.0, 0.1))]},
        "solo": {"models": [model((2.0, 0.2)), model((1.9, 0.3))]},
    }
    assert {"sequential", "solo 0", "solo 1"} <= set(texts(pictures.curves(scenarios)))


@pytest.mark.parametrize("epochs", [1, 2, 5, 7, 40])
def test_epochs_on_the_axis_are_whole(epochs):
    svg = pictures.curves({"solo": {"models": [model(*[(1.0, 0.5)] * epochs)]}})
    written = texts(svg)
    axis = written[: written.index("epoch")]
    assert axis
    assert all(re.fullmatch(r"\d+", text) for text in axis)


@settings(max_examples=8)
@given(st.lists(st.tuples(NUMBERS, st.floats(0, 1)), min_size=1, max_size=4))
def test_any_finite_numbers_can_be_drawn_without_a_warning(epochs):
    svg = pictures.curves({name: {"models": [model(*epochs)]} for name in NAMES})
    assert "nan" not in re.findall(r'd="([^"]*)"', svg)
    assert set(NAMES) <= set(texts(svg))


def test_more_scenarios_than_colours_are_drawn_all():
    names = [f"way {number}" for number in range(9)]
    svg = pictures.curves({name: {"models": [model((1.0, 0.5))]} for name in names})
    assert set(names) <= set(texts(svg))


def test_the_names_of_many_models_hide_no_curve():
    """Eleven lines, as seven scenarios draw: their names stand below both axes."""
    scenarios = {f"way {number}": {"models": [model((1.0, 0.5))] * (number + 1)} for number in range(4)}
    root = ElementTree.fromstring(pictures.curves(scenarios))
    lines = {}
    for element in root.iter(f"{SVG}text"):
        lines.setdefault("".join(element.itertext()), []).append(element)

    def bottom(text: str) -> float:
        found = lines[text][-1]
        x_y = re.search(r"translate\([-\d.]+ ([-\d.]+)\)", found.attrib.get("transform", ""))
        return float(x_y[1] if x_y else found.attrib["y"])

    names = [text for text in lines if text.startswith("way")]
    assert len(names) == 10
    assert all(bottom(name) > bottom("epoch") for name in names)
    height = float(root.attrib["viewBox"].split()[3])
    assert all(bottom(name) < height for name in names)


def test_bars_say_their_label_their_accuracy_and_their_kind():
    written = texts(PICTURES["accuracies"]())
    assert {"solo 0", "50.0 %", "a trained model", "vote", "100.0 %", "a vote"} <= set(written)


def test_squares_say_how_many_rows_of_each_class_a_worker_has():
    written = texts(PICTURES["classes"]())
    assert {"worker 0", "worker 1", "cat", "dog"} <= set(written)
    assert [text for text in written if text.isdigit()] == ["3", "0", "1", "2"]


def test_a_split_without_rows_can_be_drawn():
    assert "worker 0" in texts(pictures.classes([[0, 0]], ["cat", "dog"]))


@pytest.mark.parametrize("name", ["$\\frac$", "<b>&amp;", 'a"b', "ß é"])
def test_a_name_is_drawn_as_it_is(name):
    assert name in texts(pictures.classes([[1]], [name]))
    assert name in texts(pictures.accuracies([(name, 0.5, "a vote")]))
