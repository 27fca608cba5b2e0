"""The API of Kubeflow Pipelines (v2beta1): what goes wrong says what to do."""

import json
import os
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

import kfp_server_api
import urllib3
from kfp_server_api.rest import RESTClientObject

from fourfold.contract.errors import ClusterError, ClusterUnavailableError, InvalidInputError

TIMES = (10.0, 60.0)
"""Seconds that a connection and an answer may take."""
PATIENCE = 120.0
"""Seconds for which a server that has answered before is asked again."""
TRANSIENT = {429, 500, 502, 503, 504}
TOKEN = Path("/var/run/secrets/kubeflow/pipelines/token")
"""Where Kubeflow mounts a token into notebooks that may use pipelines."""
PARAMETER_LENGTH = 10_000
"""Characters that the server takes of one run-time parameter."""


class Server:
    """One Kubeflow Pipelines server.

    Args:
        host: its URL, as a browser knows it; with a path, if it has one (``https://host/pipeline``).
        namespace: of the user's profile; empty where the installation has one user.
        token_file: with a bearer token, read anew for every request; None for the one that Kubeflow mounts.
        ca_file: certificates to trust, as PEM; None for the usual ones.
        sleep: waits for so many seconds.

    Raises:
        InvalidInputError: the host or the token's file cannot be used.
    """

    def __init__(
        self,
        host: str,
        namespace: str = "",
        token_file: Path | None = None,
        ca_file: Path | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ):
        self.host = host.rstrip("/").removesuffix("/#")
        if not self.host.startswith(("http://", "https://")):
            raise InvalidInputError(f"--host must be a URL, http://... or https://..., got {host!r}")
        self.namespace, self._sleep, self._answered = namespace, sleep, False
        self._token_file = token_file or _mounted_token()
        if self._token_file:
            _read_token(self._token_file)
        settings = kfp_server_api.Configuration(host=self.host)
        settings.retries = False  # pyright: ignore[reportAttributeAccessIssue]
        if ca_file:
            settings.ssl_ca_cert = str(ca_file)  # pyright: ignore[reportAttributeAccessIssue]
        # Not ApiClient: it sends a token only if it had one before, and fails on answers that are not UTF-8.
        self._client = RESTClientObject(settings)

    def check(self) -> str:
        """Checks that the server is one, takes us, and is of the kind that ``namespace`` says.

        Returns:
            Its version, or what it calls itself.

        Raises:
            InvalidInputError: a namespace is wanted and none is given, or the other way round.
            ClusterError: what answers is no such server, or does not take us.
        """
        found = self.ask("GET", "/apis/v2beta1/healthz")
        # The API's own answer has the first names; the front end, which answers in its place, the last two.
        version = found.get("tag_name") or found.get("apiServerTagName") or ""
        if found.get("apiServerReady") is False:
            raise ClusterUnavailableError(
                f"at {self.host} is Kubeflow's front end, but the API behind it, ml-pipeline, does not answer"
            )
        if not version and "multi_user" not in found:
            raise ClusterError(f"what answers at {self.host} is no Kubeflow Pipelines API")
        several = bool(found.get("multi_user"))
        if several and not self.namespace:
            raise InvalidInputError(
                f"Kubeflow at {self.host} has several users: name your profile's namespace with --namespace"
            )
        if not several and self.namespace:
            raise InvalidInputError(
                f"Kubeflow at {self.host} has one user and no profiles: leave --namespace away"
            )
        # Asked besides: this answers only whom it knows.
        self.experiments("fourfold")
        return version or "of unknown version"

    def experiments(self, name: str) -> list[dict[str, Any]]:
        """The experiments of a name; names are unique in a namespace."""
        query = {"filter": _has("display_name", name), **self._in_namespace()}
        return self.ask("GET", "/apis/v2beta1/experiments", query).get("experiments") or []

    def experiment(self, name: str) -> str:
        """The id of the experiment of a name, which is made if there is none."""
        found = self.experiments(name)
        if not found:
            body = {"display_name": name, **self._in_namespace()}
            found = [self.ask("POST", "/apis/v2beta1/experiments", body=body)]
        return found[0]["experiment_id"]

    def pipeline(self, name: str, description: str) -> str:
        """The id of the pipeline of a name, which is made, without versions, if there is none."""
        # What is unique is the name; the display name is not.
        query = {"filter": _has("name", name), **self._in_namespace()}
        found = self.ask("GET", "/apis/v2beta1/pipelines", query).get("pipelines")
        if not found:
            body = {"display_name": name, "name": name, "description": description, **self._in_namespace()}
            found = [self.ask("POST", "/apis/v2beta1/pipelines", body=body)]
        return found[0]["pipeline_id"]

    def version_of(self, pipeline: str, name: str, package: Path) -> tuple[str, bool]:
        """The id of a version of a pipeline, which is uploaded if it is not there.

        Args:
            pipeline: its id.
            name: of the version; the same name stands for the same content.
            package: the compiled YAML.

        Returns:
            The id, and whether it was uploaded now.
        """
        query = {"filter": _has("name", name)}
        path = f"/apis/v2beta1/pipelines/{pipeline}/versions"
        found = self.ask("GET", path, query).get("pipeline_versions")
        if found:
            return found[0]["pipeline_version_id"], False
        made = self.ask(
            "POST",
            "/apis/v2beta1/pipelines/upload_version",
            {"name": name, "pipelineid": pipeline},
            file=package,
        )
        return made["pipeline_version_id"], True

    def run(
        self,
        name: str,
        experiment: str,
        pipeline: str,
        version: str,
        parameters: Mapping[str, Any],
        account: str,
    ) -> str:
        """Starts a run.

        Args:
            name: of the run, for people.
            experiment: its id.
            pipeline: id of the pipeline.
            version: id of its version.
            parameters: by name; what is left out has the pipeline's default.
            account: service account of the run's pods; empty for the usual one.

        Returns:
            The run's id.
        """
        body = {
            "display_name": name,
            "experiment_id": experiment,
            "pipeline_version_reference": {"pipeline_id": pipeline, "pipeline_version_id": version},
            "runtime_config": {"parameters": dict(parameters)},
            **({"service_account": account} if account else {}),
        }
        return self.ask("POST", "/apis/v2beta1/runs", body=body)["run_id"]

    def state(self, run: str) -> dict[str, Any]:
        """A run as the server tells it."""
        return self.ask("GET", f"/apis/v2beta1/runs/{run}")

    def log(self, run: str, names: Iterable[str], created: str = "") -> str:
        """The log of a step's pod, as the front end serves it; empty where it does not, or not yet.

        Args:
            run: its id.
            names: that the pod may have.
            created: the day of the run, YYYY-MM-DD, by which some installations archive logs.
        """
        query = {"runid": run, **({"createdat": created} if created else {})}
        if self.namespace:
            query["podnamespace"] = self.namespace
        for name in names:
            try:
                found = self._send("GET", "/k8s/pod/logs", {**query, "podname": name}, patience=0.0)
            except ClusterError:
                continue
            if not _is_page(found):
                return found
        return ""

    def page(self, run: str) -> str:
        """Where a browser shows a run."""
        return f"{self.host}/#/runs/details/{run}"

    def ask(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        body: Any = None,
        file: Path | None = None,
    ) -> dict[str, Any]:
        """Asks the API. A request that changes nothing is sent again while a server that answered is away.

        Raises:
            ClusterError: the server refuses, is away, or what answers is none.
            InvalidInputError: the token's file cannot be used any more.
        """
        text = self._send(method, path, query, body, file)
        try:
            found = json.loads(text)
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise ClusterError(
                f"what answers at {self.host} is no Kubeflow Pipelines API but a page, perhaps the one to "
                f"log in with: {_how_to_log_in()}"
            )
        self._answered = True
        return found

    def _send(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        body: Any = None,
        file: Path | None = None,
        patience: float = PATIENCE,
    ) -> str:
        began, pause = time.monotonic(), 1.0
        while True:
            headers = {
                "Accept": "application/json",
                "Content-Type": "multipart/form-data" if file else "application/json",
            }
            if self._token_file:
                # Read anew: a token that a cluster gives out changes with time.
                headers["Authorization"] = f"Bearer {_read_token(self._token_file)}"
            try:
                answer = self._client.request(
                    method,
                    self.host + path,
                    query_params=list((query or {}).items()),
                    headers=headers,
                    body=body,
                    post_params=[("uploadfile", (file.name, file.read_bytes()))] if file else None,
                    _request_timeout=TIMES,
                )
                return answer.data.decode("utf-8", "replace")
            except kfp_server_api.ApiException as error:
                if error.status not in TRANSIENT or method != "GET" or not self._may_wait(began, patience):
                    raise self._told(method, path, error) from error
            except (urllib3.exceptions.HTTPError, OSError) as error:
                if method != "GET" or not self._may_wait(began, patience):
                    raise ClusterUnavailableError(
                        f"Kubeflow at {self.host} does not answer ({_cause(error)}): is the address right? A "
                        "port is forwarded by: kubectl -n kubeflow port-forward svc/ml-pipeline-ui 8080:80"
                    ) from error
            self._sleep(pause)
            pause = min(10.0, 2 * pause)

    def _in_namespace(self) -> dict[str, str]:
        return {"namespace": self.namespace} if self.namespace else {}

    def _may_wait(self, began: float, patience: float) -> bool:
        return self._answered and time.monotonic() - began < patience

    def _told(self, method: str, path: str, error: kfp_server_api.ApiException) -> ClusterError:
        """An answer of the server as an error that says what to do."""
        said = _message(error)
        if not error.status:
            return ClusterError(
                f"the certificate of {self.host} cannot be trusted ({said}): name the one that signed it "
                "with --ca-file FILE"
            )
        begin = f"Kubeflow at {self.host} refuses {method} {path}: {error.status} {said}"
        if 300 <= error.status < 400:
            where = (error.headers or {}).get("Location") or "nowhere"
            return ClusterError(
                f"{begin}. It sends us to {where.split('?')[0]!r}: if that is where people log in, "
                f"{_how_to_log_in()}; if Kubeflow has moved, name that place with --host"
            )
        if error.status == 401:
            return ClusterError(f"{begin}. It does not know who asks: {_how_to_log_in()}")
        if error.status == 403:
            where = f"namespace {self.namespace!r}" if self.namespace else "this installation"
            return ClusterError(
                f"{begin}. It knows who asks, and that may not do this in {where}: is it your profile's, "
                "or one that its owner has shared with you? Does the token belong to a service account that "
                "may use it?"
            )
        if error.status in TRANSIENT:
            return ClusterUnavailableError(begin)
        return ClusterError(begin)


