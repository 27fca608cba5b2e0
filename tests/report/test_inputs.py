"""Where the rows of each scenario came from, as the report says it."""

import re
from dataclasses import replace

import pytest

from fourfold.contract.caching import Caching
from fourfold.report import page


def cells(html: str, name: str) -> list[str]:
    """The cells of a scenario's row in the table of where rows came from."""
    section = html[html.index("Where the rows came from") :]
    row = re.search(rf'<th scope="row">{name}</th>(.*?)</tr>', section)
    assert row is not None
    return re.findall(r"<td>(.*?)</td>", row[1])


def test_rows_are_those_of_all_workers_and_the_wait_that_of_the_slowest(run):
    found = run.build()["scenarios"]["data_parallel"]
    assert found["inputs"] == [
        {"waited": 1.2, "memory": 0, "disk": 100, "store": 0, "fetched": 100_000},
        {"waited": 0.1, "memory": 80, "disk": 0, "store": 20, "fetched": 20_000},
    ]
    assert found["window"] == 0


def test_the_page_says_where_rows_came_from_how_long_steps_waited_and_what_no_cache_would_take(run):
    results = run.build()
    seconds = sum(epoch["seconds"] for epoch in results["scenarios"]["data_parallel"]["epochs"])
    memory, disk, store, fetched, waited, share, without = cells(page.render(results), "data_parallel")
    assert (memory, disk, store) == ("40.00 %", "50.00 %", "10.00 %")
    assert (fetched, waited, without) == ("0.1", "1.300", "2.400")
    assert share == f"{100 * min(1.0, 1.3 / seconds):.2f} %"


def test_the_page_draws_the_wait_of_every_epoch_a_line_a_scenario(run):
    html = page.render(run.build())
    drawn = html[html.index("How long the steps of each scenario waited for rows") :]
    assert "wait for rows (ms)" in drawn
    assert "data_parallel" in drawn


def test_what_reports_of_an_earlier_version_do_not_have_is_not_shown(run, change):
    trained = run.only("sequential").evaluations[0].trained
    old = replace(trained, reports=[replace(report, inputs=[]) for report in trained.reports])
    html = page.render(change(run.only("sequential"), "sequential", trained=old).build())
    assert "Where the rows came from" not in html


@pytest.mark.parametrize(
    ("order", "window", "said"),
    [
        ("rows", 0, "Each epoch deals a worker&#39;s rows anew, an exact permutation."),
        ("rows", 7, "rows anew, among 7 cached batches at a time or more."),
        ("batches", 7, "Each epoch takes cached batches in a new order, the rows within one as they are."),
        ("reverse", 0, "in the same order, backwards."),
        ("list:s3://b/mine.npy", 0, "in the order of s3://b/mine.npy."),
    ],
)
def test_the_page_says_in_which_order_rows_were_taken(run, change, order, window, said):
    trained = run.only("sequential").evaluations[0].trained
    told = replace(
        trained,
        training=replace(trained.training, caching=Caching(order=order)),
        reports=[replace(report, window=window) for report in trained.reports],
    )
    html = page.render(change(run.only("sequential"), "sequential", trained=told).build())
    assert said in html


def test_where_only_some_shards_fit_both_are_said(run, change):
    trained = run.only("solo").evaluations[0].trained
    first, second = trained.reports
    told = replace(trained, reports=[first, replace(second, window=3)])
    html = page.render(change(run.only("solo"), "solo", trained=told).build())
    assert "an exact permutation; among 3 cached batches at a time or more where they do not fit" in html
