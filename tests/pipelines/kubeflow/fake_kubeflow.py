"""A Kubeflow Pipelines server on loopback: real HTTP, objects in memory, answers like those of version 2.17.

It stands for the front end (ml-pipeline-ui) with the API behind it. A test scripts what a run goes through
(``script``) and which requests go wrong (``wrong``); nothing happens by itself.
"""

import email
import json
import ssl
import threading
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, unquote_plus, urlsplit

from tests.pipelines.kubeflow.fake_workflow import CREATED, Scene

VERSION = "2.17.0"
PAGE = "<!DOCTYPE html><html><head><title>Log in to Your Account</title></head></html>"
API = "/apis/v2beta1"
GRPC = {400: 3, 401: 16, 403: 7, 404: 5, 409: 6, 500: 13, 503: 14}
Answer = tuple[int, Any]


@dataclass
class Request:
    """One request as it came."""

    method: str
    path: str
    query: dict[str, str]
    body: Any
    token: str


def refused(status: int, message: str) -> Answer:
    """An error as the gateway before the API words it."""
    details = [{"@type": "type.googleapis.com/google.rpc.Status", "message": "a trace\nat main.go:1"}]
    return status, {"error": message, "code": GRPC[status], "message": message, "details": details}


class FakeKubeflow:
    """The server; ``with`` it, requests are answered.

    Attributes:
        users: namespaces by the tokens that may use them; None where there is one user and no log-in.
        prefix: of all paths.
        front_end: whether the front end answers for the API's health.
        tls: with which it speaks; None for plain HTTP.
        requests: all that came.
        uploads: content of versions, by their ids.
        script: what a run goes through; the last scene stays.
    """

    users: Mapping[str, set[str]] | None = None
    front_end: bool = True
    tls: ssl.SSLContext | None = None

    def __init__(self, prefix: str = "", **how: Any):
        self.prefix = prefix
        vars(self).update(how)
        self.requests: list[Request] = []
        self.experiments: list[dict[str, Any]] = []
        self.pipelines: list[dict[str, Any]] = []
        self.versions: list[dict[str, Any]] = []
        self.runs: dict[str, dict[str, Any]] = {}
        self.uploads: dict[str, bytes] = {}
        self.script: list[Scene] = []
        self._wrong: list[tuple[str, Any]] = []
        self._logs: dict[str, str] = {}
        self._port = 0
        self._server: ThreadingHTTPServer | None = None

    def __enter__(self) -> "FakeKubeflow":
        self.come_back()
        return self

    def __exit__(self, *_: object) -> None:
        self.go_away()

    @property
    def host(self) -> str:
        return f"http{'s' if self.tls else ''}://127.0.0.1:{self._port}{self.prefix}"

    def come_back(self) -> None:
        handler = type("Handler", (_Handler,), {"kubeflow": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", self._port), handler)
        self._port = self._server.server_port
        if self.tls:
            self._server.socket = self.tls.wrap_socket(self._server.socket, server_side=True)
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def go_away(self) -> None:
        server, self._server = self._server, None
        if server:
            server.shutdown()
            server.server_close()

    def wrong(self, path: str, answer: Answer | None, times: int = 1) -> None:
        """The next requests for a path get this answer; None for a connection that ends without one."""
        self._wrong += [(path, answer)] * times

    def asked(self, method: str, path: str) -> list[Request]:
        """The requests for a path."""
        return [r for r in self.requests if r.method == method and r.path == path]

    def answer(self, asked: Request) -> Answer | None:
        self.requests.append(asked)
        for found in self._wrong:
            if found[0] == asked.path:
                self._wrong.remove(found)
                return found[1]
        if asked.path == f"{API}/healthz":
            return 200, self._health()
        if denied := self._denied(asked):
            return denied
        match asked.method, asked.path.removeprefix(API).strip("/").split("/"):
            case "GET", ["k8s", "pod", "logs"]:
                return self._log(asked.query)
            case "POST", ["pipelines", "upload_version"]:
                return self._upload(asked)
            case "GET", ["experiments"]:
                return self._found("experiments", self.experiments, asked.query)
            case "POST", ["experiments"]:
                return self._made(self.experiments, "experiment_id", "display_name", asked.body)
            case "GET", ["pipelines"]:
                return self._found("pipelines", self.pipelines, asked.query)
            case "POST", ["pipelines"]:
                return self._made(self.pipelines, "pipeline_id", "name", asked.body)
            case "GET", ["pipelines", pipeline, "versions"]:
                mine = [version for version in self.versions if version["pipeline_id"] == pipeline]
                return self._found("pipeline_versions", mine, asked.query)
            case "POST", ["runs"]:
                run = {**asked.body, "run_id": str(uuid.uuid4()), "state": "PENDING", "created_at": CREATED}
                self.runs[run["run_id"]] = run
                return 200, run
            case "GET", ["runs", run] if run in self.runs:
                scene = self.script.pop(0) if len(self.script) > 1 else self.script[0]
                self._logs = scene.logs
                return 200, {**self.runs[run], **scene.run}
        return refused(404, f"ResourceNotFoundError: {asked.path} not found")

    def _health(self) -> dict[str, Any]:
        several = self.users is not None
        if not self.front_end:
            return {
                "commit_sha": "c",
                "tag_name": VERSION,
                "multi_user": several,
                "pipeline_store": "database",
            }
        told = {"apiServerCommitHash": "c", "apiServerTagName": VERSION, "apiServerReady": True}
        return {**told, "apiServerMultiUser": several, "multi_user": several, "frontendTagName": VERSION}

    def _denied(self, asked: Request) -> Answer | None:
        if self.users is None:
            return None
        theirs = self.users.get(asked.token)
        if theirs is None:
            return refused(401, "User identity is empty in the request header")
        body = asked.body if isinstance(asked.body, dict) else {}
        named = asked.query.get("podnamespace") or asked.query.get("namespace") or body.get("namespace")
        if named is None or named in theirs:
            return None
        return refused(403, f"User 'a' is not authorized with reason: (request: namespace {named})")

    def _found(self, name: str, rows: list[dict[str, Any]], query: Mapping[str, str]) -> Answer:
        if self.users is not None and name != "pipeline_versions" and not query.get("namespace"):
            return refused(400, f"Invalid input error: {name} cannot have an empty namespace")
        rows = [row for row in rows if row.get("namespace", "") == query.get("namespace", "")]
        # The gateway decodes the query, and the API what stands in it.
        for predicate in json.loads(unquote_plus(query.get("filter", "{}"))).get("predicates", []):
            if predicate["key"] not in ("name", "display_name") or predicate["operation"] not in (
                "EQUALS",
                1,
            ):
                return refused(400, f"no support for filtering on unrecognized field {predicate['key']!r}")
            rows = [row for row in rows if row.get(predicate["key"]) == predicate["stringValue"]]
        return 200, {name: rows, "total_size": len(rows)} if rows else {}

    def _made(self, rows: list[dict[str, Any]], key: str, unique: str, body: dict[str, Any]) -> Answer:
        same = (body[unique], body.get("namespace"))
        if any((row[unique], row.get("namespace")) == same for row in rows):
            return refused(409, f"Already exist error: the name {body[unique]} already exists")
        rows.append({**body, key: str(uuid.uuid4()), "created_at": CREATED})
        return 200, rows[-1]

    def _upload(self, asked: Request) -> Answer:
        name, pipeline = asked.query["name"], asked.query["pipelineid"]
        told = {
            "error_message": "Failed to create a pipeline version",
            "error_details": "a trace\nat main.go",
        }
        if not any(row["pipeline_id"] == pipeline for row in self.pipelines):
            return 400, told
        if any((row["name"], row["pipeline_id"]) == (name, pipeline) for row in self.versions):
            return 409, told
        version = {"pipeline_id": pipeline, "name": name, "display_name": name}
        self.versions.append({**version, "pipeline_version_id": str(uuid.uuid4())})
        self.uploads[self.versions[-1]["pipeline_version_id"]] = asked.body
        return 200, self.versions[-1]

    def _log(self, query: Mapping[str, str]) -> Answer:
        if self.users is not None and "podnamespace" not in query:
            return 422, "podnamespace argument is required"
        found = self._logs.get(query.get("podname", ""))
        return (500, "Could not get main container logs: Error: not found") if found is None else (200, found)


class _Handler(BaseHTTPRequestHandler):
    kubeflow: FakeKubeflow
    protocol_version = "HTTP/1.1"

    def _serve(self) -> None:
        url = urlsplit(self.path)
        data = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        kind, _, token = (self.headers.get("Authorization") or "").partition(" ")
        path, query = url.path.removeprefix(self.kubeflow.prefix), dict(parse_qsl(url.query))
        asked = Request(self.command, path, query, self._body(data), token if kind == "Bearer" else "")
        found = self.kubeflow.answer(asked)
        if found is None:
            self.close_connection = True
            return
        status, body = found
        data = body if isinstance(body, (str, bytes)) else json.dumps(body)
        data = data.encode() if isinstance(data, str) else data
        self.send_response(status)
        if status in (301, 302, 303, 307):
            self.send_header("Location", "https://dex.example.org/auth?state=s3cret")
        self.send_header("Content-Type", "application/json" if isinstance(body, dict) else "text/plain")
        self.send_header("Content-Length", str(len(data)))
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(data)

    def _body(self, data: bytes) -> Any:
        kind = self.headers.get("Content-Type") or ""
        if not kind.startswith("multipart/form-data"):
            return json.loads(data) if data else None
        form = email.message_from_bytes(f"Content-Type: {kind}\r\n\r\n".encode() + data)
        part = next(part for part in form.walk() if part.get_param("name", header="content-disposition"))
        assert str(part.get_filename()).endswith(".yaml")
        return part.get_payload(decode=True)

    def log_message(self, *_: object) -> None:
        """Keeps tests quiet."""

    do_GET = do_POST = _serve  # noqa: N815 - the names that the base class calls
