"""An API server for TFJobs that fails when a test says so: plain HTTP on loopback, objects in memory.

A test makes objects (``put``, ``write``) and says which requests fail (``refuse``, ``lose``, ``hold``,
``break_watches``). Nothing happens by itself.
"""

import contextlib
import copy
import json
import re
import socket
import threading
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partialmethod
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

NAMESPACE = "lab"
PATH = re.compile(
    rf"/(?:api/v1|apis/kubeflow\.org/v1|apis/networking\.k8s\.io/v1)/namespaces/{NAMESPACE}"
    r"/(?P<what>tfjobs|pods|events|networkpolicies)(?:/(?P<name>[^/]+)(?P<log>/log)?)?"
)
ENDED = ("Succeeded", "Failed")
Answer = tuple[int, Any]


@dataclass
class Request:
    """One request as the server understood it; what it asks for is called ``what``, as in a role."""

    verb: str
    what: str
    name: str
    query: dict[str, str]
    body: dict[str, Any]
    token: str
    breaks: int = 0
    """How many times watches of this kind had been broken before."""


@dataclass
class Fault:
    """What goes wrong with the next requests of a kind."""

    verb: str
    what: str
    times: float = 1
    answer: Answer | None = None
    loses_answer: bool = False
    before: threading.Event | None = None
    after: threading.Event | None = None


def status(code: int, message: str, reason: str = "") -> Answer:
    """A refusal in the words of the API server."""
    return code, {
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": reason, "code": code,
    }  # fmt: skip


def stamp(seconds: float = 0.0) -> str:
    """The time so many seconds from now, as a log has it."""
    return datetime.fromtimestamp(time.time() + seconds, UTC).isoformat().replace("+00:00", "Z")


