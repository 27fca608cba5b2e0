"""What a doctor told, as lines that can be compared with those on a cluster that is well."""

import os
import re
from dataclasses import dataclass
from pathlib import Path

import pytest
from click.testing import CliRunner
from kubernetes.config import kube_config

from fourfold_pipelines.cli import main
from tests.conftest import NAMESPACE

OURS = ("AWS_", "FOURFOLD_")
Line = tuple[str, str]


@dataclass(frozen=True)
class Told:
    """What a doctor told.

    Attributes:
        lines: each finding's mark and words.
        do: what to do, by a finding's words.
        code: of the exit.
        text: all of it.
    """

    lines: tuple[Line, ...]
    do: dict[str, str]
    code: int
    text: str

    def besides(self, well: "Told") -> list[Line]:
        """The lines that the other one did not tell."""
        return [line for line in self.lines if line not in well.lines]

    def lacks(self, well: "Told") -> list[str]:
        """What the other one told, and this one says nothing of."""
        return [said for mark, said in well.lines if (mark, said) not in self.lines]


def read(text: str, code: int) -> Told:
    assert "Traceback" not in text, text
    found = re.findall(r"^(ok|warn|WRONG|-) +(\S.*)\n(?:       -> (.+)\n)?", text, flags=re.MULTILINE)
    for mark, said, do in found:
        assert do or mark in ("ok", "-"), f"{said} does not say what to do"
    assert code == (1 if any(mark == "WRONG" for mark, _, _ in found) else 0), text
    lines = tuple((mark, said) for mark, said, _ in found)
    return Told(lines, {said: do for _, said, do in found}, code, text)


def doctor(*arguments: str, config: Path | str = "", **environment: str) -> Told:
    """The command in this process, with nothing of this environment that would tell it of a store."""
    given: dict[str, str | None] = {name: None for name in os.environ if name.startswith(OURS)}
    with pytest.MonkeyPatch.context() as patch:
        # Read from the environment once, when the client is imported.
        patch.setattr(kube_config, "KUBE_CONFIG_DEFAULT_LOCATION", str(config or os.environ["KUBECONFIG"]))
        done = CliRunner().invoke(main, ["doctor", *arguments], env={**given, **environment})
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return read(done.output, done.exit_code)


def check(found: list[Line], *expected: Line) -> None:
    """Checks that lines are exactly these, each a mark and a pattern for the beginning of its words."""
    assert len(found) == len(expected), found
    for (mark, said), (wanted, pattern) in zip(found, expected, strict=True):
        assert mark == wanted, (mark, said)
        assert re.match(pattern, said), (said, pattern)


def besides(told: Told, well: Told, namespace: str) -> list[Line]:
    """The lines that differ from a cluster that is well, whatever the namespace is called."""
    return [(m, said) for m, said in told.lines if (m, said.replace(namespace, NAMESPACE)) not in well.lines]
