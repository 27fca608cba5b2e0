"""What the report says of merging models that were trained apart, and what of a run that merges nothing."""

import json
import re
from dataclasses import asdict, replace

import pytest

from fourfold.contract.merged import Gate, Line, Merged, RuleTold, Slice
from fourfold.contract.records import ModelScore
from fourfold.contract.strict import from_json, to_json
from fourfold.report import page
from tests.page.html import Document, needs_nothing_else, references_are_found

CHOSEN = "weight_matching,sequential_regmean"
REFIT = "weight_matching,head_refit"
ADDED = ("told", "lines", "slice", "gate", "causes")
"""Fields that records of merges did not have at first."""


@pytest.fixture(scope="module")
def merging(run):
    """A run of which everything is known that a merge can tell."""
    merged = Merged(
        members=2,
        rules={
            "plain_mean": ModelScore(0.6, 1.2, 0.61, 1.1, "p"),
            CHOSEN: ModelScore(0.89, 0.4, 0.88, 0.41, "c"),
            REFIT: ModelScore(0.91, None, 0.9, 0.3, "h"),
        },
        said=["A sentence of the merge."],
        told=[
            RuleTold("plain_mean", [], 0, 0, 0.25, False, [0.31, 0.9]),
            RuleTold(CHOSEN, ["sums that sites answer with"], 5, 12_340_000, 3.5, False, [0.93, 0.85]),
            RuleTold(REFIT, ["own labels"], 22, 1_500_000, 1.25, True, [0.92, 0.9], ["It trained."]),
        ],
        lines=[
            Line([0, 1], False, [1.0, None, 1.0], [0.7, 0.1, 0.8], 2.5),
            Line([0, 1], True, [1.0, 1.2, 1.0], [0.7, 0.6, 0.8], 0.2),
        ],
        slice=Slice(
            [0.0, 0.5, 1.0],
            [0.0, 0.5],
            [[1.0, None, 2.0], [1.5, 1.0, 3.0]],
            {"solo 0": [0.0, 0.0], "solo 1": [1.0, 0.0]},
        ),
        gate=Gate(CHOSEN, 0.88, 0.85, 0.9, 0.01, "merged", 50),
        causes=["Between solo 0 and solo 1 there is a ridge.", "Shards lack classes (shard 0: cat)."],
    )
    return replace(run, merged=merged)


def section(html: str) -> str:
    """The part of a page that is on merging."""
    begin = html.index("<h2>Merging the models that were trained apart</h2>")
    return html[begin : html.index("<h2>", begin + 4)]


def cells(html: str, rule: str) -> list[str]:
    """The cells of a rule's row, the first of which is its name."""
    for row in re.findall(r"<tr>(.*?)</tr>", section(html)):
        found = [re.sub(r"<[^>]+>", "", cell) for cell in re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row)]
        if found[0].split(" (")[0] == rule:
            return found
    raise AssertionError(f"no row of {rule}")


def test_results_have_what_each_rule_took_by_its_name(merging):
    found = merging.build()["merge_rules"]
    assert list(found) == ["plain_mean", CHOSEN, REFIT]
    assert found[CHOSEN] == {
        "needs": ["sums that sites answer with"],
        "exchanges": 5,
        "sent": 12_340_000,
        "seconds": 3.5,
        "trains": False,
        "classes": [0.93, 0.85],
        "said": [],
    }
    assert [each["trains"] for each in found.values()] == [False, False, True]


def test_results_have_the_lines_the_plane_and_the_gate_as_they_were_measured(merging):
    found = merging.build()
    assert found["merge_lines"] == [asdict(line) for line in merging.merged.lines]
    assert found["merge_slice"]["losses"][0] == [1.0, None, 2.0]
    assert found["merge_slice"]["points"] == {"solo 0": [0.0, 0.0], "solo 1": [1.0, 0.0]}
    assert (found["gate"]["rule"], found["gate"]["handed_on"], found["gate"]["rows"]) == (
        CHOSEN,
        "merged",
        50,
    )


