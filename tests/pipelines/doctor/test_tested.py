"""How a version stands to those that were tested; and that the README says the same versions."""

import re
from pathlib import Path

import pytest

from fourfold_pipelines.doctor.tested import TESTED, check

README = Path(__file__).parents[3] / "README.md"


@pytest.mark.parametrize(
    ("what", "version"),
    [
        ("Kubernetes", "v1.34.4"),
        ("Kubernetes", "1.34"),
        ("Kubernetes", "1.34.4+k3s1"),
        ("Kubernetes", "v1.34.1-eks-3025e55"),
        ("training operator", "1.8"),
        ("training operator", "v1.8.1"),
        ("Python", "3.11.7"),
    ],
)
def test_a_version_that_begins_like_a_tested_one_is_well(what, version):
    found = check(what, version)

    assert found.level == "ok"
    assert found.said == f"{what} {version.removeprefix('v')}"


@pytest.mark.parametrize(
    ("what", "version"),
    [
        ("training operator", "1.80"),
        ("training operator", "1.80.1"),
        ("training operator", "v1.9"),
        ("Kubernetes", "v1.3"),
        ("Kubernetes", "v1.35.0"),
        ("Kubernetes", "11.34.0"),
        ("Kubernetes", "of unknown version"),
        ("Python", "3.1"),
        ("Python", "3.110"),
    ],
)
def test_any_other_version_is_told_with_those_that_were_tested(what, version):
    found = check(what, version)

    assert found.level == "warn"
    assert version.removeprefix("v") in found.said
    assert all(tested in found.said for tested in TESTED[what])
    assert found.do


def test_each_tested_version_is_well_itself():
    for what, versions in TESTED.items():
        assert versions
        assert all(check(what, version).level == "ok" for version in versions)


def test_the_table_of_the_readme_names_exactly_these_versions():
    parts = README.read_text().split("\n## Tested versions\n")
    assert len(parts) == 2, "README.md has one heading `## Tested versions`"
    rows = re.findall(r"^\| *([^|`]+?) *\|([^|]*)\|", parts[1].partition("\n## ")[0], re.MULTILINE)
    found = {what: tuple(re.findall(r"`([^`]+)`", versions)) for what, versions in rows if "`" in versions}

    assert found == TESTED