def check_lengths(parameters: Mapping[str, Any]) -> None:
    """Refuses parameters of a run that the server would refuse.

    Raises:
        InvalidInputError: one is too long.
    """
    for name, value in parameters.items():
        length = len(value if isinstance(value, str) else json.dumps(value))
        if length > PARAMETER_LENGTH:
            raise InvalidInputError(
                f"the parameter {name} has {length:,} characters; Kubeflow takes {PARAMETER_LENGTH:,}. What "
                "is longer belongs into the store, or into what is chosen when compiling"
            )


def _how_to_log_in() -> str:
    return (
        "give --token-file FILE with a bearer token, such as of: kubectl -n NAMESPACE create token "
        "default-editor --audience pipelines.kubeflow.org"
    )


def _mounted_token() -> Path | None:
    named = os.environ.get("KF_PIPELINES_SA_TOKEN_PATH")
    if named:
        return Path(named)
    return TOKEN if TOKEN.exists() else None


def _read_token(path: Path) -> str:
    try:
        token = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInputError(f"cannot read the token in {path}: {error}") from error
    if not token or not token.isascii() or any(character.isspace() for character in token):
        raise InvalidInputError(f"{path} holds no token: it must hold one word, the token alone")
    return token


def _has(key: str, value: str) -> str:
    """A filter. The server decodes it once more than what it stands in."""
    predicate = {"operation": "EQUALS", "key": key, "stringValue": value}
    return quote(json.dumps({"predicates": [predicate]}))


def _is_page(text: str) -> bool:
    begin = text[:200].lower()
    return "<html" in begin or "<!doctype html" in begin


def _message(error: kfp_server_api.ApiException) -> str:
    """What the server says, without the trace that it may add."""
    body = error.body.decode("utf-8", "replace") if isinstance(error.body, bytes) else str(error.body or "")
    try:
        found = json.loads(body)
        said = found.get("message") or found.get("error_message") or found.get("error")
    except (ValueError, AttributeError):
        said = "" if _is_page(body) else body
    return str(said or error.reason or "").strip().split("\n")[0][:500]


def _cause(error: BaseException) -> str:
    reason = getattr(error, "reason", None)
    return type(reason if isinstance(reason, BaseException) else error).__name__
