"""The page: whole by itself, readable by people and by screen readers, and safe whatever a user typed."""

import re
from dataclasses import replace

import pytest

from fourfold.contract import plan as plans
from fourfold.contract.merged import Merged
from fourfold.contract.records import Busy
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
    assert re.search(r"<title>Fourfold: some pictures, 7 scenarios</title>", html)
    assert len(document.all("h1")) == 1
    assert html.startswith("<!doctype html>")
    assert {"charset": "utf-8"} in document.all("meta")


def test_every_picture_has_a_label(html):
    pictures = Document(html).all("svg")

    assert {picture["role"] for picture in pictures} == {"img"}
    assert [picture["aria-label"] for picture in pictures] == [
        "Test accuracy of every scenario, model and merge",
        "Training loss and accuracy of every model by epoch",
        "Distance between the models of ensemble by step",
        "Loss and distance to the merge of federated by round",
        "Stages of pipeline at work during one step",
        "Stages of hybrid at work during one step",
        "How long the steps of each scenario waited for rows, by epoch",
        "Rows of each class at each worker",
    ]


def test_every_column_and_row_of_its_tables_has_a_scope(html):
    headings = Document(html).all("th")

    assert headings
    assert {heading.get("scope") for heading in headings} == {"col", "row"}


def test_it_shows_every_scenario_with_its_numbers(html):
    text = Document(html).text

    for name, numbers in (
        ("sequential", "95.00 % 0.0500 1 1 1"), ("data_parallel", "94.00 % 0.0600 2 1 1"),
        ("ensemble", "93.00 % 0.3000 3 3 1"), ("pipeline", "92.00 % 0.0800 1 1 2"),
        ("hybrid", "91.00 % 0.0900 2 1 2"), ("solo", "85.00 % 0.1500 2 2 1"),
        ("federated", "89.00 % 0.1100 2 1 1"),
    ):  # fmt: skip
        assert f"{name} {numbers}" in text
    assert all(plans.scenario(name).meaning in text for name in plans.names())
    assert "A sentence of a worker." in text
    assert "A sentence of the evaluation." in text


def test_it_shows_what_a_step_sends_and_the_memory_of_the_largest_worker(run, change_reports):
    text = Document(page.render(run.only("hybrid").build())).text
    assert re.search(r"hybrid 91\.00 % [\d. ,]+ 2\.0 401 ", text)

    unmeasured = change_reports(run.only("hybrid"), "hybrid", peak_memory=0)
    assert "2.0 not measured" in Document(page.render(unmeasured.build())).text


def test_it_says_whose_accuracy_it_is_where_there_are_several_models(html):
    text = Document(html).text

    assert text.count("Accuracy and loss are those of its models' vote.") == 1
    assert text.count("Accuracy and loss are the mean of its models.") == 1


def test_each_scenario_stands_in_its_corner_of_the_grid(run):
    grid = {
        (corner["splits_data"], corner["splits_model"]): [s["name"] for s in corner["scenarios"]]
        for corner in page._grid(run.build()["scenarios"])
    }

    assert grid == {
        (False, False): ["sequential", "ensemble"], (True, False): ["data_parallel", "solo", "federated"],
        (False, True): ["pipeline"], (True, True): ["hybrid"],
    }  # fmt: skip


def test_it_says_that_an_ensemble_is_not_data_parallelism(run, html):
    said = "ensemble is not data parallelism: its members all see all rows."

    assert said in Document(html).text
    assert "is not data parallelism" not in page.render(run.only("sequential", "solo").build())


def test_it_shows_how_far_apart_members_are_and_what_their_vote_gains(html):
    document = Document(html)

    assert "Ensemble: how far apart its members are" in document.text
    assert "a mean over 64 rows" in document.text
    assert "it gets 93.00 % of the test rows right, its members alone 86.00 % to 88.00 %." in document.text
    assert {"0 and 1", "0 and 2", "1 and 2"} <= set(document.texts)


def test_it_shows_rounds(html):
    text = Document(html).text

    assert "Federated: its rounds" in text
    assert "(5 of each worker)" in text


def test_it_says_how_long_stages_were_at_work_at_once(html):
    text = Document(html).text

    assert text.count("at work at once for 12.5 % of the time in which any was: 0.50 of 4.00 ms.") == 2
    assert "no speed-up is claimed" not in text
    assert "Cut into 2 stages after pool; each batch in 4 parts." in text


@pytest.mark.parametrize(
    ("busy", "said"),
    [
        ([Busy(0, 0.0, 0.002), Busy(1, 0.002, 0.004)], "at the same instant: no speed-up is claimed."),
        ([], "was not measured, and no speed-up is claimed."),
    ],
)
def test_no_speed_up_is_claimed_for_stages_that_take_turns_or_share_a_device(run, change_reports, busy, said):
    shares = "Its stages share a device."
    turns = change_reports(run.only("pipeline"), "pipeline", busy=busy, said=[shares])

    document = Document(page.render(turns.build()))

    section = document.text.split("Stages at work")[1]
    assert said in section
    assert shares in section
    assert len(document.all("svg")) == 4 + bool(busy)


def test_it_says_that_copies_stay_equal_and_how_far_they_would_have_gone(run, change_reports):
    text = Document(page.render(run.only("hybrid").build())).text
    assert "once worker 0's were copied to all, was 0 exactly; before, it was 1.5e-08 at most." in text

    apart = change_reports(run.only("hybrid"), "hybrid", distance=0.25, drift=None)
    assert "was 0.25, and should be 0." in Document(page.render(apart.build())).text


def test_it_says_what_merging_cost_and_where_a_training_went_on(run, change_reports):
    text = Document(page.render(change_reports(run.only("hybrid"), "hybrid", resumed=[2, 4]).build())).text

    assert "Merging took 20 % of a step." in text
    assert "It went on from its checkpoint of epoch 2, 4." in text


def test_what_is_not_there_has_no_section(run):
    text = Document(page.render(run.only("sequential", "solo").build())).text

    for heading in ("how far apart", "its rounds", "Stages at work", "Merging took", "copied to all"):
        assert heading not in text


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


def test_what_a_user_typed_is_shown_and_never_run(run, change_reports):
    evil = replace(
        change_reports(run.only("pipeline"), "pipeline", said=[EVIL], cut=[EVIL]),
        arguments={"data": EVIL, EVIL: "name"},
        manifest=replace(run.manifest, source=EVIL, class_names=[EVIL, "$\\frac$"]),
        split=replace(run.split, rule=EVIL, said=[EVIL]),
        merged=replace(run.merged, said=[EVIL]),
    )

    html = page.render(evil.build())

    document = Document(html)
    assert document.faults == []
    assert document.all("script") == document.all("img") == []
    assert document.text.count("<script>alert(") >= 9
    assert "$\\frac$" in document.texts


@pytest.mark.parametrize("scenario", ["solo", "sequential"])
def test_a_loss_that_is_none_is_said_in_words(run, change, scenario):
    html = page.render(change(run.only("solo", "sequential"), scenario, loss=None).build())

    assert Document(html).text.count("not a number") == 1
    assert "None" not in html


def test_one_scenario_alone_is_a_page_too(run):
    alone = replace(run.only("sequential"), merged=Merged(0, said=["Nothing to merge."]))

    document = Document(page.render(alone.build()))

    assert document.faults == []
    assert "One model, 1 way to split the training" in document.text
    assert "Nothing to merge." in document.text
    assert "plain_mean" not in document.text


def test_the_same_results_give_the_same_page(run, html):
    assert page.render(run.build()) == html
