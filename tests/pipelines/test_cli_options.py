"""The command line refuses what it cannot do before anything starts, in words, and shows its defaults."""

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from fourfold import __version__
from fourfold.contract import plan as plans
from fourfold_pipelines.cli import main, run as run_module


@pytest.fixture(autouse=True)
def nothing_starts(monkeypatch, tmp_path):
    """A run that would start fails the test, and an empty folder shows what was written."""

    def start(*args, **kwargs):
        pytest.fail("the run was started")

    monkeypatch.setattr(run_module.subprocess, "Popen", start)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")


def fourfold(*arguments: str) -> Result:
    return CliRunner().invoke(main, list(arguments), prog_name="fourfold")


def refused(*arguments: str) -> str:
    """The message of a command that ends with an error for users, having written nothing."""
    result = fourfold(*arguments)

    assert result.exit_code != 0
    assert isinstance(result.exception, SystemExit), result.exception
    assert "Traceback" not in result.output
    assert list(Path().iterdir()) == []
    return " ".join(result.output.split())


def test_an_unknown_scenario_names_those_that_there_are_and_the_nearest():
    said = refused("run", "--scenario", "data_paralel")

    assert f"use one of {', '.join(plans.names())}" in said
    assert "did you mean 'data_parallel'?" in said


def test_one_unknown_scenario_among_known_ones_is_refused():
    assert "'none'" in refused("run", "--scenario", "solo", "--scenario", "none")


@pytest.mark.parametrize("option", ["--rows", "--holdout", "--epochs", "--batch", "--workers"])
@pytest.mark.parametrize("value", ["0", "-3", "1.5", "many", ""])
def test_counts_below_one_and_words_are_refused(option, value):
    said = refused("run", option, value)

    assert f"'{option}'" in said
    assert value in said


@pytest.mark.parametrize("value", ["0", "-1", "nan", "inf", "-inf"])
def test_a_learning_rate_is_a_finite_number_above_zero(value):
    said = refused("run", "--learning-rate", value)

    assert "--learning-rate must be a number above 0" in said
    assert str(float(value)) in said


@pytest.mark.parametrize("value", ["-1", str(2**31), "x"])
def test_a_seed_is_a_whole_number_that_fits(value):
    assert "'--seed'" in refused("run", "--seed", value)


def test_an_unknown_optimizer_names_those_that_there_are():
    said = refused("run", "--optimizer", "lion")

    assert "'lion'" in said
    assert all(f"'{name}'" in said for name in ("adam", "sgd", "momentum"))


def test_an_unknown_option_is_refused():
    assert "--row" in refused("run", "--row", "3")


@pytest.mark.parametrize("below", ["", "x", "x/y"])
def test_a_folder_that_cannot_be_made_is_refused(tmp_path, below):
    file = tmp_path / "file"
    file.write_text("kept")

    said = refused("run", "--out", str(file / below))

    assert "--out" in said
    assert str(file) in said
    assert file.read_text() == "kept"


