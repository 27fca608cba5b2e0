"""Fetching MNIST from mirrors that lie, break off or are not there; real servers on this machine."""

import gzip
import socket

import pytest

from fourfold.contract.errors import FourfoldError, InvalidInputError
from fourfold.prepare import download

NAMES = tuple(download.MD5_OF_UNCOMPRESSED)
CONTENT = {name: f"the content of {name} ".encode() * 50 for name in NAMES}
FILES = {f"{name}.gz": gzip.compress(content, mtime=0) for name, content in CONTENT.items()}
FIRST = f"{NAMES[0]}.gz"


@pytest.fixture(autouse=True)
def known_content(monkeypatch):
    monkeypatch.setattr(
        download, "MD5_OF_UNCOMPRESSED", {name: download.md5(data) for name, data in CONTENT.items()}
    )


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "deep" / "mnist"


def half(handler):
    """Says how long the file is, sends half of it, and hangs up."""
    handler.send_response(200)
    handler.send_header("Content-Length", str(len(FILES[FIRST])))
    handler.end_headers()
    handler.wfile.write(FILES[FIRST][: len(FILES[FIRST]) // 2])


def half_a_chunk(handler):
    handler.protocol_version = "HTTP/1.1"
    handler.send_response(200)
    handler.send_header("Transfer-Encoding", "chunked")
    handler.end_headers()
    handler.wfile.write(b"40\r\n" + FILES[FIRST][:9])
    handler.close_connection = True


def no_http(handler):
    handler.wfile.write(b"220 ftp.example.org ready\r\n")


def silent(handler):
    handler.rfile.read(1)


BAD = {
    "other content": (gzip.compress(b"something else"), "not MNIST's (MD5 "),
    "404": (lambda handler: handler.send_error(404), "HTTP Error 404"),
    "web page": (b"<!DOCTYPE html><p>log in", "what came is a web page (it starts with '<!DOCTYPE html>')"),
    "half": (half, "what came is cut"),
    "half a chunk": (half_a_chunk, "IncompleteRead"),
    "nothing": (b"", "what came is empty"),
    "no HTTP": (no_http, "220 ftp.example.org ready"),
    "silent": (silent, "timed out"),
}


def assert_fetched(folder):
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == FILES


def test_four_files_are_fetched(make_mirror, folder):
    url, asked = make_mirror(FILES)
    download.fetch_mnist(folder, [url])
    assert_fetched(folder)
    assert sorted(asked) == sorted(FILES)


def test_files_that_are_right_stay_and_a_wrong_one_is_replaced(make_mirror, folder):
    url, asked = make_mirror(FILES)
    download.fetch_mnist(folder, [url])
    asked.clear()
    times = {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}
    (folder / FIRST).write_bytes(FILES[FIRST][:-1])
    download.fetch_mnist(folder, [url])
    assert asked == [FIRST]
    assert_fetched(folder)
    changed = {path.name for path in folder.iterdir() if path.stat().st_mtime_ns != times[path.name]}
    assert changed == {FIRST}


def test_nothing_is_asked_for_where_all_is_there(make_mirror, folder):
    folder.mkdir(parents=True)
    for name, data in FILES.items():
        (folder / name).write_bytes(data)
    download.fetch_mnist(folder, ["http://127.0.0.1:1/"])
    assert_fetched(folder)


@pytest.mark.parametrize(("answer", "said"), BAD.values(), ids=list(BAD))
def test_a_bad_mirror_is_passed_over(make_mirror, folder, answer, said):
    bad, asked = make_mirror(FILES | {FIRST: answer})
    good, asked_then = make_mirror(FILES)
    download.fetch_mnist(folder, [bad, good], seconds=1)
    assert_fetched(folder)
    assert sorted(asked) == sorted(FILES)
    assert asked_then == [FIRST]


@pytest.mark.parametrize(("answer", "said"), BAD.values(), ids=list(BAD))
def test_a_bad_mirror_alone_is_told_with_its_fault_and_leaves_nothing(make_mirror, folder, answer, said):
    url, _ = make_mirror({FIRST: answer})
    with pytest.raises(FourfoldError) as error:
        download.fetch_mnist(folder, [url], seconds=1)
    message = str(error.value)
    assert f"{url}{FIRST}: " in message
    assert said in message
    assert str(folder) not in message
    assert list(folder.iterdir()) == []


def test_every_mirrors_fault_is_told_with_what_to_do(make_mirror, folder):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        closed = f"http://127.0.0.1:{taken.getsockname()[1]}"
    page, other = make_mirror({FIRST: BAD["web page"][0]})[0], make_mirror({FIRST: b"no IDX"})[0]
    with pytest.raises(FourfoldError) as error:
        download.fetch_mnist(folder, [closed, page, other, "example.org/mnist", "http://[/"])
    message = str(error.value)
    for fault in (
        f"{closed}/{FIRST}: <urlopen error",
        "Connection refused",
        f"{page}{FIRST}: what came is a web page",
        f"{other}{FIRST}: the content is not MNIST's",
        f"example.org/mnist/{FIRST}: unknown url type",
        f"http://[/{FIRST}: ",
        "FOURFOLD_DATA",
        "--data sample",
    ):
        assert fault in message


def test_files_fetched_before_a_failure_are_kept(make_mirror, folder):
    last = f"{NAMES[3]}.gz"
    url, _ = make_mirror({name: data for name, data in FILES.items() if name != last})
    with pytest.raises(FourfoldError, match=f"{last} could not be fetched"):
        download.fetch_mnist(folder, [url])
    assert {path.name for path in folder.iterdir()} == set(FILES) - {last}
    url, asked = make_mirror(FILES)
    download.fetch_mnist(folder, [url])
    assert asked == [last]


def test_a_folder_that_cannot_be_written_is_named(make_mirror, tmp_path):
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(InvalidInputError, match=f"cannot write MNIST into {tmp_path}/file/mnist"):
        download.fetch_mnist(tmp_path / "file" / "mnist", [make_mirror(FILES)[0]])
