"""``fourfold doctor``: checks that what a run needs is there, and says what to do."""

import contextlib
import json
import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fourfold.contract import exits, pods
from fourfold.contract.errors import ClusterError, ClusterUnavailableError, FourfoldError, InvalidInputError
from fourfold.contract.pods import CONFIG
from fourfold.prepare.source import cache_folder
from fourfold_pipelines import job
from fourfold_pipelines.cli import options
from fourfold_pipelines.cli.place import GIVEN, PLACES, STORE, reached, remote
from fourfold_pipelines.doctor import findings, machine, store
from fourfold_pipelines.doctor.findings import Finding, skipped, warn, wrong
from fourfold_pipelines.doctor.store import ENDPOINT

if TYPE_CHECKING:
    from fourfold_pipelines.doctor.asking import ApiServer

IN_POD = "KUBERNETES_SERVICE_HOST"
ACCESS_KEY = "AWS_ACCESS_KEY_ID"
MARKS = {"ok": ("ok", "green"), "warn": ("warn", "yellow"), "wrong": ("WRONG", "red"), "skipped": ("-", None)}


@click.command("doctor")
@click.option("--on", type=click.Choice(PLACES), default="cluster", show_default=True,
              help="What is checked: this machine alone, or a cluster too.")  # fmt: skip
@options.with_options(options.PODS)
@click.option("--service-account", "accounts", multiple=True, metavar="NAME",
              help="That launches inside the cluster; repeatable. In Kubeflow: default-editor in a profile, "
              "pipeline-runner where Pipelines stand alone. [default: fourfold; in a pod none]")  # fmt: skip
