"""``fourfold submit``: compiles a pipeline, runs it on a Kubeflow Pipelines server and follows the run."""

import datetime
import sys
import tempfile
from pathlib import Path
from typing import Any

import click

from fourfold.contract import exits, plan as plans
from fourfold.contract.errors import InvalidInputError
from fourfold_pipelines.chosen import for_kubeflow
from fourfold_pipelines.cli import live, options

EXPERIMENT = "fourfold"


@click.command("submit")
@click.option("--host", required=True, envvar="FOURFOLD_HOST", metavar="URL",
              help="Kubeflow Pipelines as a browser knows it, such as https://kubeflow.example.org/pipeline "
              "or http://localhost:8080. Also $FOURFOLD_HOST.")  # fmt: skip
@click.option("--namespace", default="", metavar="NAME",
              help="Of your profile, where Kubeflow has several users.")  # fmt: skip
@click.option("--token-file", type=click.Path(path_type=Path), default=None,
              help="File with a bearer token. [default: the one that Kubeflow mounts into notebooks, if it "
              "does]")  # fmt: skip
@click.option("--ca-file", type=click.Path(path_type=Path, exists=True, dir_okay=False), default=None,
              help="Certificates to trust, as PEM.")  # fmt: skip
@click.option("--experiment", default=EXPERIMENT, show_default=True, metavar="NAME",
              help="Of Kubeflow, that the run belongs to; made if it is not there.")  # fmt: skip
@click.option(
    "--run-name", default="", metavar="NAME", help="For people. [default: the pipeline and the time]"
)
@click.option(
    "--service-account", default="", metavar="NAME", help="Of the run's pods. [default: Kubeflow's]"
)
@click.option("--follow/--no-follow", default=True, show_default=True,
              help="Show the run's progress to its end, and end as it ends.")  # fmt: skip
@click.option("--scenario", "scenarios", multiple=True, metavar="NAME",
              help=f"A way to split the training: {', '.join(plans.names())}. Repeatable; the pipeline train "
              "takes one. [default: all, or data_parallel]")  # fmt: skip
@options.with_options(options.EXPERIMENT)
@options.with_options(options.COMPILED)
@click.argument("pipeline", default="experiment")
def submit_command(
    pipeline: str,
    host: str,
    namespace: str,
    token_file: Path | None,
    ca_file: Path | None,
    experiment: str,
    run_name: str,
    service_account: str,
    follow: bool,
    scenarios: tuple[str, ...],
    name: str,
    store: str,
    gpus: int | None,
    pods_text: str,
    registry: str,
    steps_image: str,
    worker_image: str,
    keep_failed: bool,
    **said: Any,
) -> None:
    """Runs a pipeline (experiment or train) on a Kubeflow Pipelines server, and follows it to its end.

    The pipeline is uploaded if the server does not have it; changed content becomes a new version of it.
    Ctrl-C leaves the run as it is.

    \b
    Examples:
      fourfold submit --host http://localhost:8080 --registry registry.example.org/team
      fourfold submit train --scenario solo --host https://kubeflow.example.org/pipeline \\
          --namespace alice --token-file token
    """  # noqa: D301 - click takes the backslash-b itself as its mark
    parameters = _parameters(pipeline, scenarios, store, said)
    built = for_kubeflow(
        options.said_of_pods(None, gpus, pods_text),
        store,
        registry=registry,
        steps_image=steps_image,
        worker_image=worker_image,
        keep_failed=keep_failed,
    )
    from fourfold_pipelines import compiled
    from fourfold_pipelines.kubeflow import submission
    from fourfold_pipelines.kubeflow.server import Server
    from fourfold_pipelines.steps import TABLE

    if pipeline not in compiled.PIPELINES:
        raise click.UsageError(f"there is no pipeline {pipeline!r}: use {' or '.join(compiled.PIPELINES)}")
    server = Server(host, namespace, token_file, ca_file)
    click.echo(f"Kubeflow Pipelines {server.check()} at {server.host}")
    called = name or compiled.PIPELINES[pipeline][0]
    with tempfile.TemporaryDirectory() as folder:
        package = Path(folder) / f"{pipeline}.yaml"
        compiled.write(pipeline, built, package, name)
        now = datetime.datetime.now().strftime("%Y-%m-%d %H:%M:%S")
        started = submission.submit(
            server, package, called, compiled.DESCRIPTION, experiment, run_name or f"{called} {now}",
            parameters, service_account,
        )  # fmt: skip
    new = "uploaded" if started.uploaded else "is there already"
    click.echo(f"pipeline {called}, version {started.version}: {new}")
    click.echo(f"run {started.run}: {started.page}")
    if not follow:
        return
    try:
        sys.exit(_show(submission.follow(server, started.run, TABLE), started.page))
    except KeyboardInterrupt:
        click.echo(f"\nNot followed any more; the run goes on, and is ended in {started.page}", err=True)
        sys.exit(exits.INTERRUPTED)


def _parameters(
    pipeline: str, scenarios: tuple[str, ...], store: str, said: dict[str, Any]
) -> dict[str, Any]:
    """The parameters of the run.

    Raises:
        InvalidInputError: an option's value cannot be used.
    """
    found = options.experiment(**said, scenarios=scenarios)
    if Path(found["data"]).is_absolute():
        raise InvalidInputError(
            f"--data {said['data']}: pods of a cluster cannot read a folder of this machine; use sample "
            "or mnist"
        )
    if store:
        found["store"] = store
    if pipeline == "train":
        several = found.pop("scenarios")
        if len(scenarios) > 1:
            raise InvalidInputError(f"the pipeline train takes one --scenario, got {', '.join(several)}")
        if scenarios:
            found["scenario"] = several[0]
    return found


def _show(told: Any, page: str) -> int:
    """Shows the run; gives what this process ends with."""
    last: dict[str, Any] = {}

    def passed_on() -> Any:
        for event in told:
            if event["event"] == "run-ended":
                last.update(event)
            else:
                yield event

    failed = live.show(passed_on())
    if last.get("state") == "SUCCEEDED":
        click.echo(f"The run succeeded; curves, tables and the report are in {page}")
        return exits.OK
    how = last.get("message", "ended")
    tail = f"; the last lines of the step:\n{last['tail']}" if last.get("tail") else ""
    click.echo(
        f"The run ended: it {'was' if how == 'terminated' else 'has'} {how}; see {page}{tail}", err=True
    )
    return failed or exits.FAILED
