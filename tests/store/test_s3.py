"""The S3 store where no server is needed: its settings, and servers that are not what they should be.

A server of our own stands in only for faults that a real one cannot be asked for.
"""

import http.server
import socket
import threading
import time
from collections.abc import Iterator

import pytest

from fourfold.contract import exits
from fourfold.contract.errors import InvalidInputError, MissingObjectError, StoreError
from fourfold.store import s3
from fourfold.store.objects import open_store

SECRET = "marker-of-a-secret"


@pytest.mark.parametrize(
    ("text", "host", "secure"),
    [
        ("minio:9000", "minio:9000", False),
        ("http://minio:9000", "minio:9000", False),
        ("http://minio:9000/", "minio:9000", False),
        ("HTTP://minio:9000", "minio:9000", False),
        ("https://s3.amazonaws.com", "s3.amazonaws.com", True),
        ("s3.eu-central-1.amazonaws.com", "s3.eu-central-1.amazonaws.com", True),
        ("store.example:443", "store.example:443", True),
        ("[::1]:9000", "[::1]:9000", False),
        (" seaweedfs ", "seaweedfs", False),
    ],
)
def test_the_scheme_of_an_endpoint_decides_about_tls(text, host, secure):
    assert s3.endpoint(text) == (host, secure)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "http://",
        "host/minio",
        "http://host/minio",
        "ftp://host",
        "http://user:key@host",
        "host?x=1",
        "a b",
    ],
)
def test_an_endpoint_that_says_more_than_where_is_refused(text):
    with pytest.raises(InvalidInputError, match="endpoint"):
        s3.endpoint(text)


def test_settings_come_from_the_environment_by_their_usual_names():
    found = s3.settings(
        {
            "AWS_ENDPOINT_URL": "http://other",
            "AWS_ENDPOINT_URL_S3": "http://seaweedfs:8333",
            "AWS_ACCESS_KEY_ID": "id",
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_REGION": "eu-north-1",
        }
    )
    assert (found.endpoint, found.secret_key, found.region) == ("http://seaweedfs:8333", SECRET, "eu-north-1")
    assert SECRET not in repr(found)
    assert SECRET not in str(found)
    assert s3.settings({}).endpoint == s3.AWS