def test_a_folder_with_something_in_it_is_refused_and_left_as_it_is(tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    (out / "report.html").write_text("kept")

    said = refused("run", "--out", str(out))

    assert f"--out {out} is not empty" in said
    assert [path.name for path in out.iterdir()] == ["report.html"]


DEFAULTS = {
    "--scenario": "all", "--rows": "2000", "--epochs": "5", "--workers": "2", "--batch": "100", "--seed": "0",
    "--learning-rate": "0.001", "--optimizer": "adam", "--data": "sample", "--split": "contiguous",
    "--holdout": "1000", "--out": "runs/TIME-ID", "--members": "3", "--stages": "2", "--micro-batches": "4",
}  # fmt: skip
SELDOM = {
    "--member-workers": "one a member", "--starts": "uniform,he_uniform,glorot_uniform",
    "--cut": "so that stages", "--balance": "parameters", "--placement": "devices",
    "--local-steps": "one epoch", "--server-momentum": "0.0", "--proximal": "0.0", "--initial": "shared",
    "--order": "rows", "--cache-dtype": "float32", "--cached-batch": "100", "--ram": "half of what",
    "--disk": "10Gi, or 80 %", "--window": "as many as fit", "--ahead": "16",
}  # fmt: skip


def help_of(command: str) -> dict[str, str]:
    """The text of each option."""
    text = fourfold(command, "--help").output
    parts = re.split(r"^  (?=-)", text[text.index("Options:") :], flags=re.MULTILINE)[1:]
    found = {}
    for part in parts:
        name = re.search(r"--[a-z-]+", part)
        assert name is not None
        found[name.group()] = " ".join(part.split())
    return found


def test_help_shows_every_option_with_its_default():
    shown = help_of("run")

    of_pods = {"--on", "--namespace", "--gpus", "--pods"}
    assert set(DEFAULTS) | set(SELDOM) | {"--store", "--debug", "--help"} | of_pods == set(shown)
    for option, default in {**DEFAULTS, **SELDOM}.items():
        assert re.search(rf"\[default: {re.escape(default)}[;\] ]", shown[option]), shown[option]
    for option, text in shown.items():
        assert re.search(r"[a-z]{3}", text.removeprefix(option)), f"{option} is not explained"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--starts", "he_unifrom"), "unknown start 'he_unifrom'"),
        (("--starts", "he_uniform:x"), "must be a whole number"),
        (("--starts", ","), "starts is empty"),
        (("--order", "shuffled"), "unknown order 'shuffled': use one of rows, batches, frozen, reverse"),
        (("--order", "list:"), "unknown order 'list:'"),
        (("--ram", "much"), "'much' is no number of bytes: give one such as 500M"),
        (("--disk", "-5"), "'-5' is no number of bytes"),
        (("--stages", "3", "--cut", "flatten"), "--cut names 1 layers, 3 stages have 2 between them"),
        (("--server-momentum", "1"), "'--server-momentum'"),
        (("--initial", "cold"), "--initial must be one of shared, independent, or a .keras file, got 'cold'"),
        (("--proximal", "-1"), "'--proximal'"),
        (("--placement", "moon"), "'--placement'"),
        (("--members", "0"), "'--members'"),
        (("--debug", "--workers", "2"), "--debug trains with one worker"),
    ],
)
def test_what_a_way_cannot_use_is_refused_before_the_run_starts(arguments, said):
    assert said in refused("run", *arguments)


def test_defaults_of_the_help_are_those_of_the_pipeline():
    """So that the same command and the same pipeline without arguments do the same."""
    from fourfold_pipelines.chosen import Chosen
    from fourfold_pipelines.experiment import build

    inputs = build(Chosen()).component_spec.inputs
    for option, default in DEFAULTS.items():
        if option not in ("--scenario", "--out"):
            assert str(inputs[option[2:].replace("-", "_")].default) == default, option
    assert inputs["scenarios"].default == list(plans.names())


@pytest.mark.parametrize("arguments", [(), ("--help",), ("-h",), ("run", "-h"), ("compile", "--help")])
def test_help_is_there(arguments):
    result = fourfold(*arguments)

    assert "Usage: fourfold" in result.output
    assert result.exit_code in (0, 2)


def test_version():
    assert fourfold("--version").output.strip().endswith(__version__)


def test_compile_writes_a_pipeline_that_kfp_loads(tmp_path):
    from kfp import components

    result = fourfold("compile", "-o", str(tmp_path / "new" / "folder"))

    assert result.exit_code == 0, result.output
    files = sorted((tmp_path / "new" / "folder").iterdir())
    assert [path.name for path in files] == ["experiment.yaml", "merge-study.yaml", "train.yaml"]
    for path in files:
        assert f"wrote {path}" in result.output
        loaded = components.load_component_from_file(str(path))
        assert loaded.name == f"fourfold-{path.stem}"
        wanted = {"cells", "study"} if path.stem == "merge-study" else {"data", "rows", "seed"}
        assert set(loaded.component_spec.inputs) >= {"store", *wanted}  # pyright: ignore


