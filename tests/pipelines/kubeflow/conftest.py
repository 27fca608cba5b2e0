"""A server of Kubeflow Pipelines, with one user or several, and the place of a token."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.pipelines.kubeflow.fake_kubeflow import FakeKubeflow

TOKEN = "eyJ-not-for-eyes.of-anyone_else"


@pytest.fixture(autouse=True)
def no_token_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KF_PIPELINES_SA_TOKEN_PATH", raising=False)


@pytest.fixture
def kubeflow() -> Iterator[FakeKubeflow]:
    with FakeKubeflow() as found:
        yield found


@pytest.fixture
def several_users() -> Iterator[FakeKubeflow]:
    with FakeKubeflow(users={TOKEN: {"alice"}}, prefix="/pipeline") as found:
        yield found


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    path = tmp_path / "token"
    path.write_text(f"{TOKEN}\n")
    return path
