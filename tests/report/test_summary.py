"""The summary: a Markdown table with the numbers of ``results.json``, and no markup that a user typed."""

import re
from dataclasses import replace

from hypothesis import HealthCheck, given, settings, strategies as st

from fourfold.contract.merged import Merged
from fourfold.report import summary
from fourfold.report.results import REFERENCES

KNOWN = {"&amp;", "&lt;", "&gt;", "&quot;", "&apos;", "&nbsp;"}
"""Entities that Kubeflow's page (markdown-to-jsx 6) turns into characters; others it shows as they are."""


def tables(text: str) -> list[list[list[str]]]:
    """The cells of each table, row by row, without the line between head and body."""
    found = []
    for block in re.findall(r"(?:^\|.*\|\n)+", text, re.MULTILINE):
        rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in block.splitlines()]
        assert all(re.fullmatch(r"-+:?", cell) for cell in rows[1])
        assert len({len(row) for row in rows}) == 1
        found.append([rows[0], *rows[2:]])
    return found


def test_it_has_every_scenario_with_its_numbers_in_the_order_of_the_table(run):
    results = run.build()
    (head, *rows), _ = tables(summary.write(results))
    assert head[:4] == ["scenario", "test accuracy", "test loss", "workers"]
    assert [row[0] for row in rows] == list(results["scenarios"])
    for row, scenario in zip(rows, results["scenarios"].values(), strict=True):
        assert row[1] == f"{100 * scenario['accuracy']:.2f} %"
        assert row[2] == f"{scenario['loss']:.4f}"
        counts = ("workers", "stages", "global_batch", "updates_per_epoch")
        assert row[3:7] == [str(scenario[key]) for key in counts]
        assert row[7] == f"{sum(epoch['seconds'] for epoch in scenario['epochs']):.1f} s"
        assert row[8] == f"{scenario['bytes_per_step'] / 1000:.1f} kB"
    assert head[-1] == "sent per step"
    assert {"0.0 kB", "2.0 kB"} == {row[-1] for row in rows}


def test_it_has_every_rule_beside_what_it_is_held_against(run):
    results = run.build()
    _, (_, *rows) = tables(summary.write(results))
    assert [row[0] for row in rows] == [*results["merge"], *(f"*{name}*" for name in REFERENCES.values())]
    assert rows[0] == ["plain_mean", "60.00 %", "1.2000"]
    assert rows[2][1:] == ["80.00 %", "0.2000"]


def test_it_says_what_a_user_should_know_once(run):
    text = summary.write(run.build())
    for sentence in (
        "A sentence of the split", "A sentence of a worker.", "A sentence of the evaluation.",
        "A sentence of the merge.",
    ):  # fmt: skip
        assert text.count(f"- {sentence}\n") == 1
    assert "100 training rows, 12 test rows, split `sizes:60,40` into 60 / 40." in text
    assert f"Data set `{'f' * 12}`, seed 7." in text


def test_a_loss_that_is_none_is_said_in_words(run, change):
    text = summary.write(change(run, "solo", loss=None).build())
    assert text.count("not a number") == 1
    assert "None" not in text
    assert not re.search(r"\bnan\b", text)


def test_what_did_not_run_is_not_in_it(run):
    alone = replace(run.only("sequential"), merged=Merged(0, said=["Nothing."]))
    text = summary.write(alone.build())
    ((_, *rows),) = tables(text)
    assert [row[0] for row in rows] == ["sequential"]
    assert "Merging" not in text
    assert "- Nothing.\n" in text


MARKUP = st.text("<>&|*_`[]\\#! ab\n\t-", max_size=40) | st.text(max_size=40)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(MARKUP, MARKUP, MARKUP)
def test_whatever_a_user_typed_changes_no_table_and_is_no_markup(run, source, rule, sentence):
    typed = replace(
        run,
        manifest=replace(run.manifest, source=source),
        split=replace(run.split, rule=rule, said=[sentence]),
    )
    text = summary.write(typed.build())
    assert [len(table) for table in tables(text)] == [8, 6]
    assert "<" not in text
    assert ">" not in text
    title = text.split("\n", 1)[0].removeprefix("# Every way to split: ")
    assert not set(re.sub(r"\\[^a-zA-Z0-9\s]", "", title)) & set("*_`[]\\|!")


def test_a_name_with_an_underscore_is_readable_in_kubeflows_page(run):
    named = replace(run, manifest=replace(run.manifest, source="/data/my_rows [new]"))
    assert set(re.findall(r"&#?\w+;", summary.write(named.build()))) <= KNOWN


def test_the_same_results_give_the_same_summary(run):
    assert summary.write(run.build()) == summary.write(run.build())
