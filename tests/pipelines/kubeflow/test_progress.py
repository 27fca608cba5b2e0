"""A run as the server tells it, and its pods' logs, become the events of a live view, each told once."""

import math
import random

import pytest
from hypothesis import given, strategies as st

from fourfold.contract import events
from fourfold_pipelines.kubeflow import nodes
from fourfold_pipelines.kubeflow.progress import LAST_LINES, Progress, last_lines
from tests.pipelines.kubeflow.fake_workflow import node_id, pod, tell

LINE = "solo: epoch 1/2  loss 0.5000  accuracy 0.9000  2,000 rows/s"
COUNT = st.integers(1, 10**6)
LOSS = st.floats(0, 1e5, allow_nan=False)
TRAINED = st.fixed_dictionaries(
    {
        "scenario": st.from_regex(r"[a-z]+(_[a-z]+)?", fullmatch=True),
        "epoch": COUNT,
        "epochs": COUNT,
        "loss": LOSS,
        "models": st.integers(1, 64),
        "model": st.integers(0, 63),
    }
)
EPOCHS = st.builds(
    lambda trained, accuracy, rows, seconds: {
        **trained, "event": "epoch", "accuracy": accuracy, "rows": rows, "seconds": seconds,
    },
    TRAINED, st.floats(0, 1), st.integers(0, 10**7), st.just(0.0) | st.floats(1e-3, 1e5),
)  # fmt: skip
PROGRESS = st.builds(
    lambda trained, step, steps: {**trained, "event": "progress", "step": step, "steps": steps},
    TRAINED, COUNT, COUNT,
)  # fmt: skip


@given(EPOCHS | PROGRESS)
def test_what_is_read_from_a_line_for_people_is_what_the_line_said(event):
    line = events.describe(event)
    read = events.read(f"{line}\n")
    assert read is not None
    assert events.describe(read) == line
    exact = ["event", "scenario", "epoch", "epochs", *(["step", "steps"] if "step" in event else [])]
    assert {name: read[name] for name in exact} == {name: event[name] for name in exact}
    assert (read["models"] > 1) == (event["models"] > 1)
    assert read["model"] == (event["model"] if event["models"] > 1 else 0)
    assert math.isclose(read["loss"], event["loss"], abs_tol=5e-5)


@given(st.text())
def test_other_lines_are_no_events(line):
    assert events.read(line) is None


@pytest.mark.parametrize(
    "line",
    [
        "",
        "solo: epoch 1/2",
        "solo: epoch 1/2  loss 0.5000",
        f"{LINE} and more",
        f"2026-08-21 {LINE}",
        LINE.replace("epoch 1/2", "epoch one/2"),
        LINE.replace("0.5000", "nan"),
        LINE.replace("0.5000", "-0.5000"),
        LINE.replace("solo", "so lo"),
        LINE.replace("  loss", "  step 1/2  loss"),
        LINE[:-3],
        LINE.replace("solo", "\x1b[31msolo"),
        LINE.replace("0.5000", "0.5.0"),
        LINE.replace("0.9000", "."),
        LINE.replace("2,000", ",,"),
        LINE.replace("1/2", f"1/{'9' * 5000}"),
        "solo: epoch 1/2  step 1/0  loss 0.5000",
    ],
)
def test_lines_that_are_almost_events_are_none(line):
    assert events.read(line) is None


def lines(count: int) -> str:
    return "".join(LINE.replace("1/2", f"{n + 1}/{count}") + "\nsomething else\n" for n in range(count))


@given(st.integers(0, 8), st.randoms(use_true_random=False))
def test_each_line_of_a_log_is_told_once_wherever_it_is_cut(count, dice: random.Random):
    log, progress, told = lines(count), Progress(["train"]), []
    for end in sorted(dice.choices(range(len(log) + 1), k=6)):
        told += progress.of_log("pod", log[:end])
    told += progress.of_log("pod", log, ended=True)
    told += progress.of_log("pod", log, ended=True)
    assert [event["epoch"] for event in told] == [n + 1 for n in range(count)]


def test_a_last_line_that_is_not_whole_is_told_when_no_more_comes():
    progress = Progress(["train"])
    assert list(progress.of_log("pod", LINE)) == []
    assert [event["epoch"] for event in progress.of_log("pod", LINE, ended=True)] == [1]


def test_lines_of_several_pods_are_counted_apart():
    progress = Progress(["train"])
    assert len(list(progress.of_log("one", lines(2)))) == 2
    assert len(list(progress.of_log("another", lines(2)))) == 2


def test_a_log_that_is_gone_takes_nothing_back():
    progress = Progress(["train"])
    assert len(list(progress.of_log("pod", lines(2)))) == 2
    assert list(progress.of_log("pod", "")) == []
    assert [event["epoch"] for event in progress.of_log("pod", lines(3))] == [3]


def told(progress: Progress, states: dict[str, str]) -> list[str]:
    return [events.describe(event) for event in progress.of_run(tell("w", states))]


def test_steps_are_told_as_they_start_and_end_and_nothing_else_is():
    progress = Progress(["prepare", "train"])
    root = {"root": "RUNNING", "root-driver": "SUCCEEDED"}
    assert told(progress, root) == []
    assert told(progress, {**root, "root.prepare-driver": "RUNNING", "root.prepare": "PENDING"}) == []
    running = {**root, "root.prepare": "RUNNING", "root.prepare.executor": "RUNNING"}
    assert told(progress, running) == ["prepare: started"]
    assert told(progress, running) == []
    done = {**root, "root.prepare": "SUCCEEDED", "root.prepare.executor": "SUCCEEDED"}
    assert told(progress, done) == ["prepare: done in 20.0 s"]
    ended = {**done, "root.train": "FAILED", "root": "FAILED"}
    assert told(progress, ended) == ["train: started", "train failed: Kubeflow says no more than FAILED"]
    assert told(progress, ended) == []


