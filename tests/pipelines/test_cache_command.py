"""``fourfold cache``: what it lists, finds and prunes, and what it refuses."""

import json
import os
import time

import pytest
from click.testing import CliRunner

from fourfold.cache import leases
from fourfold.cache.disk import DiskTier
from fourfold.contract import exits, keys
from fourfold.contract.caching import Caching
from fourfold.contract.strict import to_json
from fourfold.prepare.step import prepare
from fourfold.store.objects import open_store
from fourfold_pipelines.cli import cache as cache_cli, main

DAY = 24 * 3600.0


@pytest.fixture
def store(tmp_path, monkeypatch):
    monkeypatch.setenv("FOURFOLD_STORE", str(tmp_path / "store"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("FOURFOLD_CACHE", raising=False)
    return open_store(str(tmp_path / "store"))


@pytest.fixture
def made(store):
    """Fingerprints of two data sets: one is used now, one was used ten days ago."""
    found = [
        prepare(store.uri, rows=50, holdout=10, caching=Caching(batch_rows=size)).manifest.fingerprint
        for size in (10, 20)
    ]
    long_ago = time.time() - 10 * DAY
    old = store.read(keys.dataset_manifest(found[1]))
    store.write(keys.dataset_manifest(found[1]), json.dumps(json.loads(old) | {"created": long_ago}).encode())
    store.delete(keys.lease(found[1], leases.PREPARED))
    store.write(keys.used(found[1]), to_json(leases.Mark(long_ago)))
    return found


def cache(*arguments):
    return CliRunner().invoke(main, ["cache", *arguments])


def test_an_empty_store_is_said_kindly(store):
    assert "holds no data sets yet; `fourfold run` makes one" in cache("list").output
    assert json.loads(cache("list", "--json").output)["datasets"] == []


def test_a_listing_says_what_there_is_and_who_reads_it(store, made):
    said = cache("list").output
    for fingerprint in made:
        assert fingerprint[:12] in said
    assert "10 days ago" in said
    assert "just now" in said
    assert "a run that has prepared it" in said
    now, old = json.loads(cache("list", "--json").output)["datasets"]
    assert [now["fingerprint"], old["fingerprint"]] == made
    assert (now["rows"], now["batches"]) == ({"train": 50, "holdout": 10, "test": 2000}, 206)
    assert now["bytes"] > 2060 * 784 * 4
    assert old["readers"] == []


def test_verify_finds_what_is_damaged_and_ends_with_an_error(store, made):
    assert cache("verify").exit_code == 0
    key = keys.batch(made[1], "test", 3)
    store.write(key, store.read(key)[:-1])
    result = cache("verify")
    assert result.exit_code == exits.INVALID_INPUT
    assert f"{key} in {store.uri} is damaged" in result.output
    assert "1 data set whole, 1 not" in result.output
    assert "1 data set is not whole: the next run that needs it writes it anew" in result.output
    assert cache("verify", made[0][:6]).exit_code == 0


def test_a_name_that_is_not_there_or_not_one_is_refused_with_those_that_are(store, made):
    result = cache("verify", "zzz")
    assert result.exit_code == exits.INVALID_INPUT
    assert f"no data set begins with 'zzz' in {store.uri}" in result.output
    assert made[0][:12] in result.output
    assert "several data sets begin with ''" in cache("verify", "").output


def test_prune_by_use_takes_what_was_not_used_and_says_what_stays(store, made):
    result = cache("prune", "--unused-for", "7d", "--dry-run")
    assert f"{made[1][:12]} would go" in result.output
    assert cache("verify").exit_code == 0
    result = cache("prune", "--unused-for", "7d")
    assert result.exit_code == 0, result.output
    assert f"{made[1][:12]} is gone" in result.output
    assert store.folders(keys.DATASETS) == [made[0]]
    result = cache("prune", "--max-size", "1")
    assert f"{made[0][:12]} stays: read by a run that has prepared it" in result.output
    assert store.folders(keys.DATASETS) == [made[0]]


def test_the_disk_tier_is_listed_and_pruned_too(store, made, tmp_path):
    folder = tmp_path / "home" / "fourfold" / "batches"
    tier = DiskTier(str(folder), 10**6)
    for name in ("aaaa", "bbbb"):
        tier.put(keys.batch(name, "train", 0), b"x" * 1000)
        with tier.held(name):
            pass
    os.utime(folder / keys.dataset("aaaa") / "held", (1, 1))
    assert "on disk: aaaa 1.0 kB" in cache("list").output
    assert {each["fingerprint"] for each in json.loads(cache("list", "--json").output)["disk"]} == {
        "aaaa",
        "bbbb",
    }
    with tier.held("aaaa"):
        os.utime(folder / keys.dataset("aaaa") / "held", (1, 1))
        cache("prune", "--unused-for", "7d")
        assert set(tier.datasets()) == {"aaaa", "bbbb"}
    os.utime(folder / keys.dataset("aaaa") / "held", (1, 1))
    said = cache("prune", "--unused-for", "7d", "--dry-run").output
    assert "on disk: aaaa would go: 1.0 kB" in said
    assert "1.0 kB in the disk tier here" in said
    assert set(tier.datasets()) == {"aaaa", "bbbb"}
    assert "1.0 kB in the disk tier here" in cache("prune", "--unused-for", "7d").output
    assert set(tier.datasets()) == {"bbbb"}


def test_without_a_terminal_lines_say_how_far_it_is(store, made, monkeypatch):
    monkeypatch.setattr(cache_cli, "PLAIN_SECONDS", 0.0)
    said = cache("verify", made[0]).stderr.splitlines()
    assert f"verify {made[0][:12]}: 1 of 206" in said
    assert f"verify {made[0][:12]}: 206 of 206" in said
    assert f"prune {made[1][:12]}: " in cache("prune", "--unused-for", "7d").stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("prune",), "say what may go: --older-than 30d, --unused-for 7d or --max-size 5Gi"),
        (
            ("prune", "--older-than", "soon"),
            "--older-than 'soon' is no age: give one such as 90m, 12h, 30d or 4w",
        ),
        (("prune", "--unused-for", "-3d"), "--unused-for '-3d' is no age"),
        (("prune", "--max-size", "big"), "'big' is no number of bytes"),
        (("list", "--store", "ftp://x/y"), "has the scheme 'ftp'"),
    ],
)
def test_wrong_words_are_refused_with_right_ones(store, arguments, said):
    result = cache(*arguments)
    assert result.exit_code == exits.INVALID_INPUT
    assert said in result.output.replace("\n", " ")


@pytest.mark.parametrize("command", [(), ("list",), ("verify",), ("prune",)])
def test_every_help_has_examples(command):
    assert "fourfold cache" in cache(*command, "--help").output.split("Examples:")[1]


def test_measuring_prints_a_table_and_writes_a_page(store, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    stores = ("--store", str(tmp_path / "one"), "--store", str(tmp_path / "two"))
    result = cache("measure", "--rows", "300", "--epochs", "2", "--batch", "64", *stores)
    assert result.exit_code == 0, result.output
    page = (tmp_path / "cache.html").read_text()
    for name in ("one", "two"):
        uri = (tmp_path / name).as_uri()
        assert f"{uri}: 5 batches at " in result.output
        assert f"{uri}, with the cache" in page
    assert "<svg" in page
    assert "300 rows read in batches of 64, 2 epochs" in page
