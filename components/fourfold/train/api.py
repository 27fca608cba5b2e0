"""The Kubernetes API, as far as launching needs it. The only module that knows the Kubernetes client.

Objects come and go as dictionaries. What goes wrong becomes an error that says verb, resource and namespace;
what may go away by itself is tried again, with a limit.
"""

import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import urllib3
from kubernetes import client, config, watch

from fourfold.contract.again import POD
from fourfold.contract.errors import ClusterError, ClusterUnavailableError
from fourfold.train.tfjob import CONTAINER, GROUP, JOB_NAME, PLURAL, VERSION

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
TIMES = (5.0, 30.0)
"""Seconds that a connection and an answer may take."""
WATCH_SECONDS = 240
"""After this long the API server ends a watch, and what is there is listed again."""
TRANSIENT = {429, 500, 502, 503, 504}


class ConflictError(ClusterError):
    """The object is not what the request takes it for."""


class AlreadyExistsError(ConflictError):
    """There is an object of this name already."""


class LogBrokenError(ClusterError):
    """The connection broke before the log's end."""


class WatchEndedError(ClusterError):
    """A watch ended: what is there must be listed again."""


class Api:
    """One namespace of a cluster.

    Args:
        namespace: empty for the one that this process runs in, or that the kubeconfig's context names.
        patience: seconds for which a request is tried while the API server does not answer.

    Raises:
        ClusterError: there is no cluster to talk to.
    """

    def __init__(self, namespace: str = "", patience: float = 60.0):
        self.patience = patience
        self._connect()
        self.namespace = namespace or _own_namespace()

    def _connect(self) -> None:
        """Reads the credentials; a token that a cluster gives to its pods changes with time."""
        settings = configuration()
        # Retries are ours: a create that is sent twice must be told from one that was there before.
        settings.retries = False  # pyright: ignore[reportAttributeAccessIssue]
        self._client = client.ApiClient(settings)
        self._core = client.CoreV1Api(self._client)
        self._custom = client.CustomObjectsApi(self._client)
        self._networking = client.NetworkingV1Api(self._client)

    def another(self) -> "Api":
        """The same namespace over connections of its own, for use from a signal's handler."""
        return Api(self.namespace, self.patience)

    def controller(self) -> dict[str, Any] | None:
        """A reference to what controls the pod that this process runs in; None outside a cluster.

        In Kubeflow that is the run's Workflow, elsewhere perhaps a Job.
        """
        name = os.environ.get(POD) or os.environ.get("HOSTNAME")
        if not in_cluster() or not name:
            return None
        try:
            pod = self._ask(
                "get", "pods", lambda: self._core.read_namespaced_pod(name, own_namespace(), **RAW)
            )
        except MissingError:
            return None
        references = pod["metadata"].get("ownerReferences") or []
        found = next((r for r in references if r.get("controller")), None)
        return found and {key: found[key] for key in ("apiVersion", "kind", "name", "uid")}

    def owns_here(self) -> bool:
        """Whether what controls our pod can own an object here: an owner is in the same namespace."""
        return in_cluster() and own_namespace() == self.namespace

    def create_job(self, job: dict[str, Any]) -> dict[str, Any]:
        """Creates a TFJob.

        Raises:
            AlreadyExistsError: there is one of this name.
            ClusterError: the operator is not installed, or this may not be done.
        """
        return self._ask(
            "create",
            PLURAL,
            lambda: self._custom.create_namespaced_custom_object(
                GROUP, VERSION, self.namespace, PLURAL, job, _request_timeout=TIMES
            ),
        )

    def job(self, name: str) -> dict[str, Any] | None:
        """A TFJob, or None where there is none."""
        try:
            return self._ask(
                "get",
                PLURAL,
                lambda: self._custom.get_namespaced_custom_object(
                    GROUP, VERSION, self.namespace, PLURAL, name, _request_timeout=TIMES
                ),
            )
        except MissingError:
            return None

    def delete_job(self, name: str, uid: str, patience: float | None = None) -> None:
        """Deletes a TFJob, and with it its pods, services and policy; no error where it is gone."""
        options = client.V1DeleteOptions(preconditions=client.V1Preconditions(uid=uid))
        try:
            self._ask(
                "delete",
                PLURAL,
                lambda: self._custom.delete_namespaced_custom_object(
                    GROUP, VERSION, self.namespace, PLURAL, name, body=options, _request_timeout=TIMES
                ),
                patience,
            )
        except (MissingError, ConflictError):
            return

    def create_policy(self, policy: dict[str, Any]) -> None:
        """Creates a network policy; no error where there is one of this name."""
        try:
            self._ask(
                "create",
                "networkpolicies",
                lambda: self._networking.create_namespaced_network_policy(self.namespace, policy, **RAW),
            )
        except AlreadyExistsError:
            return

    def complaints(self, uid: str) -> list[str]:
        """What the cluster's components warn of about a TFJob, by its uid, the last first."""
        selector = f"involvedObject.uid={uid},type=Warning"
        found = self._ask(
            "list",
            "events",
            lambda: self._core.list_namespaced_event(self.namespace, field_selector=selector, **RAW),
        )
        items = sorted(found["items"], key=lambda item: item.get("lastTimestamp") or "", reverse=True)
        return [f"{item.get('reason')}: {item.get('message')}" for item in items]

    def list_jobs(self, name: str) -> tuple[list[dict[str, Any]], str]:
        """The TFJob of a name, if it is there, and the version to watch from."""
        found = self._ask("list", PLURAL, lambda: self._list_jobs(name))
        return found["items"], found["metadata"]["resourceVersion"]

    def jobs(self, labels: str) -> list[dict[str, Any]]:
        """The TFJobs that a label selector fits."""
        return self._ask(
            "list",
            PLURAL,
            lambda: self._custom.list_namespaced_custom_object(
                GROUP, VERSION, self.namespace, PLURAL, label_selector=labels, _request_timeout=TIMES
            ),
        )["items"]

    def list_pods(self, job: str) -> tuple[list[dict[str, Any]], str]:
        """The pods of a TFJob, and the version to watch from."""
        found = self._ask("list", "pods", lambda: self._list_pods(job, **RAW))
        return found["items"], found["metadata"]["resourceVersion"]

    def watch_jobs(self, name: str, version: str) -> Iterator[tuple[str, dict[str, Any]]]:
        """Changes of the TFJob of a name since a version, as kind and object.

        Raises:
            WatchEndedError: the watch ended, whatever the reason.
            ClusterError: it may not be watched.
        """
        return self._watch(PLURAL, self._list_jobs, name, version)

    def watch_pods(self, job: str, version: str) -> Iterator[tuple[str, dict[str, Any]]]:
        """Changes of a TFJob's pods since a version, as kind and object; errors as for ``watch_jobs``."""
        return self._watch("pods", self._list_pods, job, version)

    def log(self, pod: str, since_seconds: int | None = None) -> Iterator[str]:
        """The lines of a pod's log, each with its time in front, until it ends.

        Raises:
            LogBrokenError: the connection broke.
            ClusterError: the log is not to be had, or not yet.
        """
        how: dict[str, Any] = {"since_seconds": since_seconds} if since_seconds else {}
        answer = self._ask(
            "get",
            "pods/log",
            lambda: self._core.read_namespaced_pod_log(
                pod, self.namespace, container=CONTAINER, follow=True, timestamps=True,
                _preload_content=False, _request_timeout=(TIMES[0], None), **how
            ),
            patience=0.0,
        )  # fmt: skip
        rest = b""
        try:
            for chunk in answer.stream(1 << 16):
                *lines, rest = (rest + chunk).split(b"\n")
                yield from (line.decode("utf-8", "replace") for line in lines)
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise LogBrokenError(f"the log of {pod} broke off: {error}") from error
        finally:
            answer.close()
        if rest:
            yield rest.decode("utf-8", "replace")

    def _list_jobs(self, name: str, **how: Any) -> Any:
        return self._custom.list_namespaced_custom_object(
            GROUP, VERSION, self.namespace, PLURAL, field_selector=f"metadata.name={name}",
            **{"_request_timeout": TIMES, **how},
        )  # fmt: skip

    def _list_pods(self, job: str, **how: Any) -> Any:
        return self._core.list_namespaced_pod(self.namespace, label_selector=f"{JOB_NAME}={job}", **how)

    def _watch(self, what: str, function: Callable, name: str, version: str) -> Iterator[tuple[str, Any]]:
        stream = watch.Watch(return_type=object).stream(
            function,
            name,
            resource_version=version,
            timeout_seconds=WATCH_SECONDS,
            _request_timeout=(TIMES[0], WATCH_SECONDS + 10),
        )
        try:
            event: Any
            for event in stream:
                if event["type"] in ("ADDED", "MODIFIED", "DELETED"):
                    yield str(event["type"]), event["raw_object"]
        except client.ApiException as error:
            if error.status == 401:
                self._connect()
            if error.status in (403, 404):
                raise self._told("watch", what, error) from error
            raise WatchEndedError(f"the watch of {what} ended: {error.status} {error.reason}") from error
        except (urllib3.exceptions.HTTPError, OSError, ValueError, LookupError) as error:
            raise WatchEndedError(f"the watch of {what} ended: {error}") from error
        raise WatchEndedError(f"the watch of {what} ended")

    def _ask(self, verb: str, what: str, request: Callable[[], Any], patience: float | None = None) -> Any:
        """Sends a request until it is answered, within limits, and gives the answer as a dictionary."""
        began, refused, pause = time.monotonic(), False, 0.2

        def is_over() -> bool:
            return time.monotonic() - began > (self.patience if patience is None else patience)

        while True:
            try:
                answer = request()
                return json.loads(answer.data) if _is_raw(answer) else answer
            except client.ApiException as error:
                if error.status == 401 and not refused:
                    refused = True
                    self._connect()
                    continue
                if error.status not in TRANSIENT or _is_about_a_webhook(error) or is_over():
                    raise self._told(verb, what, error) from error
            except (urllib3.exceptions.HTTPError, OSError) as error:
                if is_over():
                    raise ClusterUnavailableError(
                        f"cannot {verb} {what} in namespace {self.namespace}: the API server at "
                        f"{self._client.configuration.host} did not answer ({type(error).__name__})"
                    ) from error
            time.sleep(pause)
            pause = min(5.0, 2 * pause)

    def _told(self, verb: str, what: str, error: client.ApiException) -> ClusterError:
        """An answer of the API server as an error that says what to do."""
        said = _message(error)
        begin = f"cannot {verb} {what} in namespace {self.namespace}: "
        if error.status == 409:
            kind = AlreadyExistsError if "already exists" in said else ConflictError
            return kind(begin + said)
        if error.status == 403:
            return ClusterError(
                f"{begin}{said}. The role of manifests/base gives the rights that are needed: apply the "
                "manifests, and run as the service account fourfold"
            )
        if error.status == 401:
            return ClusterError(f"{begin}the API server does not accept our credentials; log in again")
        if error.status == 404 and what == PLURAL and not _is_about_an_object(error):
            return ClusterError(
                f"{begin}the cluster does not know TFJobs: install the Kubeflow training operator v1 (its "
                "successor, Trainer v2, has none)"
            )
        if error.status == 404:
            return MissingError(begin + said)
        if _is_about_a_webhook(error):
            return ClusterError(
                f"{begin}{said}; does the training operator run? (kubectl -n kubeflow get pods)"
            )
        if error.status in TRANSIENT:
            return ClusterUnavailableError(begin + said)
        return ClusterError(begin + said)