def test_what_a_server_says_of_a_failure_is_told():
    run = tell("w", {"root.train": "FAILED"})
    run["run_details"]["task_details"][-1]["error"] = {"code": 13, "message": "OOMKilled"}
    assert [event.get("message") for event in Progress(["train"]).of_run(run)] == [None, "OOMKilled"]


def test_the_same_step_of_several_scenarios_is_told_for_each():
    loop = "root.for-loop-1.iteration-iterations({0}:{0}).iteration-item.train"
    progress = Progress(["train"])
    assert told(progress, {loop.format(n): "RUNNING" for n in range(3)}) == ["train: started"] * 3


@pytest.mark.parametrize("run", [{}, {"run_details": None}, {"run_details": {}}, {"state": "PENDING"}])
def test_a_run_of_which_nothing_is_known_yet_tells_nothing(run):
    assert list(Progress(["train"]).of_run(run)) == []


def test_the_last_lines_of_a_log_are_few_and_not_empty():
    found = last_lines("\n".join(f"line {n}\n" for n in range(100)))
    assert found.splitlines() == [f"  | line {n}" for n in range(100 - LAST_LINES, 100)]
    assert last_lines("\n \n") == ""


def of_step(run, name: str) -> list[list[nodes.Names]]:
    """Its pods, for each task of the name."""
    tasks = [task for task in run["run_details"]["task_details"] if task["display_name"] == name]
    return [nodes.pods(run, task) for task in tasks]


def test_the_pods_of_a_real_workflow_are_found():
    """Its pods as ``kubectl get pods`` listed them, of Kubeflow Pipelines 2.4."""
    workflow = "ml-pipeline-8xfss"
    steps = {
        "load-data": 2740109218,
        "preprocess-data": 2969906868,
        "train-model": 3352320617,
        "evaluate-model": 2277833670,
    }
    states = {"root": "SUCCEEDED", "root-driver": "SUCCEEDED"}
    for step in steps:
        states |= {f"root.{step}": "SUCCEEDED", f"root.{step}.executor": "SUCCEEDED"}
    run = tell(workflow, states)
    for step, number in steps.items():
        (((_, name, _),),) = of_step(run, step)
        assert name == f"{workflow}-system-container-impl-{number}"


def test_the_tries_at_a_task_are_its_pods_and_its_neighbours_are_not():
    states = {
        "root": "RUNNING",
        "root.train-driver": "SUCCEEDED",
        "root.train": "RUNNING",
        "root.train.executor": "RUNNING",
        "root.train.executor(0)": "FAILED",
        "root.train.executor(1)": "RUNNING",
        "root.trainer": "RUNNING",
        "root.trainer.executor": "RUNNING",
    }
    ((first, second),) = of_step(tell("w-1", states), "train")
    assert first[0] == pod("w-1", "root.train.executor(0)")
    assert second[0] == pod("w-1", "root.train.executor(1)")


@pytest.mark.parametrize("again", ["", "(0)"], ids=["as they are", "where all templates are tried again"])
def test_pods_in_loops_and_exit_handlers_are_found(again):
    states, pods = {}, []
    for n in range(2):
        root = f"{again}.root{again}" if again else "root"
        loop = f"{root}.exit-handler-1{again}.for-loop-1{again}.iteration-iterations({n}:{n})"
        path = f"{loop}.iteration-item{again}.train{again}.executor(0)"
        states |= dict.fromkeys(with_all_above(path), "RUNNING")
        pods.append(pod("w-1", path))
    found = of_step(tell("w-1", states), "train")
    assert sorted(names[0] for (names,) in found) == sorted(pods)


def test_the_pod_of_the_task_after_all_others_is_found():
    path = "root.exit-handler-1.onExit.clean-up.executor(0)"
    states = dict.fromkeys(with_all_above(path), "RUNNING")
    # Argo names a hook with the task that it is of, and the path has no node for it alone.
    run = tell("w-1", states)
    for task in run["run_details"]["task_details"]:
        if task["display_name"] == "onExit":
            task["display_name"] = "exit-handler-1.onExit"
    (((name, *_),),) = of_step(run, "clean-up")
    assert name == pod("w-1", path)


def with_all_above(path: str) -> list[str]:
    """The path and all above it, with the nodes that stand for all tries."""
    parts = path.split(".")
    paths = [".".join(parts[: n + 1]) for n in range(len(parts))]
    return [*paths, *(each.removesuffix("(0)") for each in paths if each != "(0)")]


def test_pods_that_a_server_names_itself_are_taken():
    run = {"run_details": {"task_details": [{"display_name": "train"}]}}
    task = {"display_name": "train", "child_tasks": [{"pod_name": "w-1-system-container-impl-123"}]}
    assert nodes.pods(run, task) == [("w-1-system-container-impl-123",)]


@pytest.mark.parametrize(
    "children", [None, [], [{"task_id": "1"}], [{"pod_name": "odd"}], [{"pod_name": "w-12"}]]
)
def test_a_task_without_known_nodes_has_no_pods(children):
    task = {"display_name": "train", "child_tasks": children}
    assert nodes.pods({"run_details": {"task_details": [task]}}, task) == []


def test_a_task_from_the_cache_names_a_pod_that_there_is_not():
    run = tell("w-1", {"root": "RUNNING", "root.train": "SUCCEEDED", "root.train.executor": "SKIPPED"})
    assert of_step(run, "train") == [
        [(pod("w-1", "root.train.executor"), pod("w-1", "root.train.executor", "system-container-impl"),
          node_id("w-1", "root.train.executor"))]
    ]  # fmt: skip