def test_compile_again_gives_the_same_bytes(tmp_path):
    for _ in range(2):
        assert fourfold("compile", "-o", str(tmp_path / "a")).exit_code == 0
    fourfold("compile", "-o", str(tmp_path / "b"))

    for name in ("experiment.yaml", "train.yaml"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


@pytest.mark.parametrize("below", ["", "x"])
def test_compile_into_what_is_no_folder_is_refused(tmp_path, below):
    file = tmp_path / "file"
    file.write_text("kept")

    said = refused("compile", "-o", str(file / below))

    assert str(file) in said
    assert file.read_text() == "kept"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--gpus", "1"], "add --on cluster"),
        (["--namespace", "lab"], "add --on cluster"),
        (["--on", "cluster", "--pods", '{"gpu": 1}'], "no field 'gpu' (did you mean 'gpus'?)"),
        (["--on", "cluster", "--pods", '{"gpus": 1.5}'], "gpus: expected int, got 1.5"),
        (["--on", "cluster", "--pods", "gpus=1"], "is not a JSON object"),
        (["--on", "cluster", "--store", "/a/folder"], "s3://bucket/prefix"),
        (["--on", "cluster"], "let KUBECONFIG name a kubeconfig"),
        (["--on", "moon"], "'here', 'cluster'"),
    ],
)
def test_what_pods_cannot_be_given_and_where_they_cannot_be_is_refused(arguments, said, monkeypatch):
    monkeypatch.setenv("KUBECONFIG", "/there/is/none")
    monkeypatch.delenv("FOURFOLD_STORE", raising=False)
    assert said in refused("run", *arguments)


@pytest.mark.parametrize("what", ["seqential", "", "Experiment"])
def test_a_manifest_of_nothing_known_is_refused_with_what_there_is(what):
    assert "use experiment, or a scenario: " + ", ".join(plans.names()) in refused("manifest", what)


def test_a_manifest_is_yaml_and_nothing_else_on_standard_output(tmp_path):
    import yaml

    result = CliRunner().invoke(main, ["manifest", "solo", "--rows", "50", "--holdout", "10"])
    assert result.exit_code == 0
    (job,) = yaml.safe_load_all(result.stdout)
    assert job["kind"] == "TFJob"


def test_options_of_the_manifest_reach_the_command_of_the_job():
    import yaml

    result = CliRunner().invoke(main, ["manifest", "experiment", "--epochs", "9", "--split", "disjoint"])
    (job,) = yaml.safe_load_all(result.stdout)
    command = job["spec"]["template"]["spec"]["containers"][0]["command"]
    assert command[-4:] in (
        ["--split", "disjoint", "--epochs", "9"],
        ["--epochs", "9", "--split", "disjoint"],
    )


def test_a_run_that_is_not_there_is_refused_by_show(tmp_path):
    result = fourfold("show", "--no-open", str(tmp_path))
    assert result.exit_code == 2
    assert "there is no run at" in result.output


def test_results_in_a_store_are_not_written_over_and_a_run_that_ended_is_not_run_again(monkeypatch):
    class Ended:
        def exists(self, key):
            return key == "results.json"

    monkeypatch.setattr(run_module, "open_store", lambda uri: Ended())
    monkeypatch.delenv("FOURFOLD_RUN", raising=False)
    assert "holds a run's results already" in refused("run", "--out", "s3://bucket/runs/night-7")
    monkeypatch.setenv("FOURFOLD_RUN", "night-7")
    result = fourfold("run", "--out", "s3://bucket/runs/night-7")
    assert result.exit_code == 0
    assert "this run has ended already" in result.output


def test_all_that_is_said_of_pods_reaches_the_command_of_the_job():
    import yaml

    said = ["--pods", '{"memory": "8Gi", "image": "lab/worker:1"}', "--gpus", "2"]
    (job,) = yaml.safe_load_all(CliRunner().invoke(main, ["manifest", "experiment", *said]).stdout)
    container = job["spec"]["template"]["spec"]["containers"][0]
    assert container["command"][-2] == "--pods"
    assert json.loads(container["command"][-1]) == {"memory": "8Gi", "image": "lab/worker:1", "gpus": 2}
    assert container["image"] == "lab/worker:1"
