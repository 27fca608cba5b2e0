"""A proxy in front of a real S3 server, which does to its answers what networks do now and then."""

import collections
import http.client
import http.server
import threading
import time
from dataclasses import dataclass, field


@dataclass
class Faults:
    """What goes wrong with the objects that are read; counts go down by one each time.

    Attributes:
        delay: seconds before each answer.
        refuse: so many answers are an error of the server, 503 and 500 in turns.
        cut: so many bodies end in the middle.
        flip: so many bodies have a byte changed, that of each object once.
        flip_always: keys, or ends of keys, whose bodies always have a byte changed.
        is_gone: nothing is answered, connections are closed.
        is_silent: nothing is answered, connections stay open.
        unanswered: so many requests found it silent.
        reads: how often each path was read.
    """

    delay: float = 0.0
    refuse: int = 0
    cut: int = 0
    flip: int = 0
    flip_always: tuple[str, ...] = ()
    is_gone: bool = False
    is_silent: bool = False
    unanswered: int = 0
    reads: collections.Counter = field(default_factory=collections.Counter)
    flipped: set = field(default_factory=set)
    guard: threading.Lock = field(default_factory=threading.Lock)

    def take(self, name: str, path: str) -> bool:
        """Whether this fault hits this object now."""
        with self.guard:
            if name == "flip" and path in self.flipped:
                return False
            if not getattr(self, name):
                return False
            setattr(self, name, getattr(self, name) - 1)
            if name == "flip":
                self.flipped.add(path)
            return True


class Proxy(http.server.ThreadingHTTPServer):
    """Forwards to a server.

    Args:
        target: its host and port.
    """

    daemon_threads = True

    def __init__(self, target: str):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.target, self.faults = target, Faults()

    @property
    def host(self) -> str:
        """Host and port to be spoken to."""
        return f"127.0.0.1:{self.server_address[1]}"

    def handle_error(self, request: object, client_address: object) -> None:
        """Connections that are cut are what this is for."""


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Proxy

    def forward(self) -> None:
        faults, path = self.server.faults, self.path.partition("?")[0]
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        is_batch = self.command == "GET" and path.rpartition("/")[2][:1].isdigit()
        if is_batch:
            with faults.guard:
                faults.reads[path] += 1
            time.sleep(faults.delay)
        if faults.is_gone:
            self.close_connection = True
            return
        if faults.is_silent:
            with faults.guard:
                faults.unanswered += 1
            while faults.is_silent:
                time.sleep(0.02)
            self.close_connection = True
            return
        if is_batch and faults.take("refuse", path):
            self.send_error((503, 500)[faults.refuse % 2])
            return
        upstream = http.client.HTTPConnection(self.server.target, timeout=30)
        upstream.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
        for name, value in self.headers.items():
            # The name that the request was signed for is passed on.
            upstream.putheader(name, value)
        upstream.endheaders(body)
        answer = upstream.getresponse()
        data = answer.read()
        upstream.close()
        self.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in ("transfer-encoding", "connection", "date", "server", "content-length"):
                self.send_header(name, value)
        length = answer.getheader("Content-Length") if self.command == "HEAD" else str(len(data))
        self.send_header("Content-Length", length or "0")
        self.end_headers()
        if is_batch and answer.status == 200:
            if faults.take("cut", path):
                self.wfile.write(data[: len(data) // 2])
                self.close_connection = True
                return
            if path.endswith(faults.flip_always or ("\0",)) or faults.take("flip", path):
                data = data[:-9] + bytes([data[-9] ^ 1]) + data[-8:]
        if self.command != "HEAD":
            self.wfile.write(data)

    do_GET = do_PUT = do_HEAD = do_DELETE = do_POST = forward  # noqa: N815

    def log_message(self, format: str, *args: object) -> None:
        """Says nothing."""
