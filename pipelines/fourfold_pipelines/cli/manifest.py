"""``fourfold manifest``: prints what would be created on a cluster, as YAML for ``kubectl create``."""

import contextlib
import sys
import tempfile
from typing import Any

import click

from fourfold.contract import caching, keys, plan as plans, pods, ways
from fourfold.contract.errors import InvalidInputError
from fourfold.contract.records import Training
from fourfold_pipelines.cli import options

EXPERIMENT = "experiment"
STORE = "s3://fourfold"


@click.command("manifest")
@click.argument("what", metavar=f"{EXPERIMENT}|SCENARIO")
@options.with_options(options.EXPERIMENT)
@click.option("--store", default=STORE, show_default=True, metavar="URI",
              help="That pods read batches from and write models to. The experiment goes by the "
              "cluster's ConfigMap.")  # fmt: skip
@options.with_options(options.PODS)
def manifest_command(
    what: str, store: str, namespace: str | None, gpus: int | None, pods_text: str, **said: Any
) -> None:
    """Prints what would be created on a cluster: the Job of the whole experiment, or one scenario's TFJob.

    The experiment's Job prepares the data and launches the TFJobs itself. A TFJob by itself needs the data
    set in the store: any experiment with the same --data, --rows, --holdout and --split has put it there.

    \b
    Examples:
      fourfold manifest experiment --epochs 10 | kubectl create -f -
      fourfold manifest data_parallel --workers 4 --gpus 1 | kubectl create --dry-run=server -f -
    """  # noqa: D301 - click takes the backslash-b itself as its mark
    named = options.said_of_pods(namespace or options.NAMESPACE, gpus, pods_text)
    given = pods.read(named)
    if what not in (EXPERIMENT, *plans.names()):
        raise InvalidInputError(
            f"nothing is called {what!r}: use {EXPERIMENT}, or a scenario: {', '.join(plans.names())}"
        )
    # The namespace is the Job's own; all else goes to its command.
    of_pods = options.said_of_pods(None, gpus, pods_text)
    made = [_experiment(given, of_pods, said)] if what == EXPERIMENT else _scenario(what, store, given, said)
    click.echo(as_yaml(made), nl=False)


def as_yaml(objects: list[dict[str, Any]]) -> str:
    """Objects as YAML documents; a text of several lines is written as it is."""
    import yaml

    class Dumper(yaml.SafeDumper):
        def ignore_aliases(self, data: Any) -> bool:
            return True

    def text(dumper: yaml.SafeDumper, data: str) -> yaml.ScalarNode:
        return dumper.represent_scalar("tag:yaml.org,2002:str", data, style="|" if "\n" in data else None)

    Dumper.add_representer(str, text)
    return yaml.dump_all(objects, Dumper=Dumper, sort_keys=False, width=110)


def _experiment(given: pods.Pods, of_pods: str, said: dict[str, Any]) -> dict[str, Any]:
    from fourfold_pipelines import job

    options.experiment(scenarios=(), **said)
    command = click.get_current_context().command
    usual = {parameter.name: parameter.default for parameter in command.params}
    arguments = [
        word
        for name, value in said.items()
        if value != usual[name]
        for word in (f"--{name.replace('_', '-')}", str(value))
    ]
    return job.build([*arguments, *(("--pods", of_pods) if of_pods != "{}" else ())], given)


def _scenario(name: str, store: str, given: pods.Pods, said: dict[str, Any]) -> list[dict[str, Any]]:
    from fourfold.prepare.step import prepare
    from fourfold.train import tfjob

    arguments = options.experiment(scenarios=(name,), **said)
    # The names of the data set and of its split are a function of the source: found by making them.
    how = caching.read(arguments["cache"])
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(sys.stderr):
        made = prepare(
            folder,
            arguments["data"],
            arguments["rows"],
            arguments["holdout"],
            split=arguments["split"],
            workers=arguments["workers"],
            seed=arguments["seed"],
            caching=how,
        )
    run = "fourfold"
    training = Training(
        scenario=name,
        workers=arguments["workers"],
        store=store,
        fingerprint=made.manifest.fingerprint,
        split=made.split.id,
        output=f"{store.rstrip('/')}/{keys.training(run, name)}",
        **{
            key: arguments[key]
            for key in ("epochs", "batch", "optimizer", "learning_rate", "seed", *ways.NUMBERS)
        },
        **ways.read(arguments["ways"]),
        caching=how,
    )
    job = tfjob.build(training, given, run)
    return [job, tfjob.policy(job)] if tfjob.needs_policy(training) else [job]