class FakeCluster:
    """The server. It keeps the ``requests`` and lets in the tokens that it ``accepts``, or all."""

    def __init__(self, kubeconfig: Path):
        self.requests: list[Request] = []
        self.accepts: set[str] | None = None
        self.log_breaks: dict[str, list[int]] = defaultdict(list)
        """Of a pod: the bytes after which its first, second, ... log connection breaks."""
        self.changed = threading.Condition()
        self.closed = False
        self.objects: dict[str, dict[str, dict[str, Any]]] = defaultdict(dict)
        self.lines: dict[str, list[tuple[str, str]]] = defaultdict(list)
        self.history: list[tuple[int, str, str, dict[str, Any]]] = []
        self.breaks: dict[str, list[tuple[bytes, bool]]] = defaultdict(list)
        self._faults: list[Fault] = []
        self._version = 1000
        self.connections: set[Any] = set()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        self._server.block_on_close = False
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()
        self.kubeconfig = kubeconfig
        self.give_token("first")

    def give_token(self, token: str) -> None:
        """Writes the kubeconfig, with this token in it."""
        url = f"http://127.0.0.1:{self._server.server_address[1]}"
        content = {
            "clusters": [{"name": "fake", "cluster": {"server": url}}],
            "users": [{"name": "me", "user": {"token": token}}],
            "contexts": [{"name": "c", "context": {"cluster": "fake", "user": "me", "namespace": NAMESPACE}}],
            "current-context": "c",
        }
        self.kubeconfig.write_text(json.dumps(content))

    def stop(self) -> None:
        """The server is gone, with all connections."""
        if self.closed:
            return
        with self.changed:
            self.closed = True
            self.changed.notify_all()
        for event in [event for fault in self._faults for event in (fault.before, fault.after) if event]:
            event.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        for connection in list(self.connections):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    # What goes wrong.

    def refuse(self, verb: str, what: str, answer: Answer, times: float = 1) -> None:
        """The next requests of a kind are answered so."""
        self._faults.append(Fault(verb, what, times, answer))

    def lose(self, verb: str, what: str) -> None:
        """The next request of a kind is done, and the connection closed without an answer."""
        self._faults.append(Fault(verb, what, loses_answer=True))

    def hold(self, verb: str, what: str, done: bool = False) -> threading.Event:
        """The next request of a kind waits until the event is set; its answer alone, where it is done."""
        event = threading.Event()
        self._faults.append(Fault(verb, what, after=event) if done else Fault(verb, what, before=event))
        return event

    def break_watches(self, what: str, last: bytes = b"", clean: bool = False) -> None:
        """Ends all watches of a kind, in this text; clean as when their time is up."""
        with self.changed:
            self.breaks[what].append((last, clean))
            self.changed.notify_all()

    # What is looked at.

    def asked(self, verb: str, what: str) -> list[Request]:
        """The requests of a kind until now."""
        return [request for request in self.requests if (request.verb, request.what) == (verb, what)]

    def until(self, condition: Callable[[], Any], seconds: float = 20.0) -> Any:
        """Waits until something holds, and gives it."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if found := condition():
                return found
            with self.changed:
                self.changed.wait(0.02)
        raise AssertionError(
            f"not within {seconds} s; asked for: {[(r.verb, r.what) for r in self.requests]}"
        )

    def job(self) -> str:
        """The name of the job that was created last, when there is one."""
        return self.until(lambda: list(self.objects["tfjobs"]))[-1]

    # What the operator and the kubelet do.

    def put(self, what: str, thing: dict[str, Any]) -> dict[str, Any]:
        """Makes an object, or changes it."""
        with self.changed:
            meta = thing["metadata"]
            change = "MODIFIED" if meta["name"] in self.objects[what] else "ADDED"
            meta.setdefault("uid", str(uuid.uuid4()))
            meta.setdefault("creationTimestamp", datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"))
            self.objects[what][meta["name"]] = thing
            return self._record(what, change, thing)

    def remove(self, what: str, name: str) -> None:
        """Takes an object away; a job's pods go with it."""
        with self.changed:
            thing = self.objects[what].pop(name)
            self._record(what, "DELETED", thing)
            if what == "tfjobs":
                for pod in [n for n, p in self.objects["pods"].items() if name in _labels(p).values()]:
                    self.remove("pods", pod)

    def write(self, pod: str, text: str, at: str = "") -> None:
        """Writes a line to a pod's log; the time may be said."""
        with self.changed:
            self.lines[pod].append((at or stamp(), text))
            self.changed.notify_all()

    # What the handler asks.

    def meet(self, request: Request) -> Fault | None:
        """Keeps a request and tells what goes wrong with it."""
        with self.changed:
            request.breaks = len(self.breaks[request.what])
            self.requests.append(request)
            self.changed.notify_all()
            for fault in self._faults:
                if fault.times > 0 and (fault.verb, fault.what) == (request.verb, request.what):
                    fault.times -= 1
                    return fault
        return None

    def answer(self, request: Request) -> Answer:
        """Does what a request asks for, where the answer is one object."""
        with self.changed:
            things = self.objects[request.what]
            if request.verb == "list":
                items = [thing for thing in things.values() if _selects(request, thing)]
                return 200, {"items": items, "metadata": {"resourceVersion": str(self._version)}}
            if request.verb == "create":
                name = request.body["metadata"]["name"]
                if name in things:
                    return status(409, f'{request.what} "{name}" already exists', "AlreadyExists")
                return 201, self.put(request.what, request.body)
            if request.name not in things:
                return status(404, f'{request.what} "{request.name}" not found', "NotFound")
            if request.verb == "delete":
                uid = (request.body.get("preconditions") or {}).get("uid")
                if uid not in (None, things[request.name]["metadata"]["uid"]):
                    return status(409, "the UID in the precondition does not match", "Conflict")
                self.remove(request.what, request.name)
                return status(200, "deleted")
            return 200, things[request.name]

    def watch(self, request: Request) -> Iterator[tuple[bytes, bool]]:
        """The pieces of a watch, each with whether it goes on; it ends in silence where it breaks."""
        seen = int(request.query["resourceVersion"])
        while True:
            with self.changed:
                news = [entry for entry in self.history if entry[0] > seen and entry[1] == request.what]
                ends = self.breaks[request.what][request.breaks :]
                if not news and not ends and not self.closed:
                    self.changed.wait()
                    continue
            for version, _, change, thing in news:
                seen = version
                if _selects(request, thing):
                    yield json.dumps({"type": change, "object": thing}).encode() + b"\n", True
            if ends or self.closed:
                last, clean = ends[0] if ends else (b"", False)
                yield last, True
                yield b"", clean
                return

    def log(self, request: Request) -> Iterator[bytes]:
        """The pieces of a log, until the pod has ended."""
        since = stamp(-float(request.query.get("sinceSeconds", "1e9")))
        uid = self.objects["pods"][request.name]["metadata"]["uid"]
        done = 0
        while True:
            with self.changed:
                pod = self.objects["pods"].get(request.name)
                if not pod or pod["metadata"]["uid"] != uid:
                    return
                lines = self.lines[request.name][done:]
                done += len(lines)
                ended = pod["status"]["phase"] in ENDED or "follow" not in request.query
                if not lines and not ended and not self.closed:
                    self.changed.wait()
                    continue
            yield from (
                f"{at} {text}\n".encode(errors="surrogateescape") for at, text in lines if at >= since
            )
            if not lines:
                return

    def _record(self, what: str, change: str, thing: dict[str, Any]) -> dict[str, Any]:
        self._version += 1
        thing["metadata"]["resourceVersion"] = str(self._version)
        self.history.append((self._version, what, change, copy.deepcopy(thing)))
        self.changed.notify_all()
        return copy.deepcopy(thing)