@click.option(
    "--store",
    "store_uri",
    default="",
    metavar="URI",
    help="[default: $FOURFOLD_STORE, else what the cluster's manifests say, with --on here "
    "~/.cache/fourfold/store]",
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
    said = options.said_of_pods(namespace, gpus, pods_text)
    told_of_cluster = bool(accounts) or said != "{}"
    if on == pods.HERE and told_of_cluster:
        raise InvalidInputError(
            "--namespace, --gpus, --pods and --service-account are about a cluster: leave --on here away"
        )
    found: list[Finding] = []

    def tell(findings_of: Iterator[Finding]) -> None:
        for finding in findings_of:
            found.append(finding)
            _show(finding)

    tell(machine.check())
    if on == pods.HERE:
        tell(store.check(store_uri or os.environ.get(STORE) or str(cache_folder() / "store")))
    else:
        tell(_of_cluster(namespace, said, accounts, store_uri or os.environ.get(STORE, "")))
    if host:
        tell(_of_kubeflow(host, profile, token_file))
    level = findings.worst(found)
    count = {name: sum(finding.level == name for finding in found) for name in MARKS}
    click.echo(
        f"{count['ok']} ok, {count['warn']} to look at, {count['wrong']} wrong, {count['skipped']} not asked"
    )
    if level != "wrong" and on != pods.HERE:
        where = f" --namespace {namespace}" if namespace else ""
        click.echo(f"To see it train: fourfold run --on cluster{where} --rows 400 --epochs 1")
    sys.exit(exits.FAILED if level == "wrong" else exits.OK)


def _of_cluster(
    namespace: str | None, said: str, accounts: tuple[str, ...], store_uri: str
) -> Iterator[Finding]:
    """All that is asked of a cluster; what nobody answers ends it."""
    # The Kubernetes client is slow to import.
    from fourfold_pipelines.doctor import cluster, training_operator
    from fourfold_pipelines.doctor.asking import ApiServer, LoginError

    try:
        server = ApiServer()
        yield from cluster.version(server)
        yield from training_operator.check(server)
        yield from _of_namespace(server, namespace, said, accounts, store_uri)
    except LoginError as error:
        yield wrong(
            str(error),
            "log in again, or get a new kubeconfig: this one's token or key is not valid (any more)",
        )
    except ClusterUnavailableError as error:
        yield wrong(
            f"{error}; nothing more was asked",
            "is the cluster up, is the kubeconfig the right one (kubectl config view)? Without a cluster: "
            "fourfold doctor --on here",
        )
    except ClusterError as error:
        yield wrong(
            str(error),
            "let KUBECONFIG name the cluster's kubeconfig. Without a cluster: fourfold doctor --on here",
        )


def _of_namespace(
    server: "ApiServer", namespace: str | None, said: str, accounts: tuple[str, ...], store_uri: str
) -> Iterator[Finding]:
    """What is asked of a namespace, from outside the cluster or from a pod in it."""
    from fourfold.train import api
    from fourfold_pipelines.doctor import cluster, namespace as of_namespace, nodes, rights

    inside = IN_POD in os.environ
    manifests = namespace or (api.own_namespace() if inside and api.in_cluster() else options.NAMESPACE)
    if not cluster.has(server, manifests):
        yield of_namespace.absent(manifests)
        yield skipped(f"what belongs into namespace {manifests} was not asked for")
        yield from nodes.check(server, pods.read(said))
        return
    settings, finding = of_namespace.settings(server, manifests)
    yield finding
    named = "{}" if inside else json.dumps({"namespace": manifests})
    try:
        given = pods.read((inside and os.environ.get(GIVEN)) or settings.get(GIVEN, "{}"), named, said)
    except InvalidInputError as error:
        place = "this environment" if inside and os.environ.get(GIVEN) else f"ConfigMap {CONFIG}"
        yield wrong(f"{GIVEN} of {place} cannot be used: {error}", of_namespace.SET)
        given = pods.read(named, said)
    # A TFJob goes where its pods are told to go, even if the manifests were applied elsewhere.
    where = given.namespace or manifests
    launchers = accounts or (() if inside else (job.ACCOUNT,))
    yield from of_namespace.check(server, where, given, launchers)
    endpoint = given.endpoint or settings.get(ENDPOINT, "")
    of_server = list(of_namespace.server(server, endpoint))
    yield from of_server
    yield from rights.launching(server, where, "this pod" if inside else "this user")
    if not inside:
        forwarded = None if ENDPOINT in os.environ else of_namespace.place_of(settings.get(ENDPOINT, ""))
        secret = "" if ACCESS_KEY in os.environ else given.secret
        yield from rights.reaching(server, manifests, CONFIG, secret, forwarded[1] if forwarded else "")
    there = [account for account in launchers if not of_namespace.lacks(server, where, account)]
    yield from rights.of_accounts(server, where, there)
    yield from cluster.admission(server, where, given)
    yield from nodes.check(server, given)
    if inside:
        yield from _store_from_inside(settings, store_uri)
    elif findings.worst(of_server) == "wrong" and ENDPOINT not in os.environ:
        yield skipped("the store was not tried: its server is not there")
    else:
        yield from _store_from_outside(manifests, said, endpoint, store_uri)


def _store_from_outside(namespace: str, said: str, endpoint: str, store_uri: str) -> Iterator[Finding]:
    """Tries the store as ``fourfold run --on cluster`` reaches it from outside."""
    ours = [name for name in (ENDPOINT, ACCESS_KEY) if name in os.environ]
    with contextlib.ExitStack() as way:
        try:
            there = way.enter_context(reached(namespace, said))
        except (FourfoldError, ValueError) as error:
            yield skipped(f"the store was not tried: {error}")
            return
        try:
            found = list(store.check(remote(store_uri or there.store)))
        except InvalidInputError as error:
            yield wrong(str(error), f"name another --store; {STORE} and the ConfigMap name one, too")
            return
        # The port that was forwarded is nothing that anybody knows.
        local = there.environment.get(ENDPOINT) or endpoint
        for finding in found:
            yield replace(finding, said=finding.said.replace(local, endpoint or local))
    if ours:
        yield warn(
            f"{' and '.join(ours)} of this environment went before what pods are given",
            "that may be meant so; unset them to try the store as pods do",
        )


def _store_from_inside(settings: Mapping[str, str], store_uri: str) -> Iterator[Finding]:
    """Tries the store as this pod's environment says, or the ConfigMap where it says nothing."""
    how = f"set {STORE}, {ENDPOINT} and the account, as the Job of `fourfold manifest experiment` does"
    uri = store_uri or settings.get(STORE, "")
    if not uri:
        yield wrong(f"no store is named: {STORE} is not set in this pod", f"{how}; or give --store")
        return
    if not store_uri:
        yield warn(
            f"{STORE} is not set in this pod; the ConfigMap's was tried", f"for a run in this pod {how}"
        )
    lent = {name: settings[name] for name in (ENDPOINT, "AWS_REGION") if settings.get(name)}
    lent = {name: value for name, value in lent.items() if name not in os.environ}
    os.environ.update(lent)
    try:
        yield from store.check(remote(uri))
    except InvalidInputError as error:
        yield wrong(str(error), how)
    finally:
        for name in lent:
            del os.environ[name]


def _of_kubeflow(host: str, profile: str, token_file: Path | None) -> Iterator[Finding]:
    from fourfold_pipelines.doctor import tested
    from fourfold_pipelines.kubeflow.server import Server

    try:
        yield tested.check("KFP back end", Server(host, profile, token_file).check())
    except FourfoldError as error:
        # What other commands call --namespace is about pods here.
        yield wrong(str(error).replace("--namespace", "--profile"), "see fourfold submit --help")


def _show(finding: Finding) -> None:
    mark, colour = MARKS[finding.level]
    click.echo(f"{click.style(f'{mark:<6}', fg=colour)} {finding.said}")
    if finding.do:
        click.echo(f"       -> {finding.do}")
