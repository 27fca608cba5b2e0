"""``fourfold doctor``: checks that what a run needs is there, and says what to do."""

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path

import click

from fourfold.contract import exits, pods
from fourfold.contract.errors import ClusterError, FourfoldError
from fourfold.prepare.source import cache_folder
from fourfold_pipelines.cli import options
from fourfold_pipelines.cli.place import PLACES, reached
from fourfold_pipelines.doctor import findings, machine, store
from fourfold_pipelines.doctor.findings import Finding, skipped, wrong

MARKS = {"ok": ("ok", "green"), "warn": ("warn", "yellow"), "wrong": ("WRONG", "red"), "skipped": ("-", None)}


@click.command("doctor")
@click.option("--on", type=click.Choice(PLACES), default="cluster", show_default=True,
              help="What is checked: this machine alone, or a cluster too.")  # fmt: skip
@options.with_options(options.PODS)
@click.option("--service-account", "accounts", multiple=True, metavar="NAME",
              help="That launches inside the cluster; repeatable. In Kubeflow: default-editor in a profile, "
              "pipeline-runner where Pipelines stand alone. [default: fourfold]")  # fmt: skip
@click.option(
    "--store",
    "store_uri",
    default="",
    metavar="URI",
    help="[default: what the cluster's manifests say; with --on here ~/.cache/fourfold/store]",
)
@click.option("--host", default="", metavar="URL", help="A Kubeflow Pipelines server to look at, too.")
@click.option("--token-file", type=click.Path(path_type=Path), default=None, help="For that server.")
@click.option("--profile", default="", metavar="NAME", help="Namespace of your profile on that server.")
def doctor_command(
    on: str,
    namespace: str | None,
    gpus: int | None,
    pods_text: str,
    accounts: tuple[str, ...],
    store_uri: str,
    host: str,
    token_file: Path | None,
    profile: str,
) -> None:
    """Checks machine, cluster, operator, rights, images, GPUs and store, and says what to do.

    Nothing is changed, but for one small object in the store that is written and deleted again. Ends with 1
    if something is wrong; a warning is no failure.

    \b
    Examples:
      fourfold doctor
      fourfold doctor --on here
      fourfold doctor --namespace alice --service-account default-editor --gpus 1
      fourfold doctor --host http://localhost:8080
    """  # noqa: D301 - click takes the backslash-b itself as its mark
    found: list[Finding] = []

    def told(told_by: Iterator[Finding]) -> None:
        for finding in told_by:
            found.append(finding)
            _show(finding)

    told(machine.check())
    if on == "cluster":
        said = options.said_of_pods(namespace, gpus, pods_text)
        for part in _of_cluster(namespace or options.NAMESPACE, said, accounts or ("fourfold",), store_uri):
            told(part)
    else:
        told(store.check(store_uri or str(cache_folder() / "store")))
    if host:
        told(_of_kubeflow(host, profile, token_file))
    level = findings.worst(found)
    count = {name: sum(finding.level == name for finding in found) for name in MARKS}
    click.echo(
        f"{count['ok']} ok, {count['warn']} to look at, {count['wrong']} wrong, {count['skipped']} not asked"
    )
    if level != "wrong" and on == "cluster":
        click.echo("To see it train: fourfold run --on cluster --rows 400 --epochs 1")
    sys.exit(exits.FAILED if level == "wrong" else exits.OK)


def _of_cluster(
    namespace: str, said: str, accounts: tuple[str, ...], store_uri: str
) -> Iterator[Iterator[Finding]]:
    """All that is asked of a cluster, part by part; a part that nobody answers ends it."""
    # The Kubernetes client is slow to import.
    from fourfold_pipelines.doctor import cluster
    from fourfold_pipelines.doctor.asking import ApiServer

    try:
        server = ApiServer()
        yield cluster.version(server)
    except ClusterError as error:
        yield iter([wrong(str(error), "without a cluster: fourfold doctor --on here")])
        return
    yield cluster.operator(server)
    given, place, way = pods.read(said), "", contextlib.ExitStack()
    with way:
        try:
            there = way.enter_context(reached(namespace, said))
            given, place = there.pods, store_uri or there.store
        except FourfoldError as error:
            unreached = str(error)
        yield cluster.installed(server, namespace, given)
        yield cluster.rights(server, namespace, accounts, outside=True)
        yield cluster.admission(server, namespace, given)
        yield cluster.on_nodes(server, given)
        if place:
            yield store.check(place)
        else:
            yield iter([skipped(f"the store was not tried: {unreached}")])


def _of_kubeflow(host: str, profile: str, token_file: Path | None) -> Iterator[Finding]:
    from fourfold_pipelines.doctor import tested
    from fourfold_pipelines.kubeflow.server import Server

    try:
        yield tested.check("KFP back end", Server(host, profile, token_file).check())
    except FourfoldError as error:
        yield wrong(str(error), "see fourfold submit --help")


def _show(finding: Finding) -> None:
    mark, colour = MARKS[finding.level]
    click.echo(f"{click.style(f'{mark:<6}', fg=colour)} {finding.said}")
    if finding.do:
        click.echo(f"       -> {finding.do}")