def _labels(thing: dict[str, Any]) -> dict[str, str]:
    return thing["metadata"].get("labels") or {}


def _selects(request: Request, thing: dict[str, Any]) -> bool:
    fields = {"metadata.name": thing["metadata"]["name"], "type": thing.get("type")}
    fields["involvedObject.uid"] = (thing.get("involvedObject") or {}).get("uid")
    for selector, values in (("fieldSelector", fields), ("labelSelector", _labels(thing))):
        for term in filter(None, request.query.get(selector, "").split(",")):
            key, _, value = term.partition("=")
            if values.get(key) != value:
                return False
    return True


def _handler(cluster: FakeCluster) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def setup(self) -> None:
            super().setup()
            cluster.connections.add(self.connection)

        def finish(self) -> None:
            cluster.connections.discard(self.connection)
            super().finish()

        def log_message(self, format: str, *args: Any) -> None:
            return

        def handle(self) -> None:
            # The other side may be gone.
            with contextlib.suppress(OSError):
                super().handle()

        def _do(self, verb: str) -> None:
            request = self._read(verb)
            fault = cluster.meet(request) or Fault(verb, request.what)
            if fault.before:
                fault.before.wait()
            token = request.token.removeprefix("Bearer ")
            if fault.answer:
                self._send(*fault.answer)
            elif cluster.accepts is not None and token not in cluster.accepts:
                self._send(*status(401, "Unauthorized", "Unauthorized"))
            elif request.verb == "watch":
                self._watch(request)
            elif request.what == "pods/log":
                self._log(request)
            else:
                answer = cluster.answer(request)
                if fault.after:
                    fault.after.wait()
                self.close_connection = fault.loses_answer or cluster.closed
                if not self.close_connection:
                    self._send(*answer)

        do_GET = partialmethod(_do, "get")  # noqa: N815
        do_POST = partialmethod(_do, "create")  # noqa: N815
        do_DELETE = partialmethod(_do, "delete")  # noqa: N815

        def _read(self, verb: str) -> Request:
            url = urlsplit(self.path)
            found = PATH.fullmatch(url.path)
            assert found, f"no such path: {self.path}"
            query = dict(parse_qsl(url.query))
            what = found["what"] + (found["log"] or "")
            if verb == "get" and not found["name"]:
                verb = "watch" if query.get("watch") else "list"
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            token = self.headers.get("Authorization") or ""
            return Request(verb, what, found["name"] or "", query, json.loads(body or b"{}"), token)

        def _send(self, code: int, content: Any) -> None:
            """Sends one answer: text as text, all else as JSON."""
            text = isinstance(content, str)
            data = content.encode() if text else json.dumps(content).encode()
            self.send_response(code)
            self.send_header("Content-Type", "text/plain; charset=utf-8" if text else "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def _watch(self, request: Request) -> None:
            self._begin("application/json")
            for piece, goes_on in cluster.watch(request):
                if piece:
                    self._chunk(piece)
                elif not goes_on:
                    self.close_connection = True
                    return
            self._chunk(b"")

        def _log(self, request: Request) -> None:
            if request.name not in cluster.objects["pods"]:
                self._send(*status(404, f'pods "{request.name}" not found', "NotFound"))
                return
            breaks = cluster.log_breaks[request.name]
            left = breaks.pop(0) if breaks else None
            self._begin("text/plain")
            for piece in cluster.log(request):
                self._chunk(piece[:left])
                if left is not None and (left := left - len(piece)) <= 0:
                    self.close_connection = True
                    return
            self._chunk(b"")

        def _begin(self, kind: str) -> None:
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()

        def _chunk(self, data: bytes) -> None:
            self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")

    return Handler