class MissingError(ClusterError):
    """There is no such object."""


RAW: dict[str, Any] = {"_preload_content": False, "_request_timeout": TIMES}


def configuration() -> client.Configuration:
    """How the API server is reached: from inside a cluster, else as the kubeconfig says.

    Raises:
        ClusterError: there is no cluster to talk to.
    """
    settings = client.Configuration()
    try:
        if in_cluster():
            config.load_incluster_config(client_configuration=settings)
        else:
            config.load_kube_config(client_configuration=settings)
    except config.ConfigException as error:
        raise ClusterError(
            f"no cluster to talk to: {error}; run inside a cluster, or let KUBECONFIG name a kubeconfig"
        ) from error
    if not settings.verify_ssl:
        # The kubeconfig says so; said at every request it would drown all else.
        urllib3.disable_warnings(urllib3.exceptions.InsecureRequestWarning)
    return settings


def in_cluster() -> bool:
    """Whether this process runs in a pod that may talk to its cluster."""
    return "KUBERNETES_SERVICE_HOST" in os.environ and (SERVICE_ACCOUNT / "token").exists()


def own_namespace() -> str:
    """The namespace of the pod that this process runs in."""
    return (SERVICE_ACCOUNT / "namespace").read_text().strip()


def _own_namespace() -> str:
    if in_cluster():
        return own_namespace()
    _, active = config.list_kube_config_contexts()
    return active["context"].get("namespace") or "default"


def _is_raw(answer: Any) -> bool:
    return hasattr(answer, "stream") and "json" in answer.headers.get("Content-Type", "")


def _message(error: client.ApiException) -> str:
    try:
        said = json.loads(error.body or "").get("message")
    except (ValueError, AttributeError):
        said = None
    return str(said or (error.body if isinstance(error.body, str) else "") or error.reason).strip()


def _is_about_an_object(error: client.ApiException) -> bool:
    """Whether an object is missing, by name, and not its whole kind."""
    return _message(error).endswith('" not found')


def _is_about_a_webhook(error: client.ApiException) -> bool:
    return error.status == 500 and "webhook" in _message(error)
