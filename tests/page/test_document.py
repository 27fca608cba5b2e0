"""The frame that all pages share: filled strictly, escaped, and enough by itself."""

import sys
from pathlib import Path

import jinja2
import pytest
from hypothesis import example, given, strategies as st

from fourfold.page import document
from tests.page.html import Document, needs_nothing_else

PACKAGE = "a_step_of_the_tests"
TEMPLATE = """{% extends "base.html" %}
{% block title %}{{ title }}{% endblock %}
{% block main %}
<h1>{{ title }}</h1>
<p>{{ share | percent }}; {{ loss | nats }}; {{ rows | digits }}</p>
{% endblock %}
"""


@pytest.fixture(scope="module", autouse=True)
def package(tmp_path_factory):
    """A room with a template, as a step is one."""
    folder: Path = tmp_path_factory.mktemp("room")
    (folder / PACKAGE / "templates").mkdir(parents=True)
    (folder / PACKAGE / "__init__.py").touch()
    (folder / PACKAGE / "templates" / "page.html").write_text(TEMPLATE)
    sys.path.insert(0, str(folder))
    yield
    sys.path.remove(str(folder))
    sys.modules.pop(PACKAGE, None)


def render(**values: object) -> str:
    usual = {"title": "a title", "share": 0.5, "loss": 1.0, "rows": 1}
    return document.render(PACKAGE, "page.html", **{**usual, **values})


def test_a_page_is_a_whole_document_that_needs_nothing_else():
    html = render()
    assert html.startswith("<!doctype html>")
    assert Document(html).faults == []
    assert Document(html).all("html")[0]["lang"] == "en"
    assert {"charset": "utf-8"} in Document(html).all("meta")
    needs_nothing_else(html)


def test_the_check_of_what_a_page_needs_sees_each_kind():
    for evil in (
        '<script>1</script>', '<img src="http://a/b.png">', '<link rel="stylesheet" href="a.css">',
        '<p style="background: url(a.png)">', '<a href="https://a">a</a>', '<p onclick="a()">',
        "<style>@import 'a'</style>",
    ):  # fmt: skip
        with pytest.raises(AssertionError):
            needs_nothing_else(render().replace("</main>", f"{evil}</main>"))


@given(st.text("<>&;\"'/!-=ab ") | st.text(st.characters(exclude_categories=["Cs", "Cc"])))
@example("<script>alert(1)</script>")
@example("&lt;b&gt; </h1>")
def test_whatever_a_title_holds_it_is_text(title):
    found = Document(render(title=title))
    assert found.faults == []
    assert found.all("script") == []
    assert [element for element in found.elements if element[0] == "h1"] == [("h1", {})]
    assert " ".join(title.split()) in " ".join(" ".join(found.texts).split())


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"share": 0.98765}, "98.77 %"),
        ({"share": 0}, "0.00 %"),
        ({"share": 1}, "100.00 %"),
        ({"share": None}, "not a number"),
        ({"loss": 0.12345}, "0.1235"),
        ({"loss": None}, "not a number"),
        ({"rows": 1234567}, "1,234,567"),
    ],
)
def test_numbers_are_written_for_people(values, said):
    assert said in Document(render(**values)).text
    assert "None" not in render(**values)


def test_a_name_that_nobody_gives_is_an_error():
    with pytest.raises(jinja2.UndefinedError, match="'share' is undefined"):
        document.render(PACKAGE, "page.html", title="a", loss=1.0, rows=1)


def test_a_template_that_is_not_there_is_an_error():
    with pytest.raises(jinja2.TemplateNotFound):
        document.render(PACKAGE, "other.html")


def test_the_same_values_give_the_same_page():
    assert render() == render()
