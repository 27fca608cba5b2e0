"""A proxy before the real API server that passes all on, and changes single answers."""

import contextlib
import json
import select
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml
from kubernetes import client

from fourfold.train.api import configuration

Answer = tuple[int, Any]
"""Status and body; JSON, but for a text that is sent as it is."""
Change = Callable[[int, Any], Answer | None]
"""Makes of the real answer another one; None for none: the connection breaks off."""


@contextlib.contextmanager
def changed(changes: dict[tuple[str, str], Change], folder: Path) -> Iterator[Path]:
    """Runs the proxy; it asks with the credentials of the real kubeconfig, whoever asks it.

    Args:
        changes: by method and path, without the query.
        folder: for the kubeconfig.

    Yields:
        A kubeconfig whose API server is the proxy.
    """
    settings = configuration()

    class Handler(_Handler):
        upstream = client.ApiClient(settings)

    Handler.changes = changes
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    try:
        yield kubeconfig(folder / "changed.conf", f"http://127.0.0.1:{server.server_address[1]}", "any")
    finally:
        server.shutdown()
        server.server_close()


def kubeconfig(path: Path, host: str, token: str) -> Path:
    """Writes a kubeconfig for a user with a token; the server's certificate is not checked."""
    named = {"cluster": "tests", "user": "tests"}
    cluster: dict[str, Any] = {"server": host}
    if host.startswith("https"):
        cluster["insecure-skip-tls-verify"] = True
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "tests", "cluster": cluster}],
        "users": [{"name": "tests", "user": {"token": token}}],
        "contexts": [{"name": "tests", "context": named}],
        "current-context": "tests",
    }
    path.write_text(yaml.safe_dump(content))
    path.chmod(0o600)
    return path


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    upstream: client.ApiClient
    changes: dict[tuple[str, str], Change]

    def do_GET(self) -> None:  # noqa: N802 - the name that the base class calls
        if self.headers.get("Upgrade"):
            self._join()
        else:
            self._pass_on()

    def do_POST(self) -> None:  # noqa: N802
        self._pass_on()

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def _credentials(self) -> dict[str, str]:
        headers: dict[str, str] = {}
        self.upstream.update_params_for_auth(headers, [], ["BearerToken"])
        return headers

    def _pass_on(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        headers = {"Accept": "application/json", "Content-Type": "application/json", **self._credentials()}
        url = self.upstream.configuration.host + self.path
        found = self.upstream.rest_client.pool_manager.request(
            self.command, url, body=body or None, headers=headers, timeout=20.0
        )
        status, data = found.status, found.data
        change = self.changes.get((self.command, urlsplit(self.path).path))
        if change:
            answer = change(status, json.loads(data) if data[:1] == b"{" else data.decode())
            if answer is None:
                self.close_connection = True
                return
            status, said = answer
            data = said.encode() if isinstance(said, str) else json.dumps(said).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json" if data[:1] == b"{" else "text/plain")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _join(self) -> None:
        """Joins a connection that is about to become a websocket to one to the real server."""
        settings, place = self.upstream.configuration, urlsplit(self.upstream.configuration.host)
        assert place.hostname
        trust = ssl.create_default_context(cafile=settings.ssl_ca_cert)
        if not settings.verify_ssl:
            trust.check_hostname, trust.verify_mode = False, ssl.CERT_NONE
        if settings.cert_file:
            trust.load_cert_chain(settings.cert_file, settings.key_file)
        kept = [
            (name, value) for name, value in self.headers.items() if name not in ("Host", "authorization")
        ]
        head = [("Host", place.netloc), *kept, *self._credentials().items()]
        self.close_connection = True
        with (
            socket.create_connection((place.hostname, place.port or 443), 20.0) as plain,
            trust.wrap_socket(plain, server_hostname=place.hostname) as far,
        ):
            lines = [f"GET {self.path} HTTP/1.1", *(f"{name}: {value}" for name, value in head), "", ""]
            far.sendall("\r\n".join(lines).encode())
            with contextlib.suppress(OSError):
                _join_both(self.connection, far)


def _join_both(near: socket.socket, far: ssl.SSLSocket) -> None:
    while True:
        ready = [far] if far.pending() else select.select([near, far], [], [])[0]
        for here, there in ((near, far), (far, near)):
            if here in ready:
                data = here.recv(1 << 16)
                if not data:
                    return
                there.sendall(data)