def test_results_are_strict_json_also_where_a_loss_is_not_finite(merging):
    assert json.loads(to_json(merging.build()))["merge_lines"][0]["losses"][1] is None


def test_causes_come_before_what_else_is_said(merging):
    assert merging.build()["merge_said"] == [*merging.merged.causes, "A sentence of the merge."]


def test_the_page_shows_exchanges_bytes_seconds_and_the_worst_class_of_each_rule(merging):
    html = page.render(merging.build())
    assert cells(html, "plain_mean")[1:] == ["60.00 %", "1.2000", "31.00 %", "0", "0.00", "0.25"]
    assert cells(html, CHOSEN.replace(",", ", "))[3:] == ["85.00 %", "5", "12.34", "3.50"]
    assert cells(html, REFIT.replace(",", ", "))[3:] == ["90.00 %", "22", "1.50", "1.25"]


def test_the_page_says_which_rule_trains_and_which_is_at_the_gate(merging):
    html = page.render(merging.build())
    assert cells(html, REFIT.replace(",", ", "))[0].endswith("(trains)")
    assert cells(html, CHOSEN.replace(",", ", "))[0].endswith("(the one at the gate)")
    assert section(html).count("(trains)") == section(html).count("(the one at the gate)") == 1


def test_the_page_says_why_the_mean_is_as_it_is(merging):
    told = Document(page.render(merging.build())).text
    for sentence in (*merging.merged.causes, "A sentence of the merge."):
        assert sentence in told


def test_references_have_no_exchanges(merging):
    row = cells(page.render(merging.build()), "best solo")
    assert row[1:] == ["80.00 %", "0.2000", "", "", "", ""]


def test_the_page_draws_the_lines_and_the_plane(merging):
    pictures = [picture["aria-label"] for picture in Document(page.render(merging.build())).all("svg")]
    assert "Loss and accuracy along the line between two solo models" in pictures
    assert "Loss on a plane through the solo models" in pictures


def test_a_plane_without_a_finite_loss_is_not_shown(merging):
    flat = replace(merging.merged.slice, losses=[[None] * 3] * 2)
    html = page.render(replace(merging, merged=replace(merging.merged, slice=flat)).build())
    assert "The loss on the plane" not in html
    assert "Between the first two solo models" in html


def test_the_page_with_merges_is_whole(merging):
    html = page.render(merging.build())
    assert Document(html).faults == []
    needs_nothing_else(html)
    references_are_found(html)


def test_what_is_said_of_a_merge_is_no_markup(merging):
    typed = replace(merging.merged, causes=["<script>alert(1)</script>"])
    assert "<script>alert" not in page.render(replace(merging, merged=typed).build())


def test_a_run_without_a_merge_has_none_of_it(run):
    alone = replace(run.only("sequential"), merged=Merged(0))
    found = alone.build()
    assert (found["merge"], found["merge_rules"], found["merge_lines"]) == ({}, {}, [])
    assert (found["merge_slice"], found["gate"], found["merge_said"]) == (None, None, [])
    html = page.render(found)
    assert Document(html).faults == []
    assert "<table" not in section(html)
    assert "<svg" not in section(html)
    assert "at the gate" not in html


def test_older_records_of_merges_are_read_and_shown(run, merging):
    old = {key: value for key, value in asdict(merging.merged).items() if key not in ADDED}
    merged = from_json(Merged, json.dumps(old), "merged.json")
    assert merged == Merged(2, merging.merged.rules, ["A sentence of the merge."])
    html = page.render(replace(run, merged=merged).build())
    assert Document(html).faults == []
    assert cells(html, "plain_mean")[1:] == ["60.00 %", "1.2000", "", "", "", ""]
    assert "<svg" not in section(html)


def test_a_record_is_the_same_when_it_is_read_back(merging):
    assert from_json(Merged, to_json(merging.merged)) == merging.merged
