"""``fourfold doctor`` as a command: places, exit codes, and what is printed."""

import ast
import re
from importlib import metadata
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from fourfold_pipelines import doctor
from fourfold_pipelines.cli import main
from fourfold_pipelines.doctor import machine, tested

COMMAND = Path(doctor.__file__).parents[1] / "cli" / "doctor.py"
SOURCES = [*sorted(Path(doctor.__file__).parent.glob("*.py")), COMMAND]


@pytest.fixture(autouse=True)
def plain(monkeypatch, tmp_path):
    """No cluster, no store, nothing of this machine's environment."""
    for name in ("FOURFOLD_STORE", "FOURFOLD_PODS", "KUBERNETES_SERVICE_HOST", "KUBECONFIG", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("kubernetes.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", str(tmp_path / "none"))


def fourfold_doctor(*arguments: str) -> Result:
    result = CliRunner().invoke(main, ["doctor", *arguments], prog_name="fourfold")
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    assert "Traceback" not in result.output
    return result


def lines(result: Result) -> list[tuple[str, str, str]]:
    """Mark, what was found and what to do, of each finding."""
    return re.findall(r"^(ok|warn|WRONG|-) +(\S.*)\n(?:       -> (.+)\n)?", result.output, flags=re.MULTILINE)


def test_here_needs_no_cluster_and_checks_machine_and_store(tmp_path):
    result = fourfold_doctor("--on", "here", "--store", str(tmp_path / "store"))

    assert result.exit_code == 0
    found = lines(result)
    assert [said.split()[0] for _, said, _ in found] == [
        "Python",
        "TensorFlow",
        "Keras",
        "KFP",
        "code",
        "store",
    ]
    assert all(mark == "ok" for mark, _, _ in found[-2:])
    assert "0 wrong, 0 not asked" in result.output
    assert "To see it train" not in result.output


def test_here_the_store_is_the_one_that_a_run_takes(tmp_path, monkeypatch):
    assert f"store {tmp_path}" in fourfold_doctor("--on", "here").output
    monkeypatch.setenv("FOURFOLD_STORE", str(tmp_path / "said"))
    assert f"store {tmp_path / 'said'}: written" in fourfold_doctor("--on", "here").output
    found = fourfold_doctor("--on", "here", "--store", str(tmp_path / "given"))
    assert f"store {tmp_path / 'given'}: written" in found.output


def test_a_store_that_cannot_be_used_ends_it_with_1(tmp_path):
    (tmp_path / "store").write_text("a file")
    result = fourfold_doctor("--on", "here", "--store", str(tmp_path / "store"))

    assert result.exit_code == 1
    mark, said, do = lines(result)[-1]
    assert mark == "WRONG"
    assert "cannot be written" in said
    assert do
    assert "1 wrong" in result.output


def test_a_version_that_was_not_tested_is_no_failure(tmp_path, monkeypatch):
    monkeypatch.setitem(tested.TESTED, "Python", ("2.7",))
    result = fourfold_doctor("--on", "here", "--store", str(tmp_path / "store"))

    assert result.exit_code == 0
    mark, said, do = lines(result)[0]
    assert (mark, bool(do)) == ("warn", True)
    assert "was not tested, 2.7 was" in said


def test_a_library_that_is_not_installed_is_wrong(tmp_path, monkeypatch):
    def version(name):
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(machine.metadata, "version", version)
    result = fourfold_doctor("--on", "here", "--store", str(tmp_path / "store"))

    assert result.exit_code == 1
    wrong = [(said, do) for mark, said, do in lines(result) if mark == "WRONG"]
    assert [said for said, _ in wrong] == [f"{what} is not installed" for what in machine.PACKAGES]
    assert all("pip install" in do for _, do in wrong)


def test_without_a_kubeconfig_the_cluster_is_one_wrong_line_that_says_what_to_do():
    result = fourfold_doctor()

    assert result.exit_code == 1
    wrong = [(said, do) for mark, said, do in lines(result) if mark == "WRONG"]
    assert len(wrong) == 1
    assert "no cluster to talk to" in wrong[0][0]
    assert "KUBECONFIG" in wrong[0][1]
    assert "fourfold doctor --on here" in wrong[0][1]
    assert "To see it train" not in result.output


@pytest.mark.parametrize("text", ["{a: b: c", "a list", "[1, 2]", "clusters: 3\ncurrent-context: a\n", "\0"])
def test_a_kubeconfig_that_is_none_is_told_without_a_traceback(text, tmp_path, monkeypatch):
    path = tmp_path / "kubeconfig"
    path.write_text(text)
    monkeypatch.setattr("kubernetes.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", str(path))
    result = fourfold_doctor()

    assert result.exit_code == 1
    (wrong,) = [(said, do) for mark, said, do in lines(result) if mark == "WRONG"]
    assert "KUBECONFIG" in wrong[1]


@pytest.mark.parametrize(
    "option",
    [["--namespace", "a"], ["--gpus", "1"], ["--pods", '{"cpu": "1"}'], ["--service-account", "a"]],
)
def test_what_is_about_a_cluster_is_refused_here(option):
    result = fourfold_doctor("--on", "here", *option)

    assert result.exit_code == 2
    assert "leave --on here away" in result.output
    assert lines(result) == []


def test_an_unknown_field_of_pods_is_refused_before_anything_is_asked():
    result = fourfold_doctor("--pods", '{"gpu": 1}')

    assert result.exit_code == 2
    assert "did you mean 'gpus'" in result.output
    assert lines(result) == []


def test_a_kubeflow_that_does_not_answer_is_wrong_and_so_is_a_host_that_is_no_url(tmp_path):
    here = ["--on", "here", "--store", str(tmp_path / "store")]
    for host, words in (("http://127.0.0.1:9", "does not answer"), ("kubeflow", "must be a URL")):
        result = fourfold_doctor(*here, "--host", host)

        assert result.exit_code == 1
        mark, said, do = lines(result)[-1]
        assert (mark, bool(do)) == ("WRONG", True)
        assert words in said


def test_every_wrong_and_every_warning_that_the_code_can_make_says_what_to_do():
    made = 0
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
                continue
            if node.func.id in ("wrong", "warn"):
                made += 1
                assert len(node.args) == 2, f"{path}:{node.lineno}"
                assert not (isinstance(node.args[1], ast.Constant) and not node.args[1].value), node.lineno
            if path.stem != "findings":
                assert node.func.id != "Finding", f"{path}:{node.lineno} goes round wrong and warn"
    assert made > 20
