"""Reaches a cluster's store from outside: its settings, its account, and a way through to its server.

The steps run here and the workers there, and both use one store: the workers by its name in the cluster, we
by a port of our own that is forwarded. No credential is written anywhere; the steps inherit them.
"""

# The Kubernetes client's objects say of everything that it may be None.
# pyright: reportOptionalMemberAccess=false

import base64
import contextlib
import json
import os
import re
import select
import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import urllib3
import websocket
from kubernetes import client
from kubernetes.stream import ws_client

from fourfold.contract.errors import ClusterError, ClusterUnavailableError
from fourfold.contract.pods import CONFIG, Pods, read
from fourfold.train.api import configuration

IN_CLUSTER = re.compile(r"https?://([a-z0-9-]+)\.([a-z0-9-]+)(\.svc(\.cluster\.local)?)?(?::(\d+))?/?")
"""An endpoint that only the cluster's own name server knows: service, namespace, port."""
TIMES = (5, 30)
BROKEN = (
    client.ApiException,
    urllib3.exceptions.HTTPError,
    websocket.WebSocketException,
    OSError,
    LookupError,
    StopIteration,
)
"""What joining a connection may end with."""


@dataclass(frozen=True)
class Reached:
    """What was found in the cluster.

    Attributes:
        pods: what pods are given there.
        store: URI of the store.
        environment: what ``store.s3`` reads, for the steps that run here.
    """

    pods: Pods
    store: str
    environment: Mapping[str, str]


@contextlib.contextmanager
def reach(namespace: str, said: str = "{}") -> Iterator[Reached]:
    """Opens the way to a namespace's store, and closes it at the end.

    What the environment says of the store goes before what the cluster says.

    Args:
        namespace: that the manifests were applied to.
        said: of the pods, a JSON object; goes before what the cluster says.

    Raises:
        ClusterError: the cluster does not answer, or does not have what the manifests make.
        InvalidInputError: what is said of the pods cannot be used.
    """
    core = client.CoreV1Api(client.ApiClient(configuration()))
    settings = _data(core, core.read_namespaced_config_map, "ConfigMap", CONFIG, namespace)
    named = json.dumps({"namespace": namespace})
    pods = read(settings.get("FOURFOLD_PODS", "{}"), named, said)
    store = settings.get("FOURFOLD_STORE", "")
    secret, keys = pods.secret, (pods.access_key, pods.secret_key)
    environment = {}
    if "AWS_ACCESS_KEY_ID" not in os.environ and secret:
        held = _data(core, core.read_namespaced_secret, "Secret", secret, namespace)
        missing = [key for key in keys if key not in held]
        if missing:
            raise ClusterError(f"Secret {secret} in namespace {namespace} has no key {missing[0]}")
        for variable, key in zip(("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"), keys, strict=True):
            environment[variable] = base64.b64decode(held[key]).decode()
    if settings.get("AWS_REGION"):
        environment.setdefault("AWS_REGION", settings["AWS_REGION"])
    endpoint = settings.get("AWS_ENDPOINT_URL_S3", "")
    service = IN_CLUSTER.fullmatch(endpoint)
    if service is None or "AWS_ENDPOINT_URL_S3" in os.environ:
        if endpoint and "AWS_ENDPOINT_URL_S3" not in os.environ:
            environment["AWS_ENDPOINT_URL_S3"] = endpoint
        yield Reached(pods, store, environment)
        return
    name, where, port = service[1], service[2], int(service[5] or 80)
    with forward(core, name, where, port) as here:
        environment["AWS_ENDPOINT_URL_S3"] = f"{endpoint.partition('://')[0]}://127.0.0.1:{here}"
        yield Reached(pods, store, environment)


@contextlib.contextmanager
def forward(core: client.CoreV1Api, service: str, namespace: str, port: int) -> Iterator[int]:
    """Forwards a port of this machine to a service, as long as the context lasts.

    Each connection finds a pod that is ready then, so a server that is started again is found again.

    Yields:
        The port, on loopback.
    """
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            with contextlib.suppress(OSError):  # closed: the end of the context
                while True:
                    connection, _ = listening.accept()
                    threading.Thread(
                        target=_connect_through,
                        args=(connection, core, service, namespace, port),
                        daemon=True,
                    ).start()

        threading.Thread(target=serve, daemon=True).start()
        yield listening.getsockname()[1]


def _connect_through(
    near: socket.socket, core: client.CoreV1Api, service: str, namespace: str, port: int
) -> None:
    """Joins one connection to a pod of the service; what goes wrong closes it, and the client tries again."""
    with contextlib.suppress(*BROKEN), near:
        found = core.read_namespaced_service(service, namespace, _request_timeout=TIMES)
        place = next(index for index, item in enumerate(found.spec.ports) if item.port == port)
        ends = core.read_namespaced_endpoints(service, namespace, _request_timeout=TIMES)
        ready = next(subset for subset in ends.subsets or [] if subset.addresses)
        target = ready.ports[min(place, len(ready.ports) - 1)].port
        far = _tunnel(core, ready.addresses[0].target_ref.name, namespace, target)
        try:
            _pass_on(near, far)
        finally:
            far.shutdown()


def _tunnel(core: client.CoreV1Api, pod: str, namespace: str, port: int) -> websocket.WebSocket:
    """Opens the API server's way to a port of a pod."""
    settings = core.api_client.configuration
    api = client.CoreV1Api(client.ApiClient(settings))

    def request(method: str, url: str, **how: Any) -> Any:
        address = ws_client.get_websocket_url(url, how["query_params"])
        return ws_client.create_websocket(settings, address, how["headers"])

    api.api_client.request = request
    tunnel: Any = api.connect_get_namespaced_pod_portforward(
        pod, namespace, ports=str(port), _preload_content=False
    )
    return tunnel


def _pass_on(near: socket.socket, far: websocket.WebSocket) -> None:
    """Passes on all bytes, both ways, until one side ends.

    A message of the tunnel begins with a byte for its channel: 0 for data, 1 for errors. The first of each
    channel names the port.
    """
    named: set[int] = set()
    tunnel: Any = far.sock
    while True:
        # What TLS has decrypted already makes no socket ready.
        held = isinstance(tunnel, ssl.SSLSocket) and tunnel.pending()
        ready = [tunnel] if held else select.select([tunnel, near], [], [])[0]
        if near in ready:
            data = near.recv(1 << 16)
            if not data:
                return
            far.send_binary(b"\0" + data)
        if tunnel in ready:
            message = far.recv()
            if not message or (message[0] == 1 and 1 in named):
                return
            if message[0] in named:
                near.sendall(message[1:])  # pyright: ignore[reportArgumentType] - binary, as was asked for
            named.add(int(message[0]))


def _data(
    core: client.CoreV1Api, read_object: Callable[..., Any], kind: str, name: str, namespace: str
) -> dict[str, str]:
    """The data of a ConfigMap or Secret."""
    try:
        return read_object(name, namespace, _request_timeout=TIMES).data or {}
    except client.ApiException as error:
        if error.status == 404:
            raise ClusterError(
                f"there is no {kind} {name} in namespace {namespace}: apply manifests/overlays/kind (or "
                "another overlay) first, or name the namespace with --namespace"
            ) from error
        raise ClusterError(
            f"cannot read {kind} {name} in namespace {namespace}: {error.status} {error.reason}"
        ) from error
    except (urllib3.exceptions.HTTPError, OSError) as error:
        raise ClusterUnavailableError(
            f"the API server at {core.api_client.configuration.host} did not answer ({type(error).__name__})"
        ) from error
