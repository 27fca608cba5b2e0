"""The page: whole by itself, readable by people and by screen readers, and safe whatever a user typed."""

import re
from dataclasses import replace

import pytest

from fourfold.contract.records import Merged
from fourfold.report import page
from tests.page.html import Document, needs_nothing_else, references_are_found


@pytest.fixture(scope="module")
def html(run) -> str:
    return page.render(run.build())


def test_its_tags_are_balanced(html):
    assert Document(html).faults == []


def test_the_check_of_tags_sees_a_fault(html):
    assert Document(html.replace("</table>", "", 1)).faults


def test_it_needs_nothing_else(html):
    needs_nothing_else(html)


def test_every_reference_inside_it_is_found_and_every_id_is_one(html):
    references_are_found(html)


def test_it_has_a_language_a_title_and_one_heading(html):
    document = Document(html)

    assert document.all("html")[0]["lang"] == "en"
    assert re.search(r"<title>Fourfold: some pictures, 3 scenarios</title>", html)
    assert len(document.all("h1")) == 1
    assert html.startswith("<!doctype html>")
    assert {"charset": "utf-8"} in document.all("meta")


def test_every_picture_has_a_label(html):
    pictures = Document(html).all("svg")

    assert len(pictures) == 3
    assert {picture["role"] for picture in pictures} == {"img"}
    assert len({picture["aria-label"] for picture in pictures}) == 3
    assert all(picture["aria-label"] for picture in pictures)


def test_every_column_and_row_of_its_tables_has_a_scope(html):
    headings = Document(html).all("th")

    assert headings
    assert {heading.get("scope") for heading in headings} == {"col", "row"}


def test_it_shows_every_scenario_with_its_numbers(html):
    text = Document(html).text

    for name, accuracy in (("sequential", "95.00 %"), ("data_parallel", "94.00 %"), ("solo", "85.00 %")):
        assert f"{name} {accuracy}" in text
    assert "Equal copies, each with a shard; their gradients are averaged at every step." in text
    assert "A sentence of a worker." in text


def test_each_scenario_stands_in_its_corner_of_the_grid(run):
    grid = {
        (corner["splits_data"], corner["splits_model"]): [s["name"] for s in corner["scenarios"]]
        for corner in page._grid(run.build()["scenarios"])
    }

    assert grid == {
        (False, False): ["sequential"], (True, False): ["data_parallel", "solo"],
        (False, True): [], (True, True): [],
    }  # fmt: skip


def test_it_shows_merges_beside_their_references(html):
    text = Document(html).text

    assert "plain_mean 60.00 % 1.2000" in text
    assert "weighted_mean 70.00 % 1.0000" in text
    assert "best solo (chosen by hold-out rows) 80.00 % 0.2000" in text
    assert "soft vote of the solos 93.00 % 0.3000" in text
    assert "A sentence of the merge." in text


def test_it_shows_rows_of_each_class_at_each_worker(html):
    """A skewed split is seen (W10)."""
    document = Document(html)

    for word in ("worker 0", "worker 1", "cat", "dog", "41", "19", "23", "17"):
        assert word in document.texts, word
    assert "60, 40 rows." in document.text
    assert "A sentence of the split." in document.text


def test_it_shows_what_made_the_run(run, html):
    text = Document(html).text

    for name, value in run.arguments.items():
        assert f"{name} {value}" in text
    for digest in (
        "f" * 32,
        "sequential-digest-0",
        "data_parallel-digest-0",
        "solo-digest-0",
        "solo-digest-1",
    ):
        assert digest in text
    assert "keras 3.15.1" in text
    assert "cpu a CPU" in text


EVIL = '<script>alert("1")</script><img src=x onerror=alert(1)>'


def test_what_a_user_typed_is_shown_and_never_run(run):
    evil = replace(
        run,
        arguments={"data": EVIL, EVIL: "name"},
        manifest=replace(run.manifest, source=EVIL, class_names=[EVIL, "$\\frac$"]),
        split=replace(run.split, rule=EVIL, said=[EVIL]),
        merged=replace(run.merged, said=[EVIL]),
    )

    html = page.render(evil.build())

    document = Document(html)
    assert document.faults == []
    assert document.all("script") == document.all("img") == []
    assert document.text.count("<script>alert(") >= 6
    assert "$\\frac$" in document.texts


@pytest.mark.parametrize("scenario", ["solo", "sequential"])
def test_a_loss_that_is_none_is_said_in_words(run, change, scenario):
    html = page.render(change(run, scenario, loss=None).build())

    assert Document(html).text.count("not a number") == 1
    assert "None" not in html


def test_one_scenario_alone_is_a_page_too(run):
    alone = replace(
        run.without("solo").without("data_parallel"), merged=Merged(0, said=["Nothing to merge."])
    )

    document = Document(page.render(alone.build()))

    assert document.faults == []
    assert "One model, 1 way to split the training" in document.text
    assert "Nothing to merge." in document.text
    assert "plain_mean" not in document.text


def test_the_same_results_give_the_same_page(run):
    assert page.render(run.build()) == page.render(run.build())