@pytest.mark.parametrize("only", ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"])
def test_half_of_the_credentials_is_refused(only):
    with pytest.raises(InvalidInputError, match="set both"):
        s3.settings({only: SECRET})


@pytest.mark.parametrize("uri", ["s3://", "s3:///prefix", "s3://Bad_Bucket!/x", "s3://bucket/a/../b"])
def test_a_uri_that_names_no_bucket_or_no_prefix_is_refused(uri, monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:1")
    with pytest.raises(InvalidInputError):
        open_store(uri).read("key")


@pytest.mark.parametrize("scheme", ["s3", "minio", "S3"])
def test_both_schemes_open_the_same_store(scheme, monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:1")
    assert open_store(f"{scheme}://bucket/some/prefix/").uri == "s3://bucket/some/prefix"


def store_at(port: int, **limits) -> s3.S3Store:
    how = s3.Settings(f"127.0.0.1:{port}", False, "id", SECRET, region="us-east-1", tries=2, **limits)
    return s3.S3Store("bucket", "prefix", how)


def test_an_endpoint_with_nothing_behind_it_is_told_within_its_limits():
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port = sock.getsockname()[1]
    started = time.monotonic()
    with pytest.raises(StoreError, match=f"127.0.0.1:{port}.*2 tries.*is the server up") as caught:
        store_at(port).write("key", b"data")
    assert time.monotonic() - started < 20
    assert SECRET not in str(caught.value)


def test_a_server_that_falls_silent_is_told_within_its_limits():
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        started = time.monotonic()
        with pytest.raises(StoreError, match="no good answer in 2 tries"):
            store_at(silent.getsockname()[1], read_seconds=0.3).read("key")
        assert time.monotonic() - started < 20


class _Answers(http.server.BaseHTTPRequestHandler):
    """Answers with what the server's list holds next."""

    def answer(self) -> None:
        status, body = self.server.answers.pop(0) if len(self.server.answers) > 1 else self.server.answers[0]
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Content-Type", "application/xml" if body.startswith(b"<?xml") else "text/html")
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_PUT = do_HEAD = do_DELETE = answer  # noqa: N815

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[http.server.ThreadingHTTPServer]:
    made = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Answers)
    threading.Thread(target=made.serve_forever, daemon=True).start()
    yield made
    made.shutdown()
    made.server_close()


def xml(code: str) -> bytes:
    message = f"<Message>the key {SECRET} is wrong</Message><Resource>/</Resource>"
    text = f"<Error><Code>{code}</Code>{message}</Error>"
    return f'<?xml version="1.0" encoding="UTF-8"?>{text}'.encode()


def test_an_error_of_the_server_is_tried_again(server):
    server.answers = [(503, b""), (200, b"the data")]
    assert store_at(server.server_port).read("key") == b"the data"


@pytest.mark.parametrize(
    ("status", "code", "said"),
    [
        (403, "AccessDenied", "AWS_ACCESS_KEY_ID"),
        (403, "InvalidAccessKeyId", "does not know AWS_ACCESS_KEY_ID"),
        (403, "SignatureDoesNotMatch", "AWS_SECRET_ACCESS_KEY is not the one"),
        (409, "BucketAlreadyExists", "another name"),
    ],
)
def test_what_the_server_refuses_is_told_with_what_to_do_and_without_its_own_words(
    server, status, code, said
):
    server.answers = [(status, xml(code))]
    with pytest.raises(StoreError, match=said) as caught:
        store_at(server.server_port).write("key", b"data")
    assert SECRET not in str(caught.value)


def test_a_bucket_that_somebody_of_ours_made_meanwhile_is_used(server):
    server.answers = [(404, xml("NoSuchBucket")), (409, xml("BucketAlreadyOwnedByYou")), (200, b"")]
    store_at(server.server_port).write("key", b"data")
    assert server.answers == [(200, b"")]


def test_a_server_that_is_no_s3_server_is_told(server):
    server.answers = [(404, b"<!DOCTYPE html>not found")]
    with pytest.raises(StoreError, match="is no S3 server"):
        store_at(server.server_port).read("a/key")


def test_a_missing_object_is_told_as_missing(server):
    server.answers = [(404, xml("NoSuchKey"))]
    with pytest.raises(MissingObjectError, match=r"no a/key in s3://bucket/prefix at http://127"):
        store_at(server.server_port).read("a/key")


def test_a_server_that_has_answered_is_waited_for(server):
    store = store_at(server.server_port)
    server.answers = [(200, b"once"), *[(503, b"")] * 5, (200, b"again")]
    assert store.read("key") == b"once"
    assert store.read("key") == b"again"


def test_a_server_that_has_answered_is_not_waited_for_without_end(server):
    store = store_at(server.server_port, patience_seconds=0.5)
    server.answers = [(200, b"once"), (503, b"")]
    assert store.read("key") == b"once"
    started = time.monotonic()
    with pytest.raises(StoreError, match="too many 503 error responses"):
        store.read("key")
    assert time.monotonic() - started < 20


@pytest.mark.parametrize("code", ["AccessDenied", "InvalidAccessKeyId", "SignatureDoesNotMatch"])
def test_what_the_server_refuses_is_not_worth_another_try(server, code):
    server.answers = [(403, xml(code))]
    with pytest.raises(StoreError) as caught:
        store_at(server.server_port).read("key")
    assert exits.of(caught.value) == exits.INVALID_INPUT


def test_a_server_that_is_away_is_worth_another_try(server):
    server.answers = [(503, b"")]
    with pytest.raises(StoreError) as caught:
        store_at(server.server_port).read("key")
    assert exits.of(caught.value) == exits.STORE_FAILED
