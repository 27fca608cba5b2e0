"""IDX files made for a test, full MNIST where it lies beside the checkout, and mirrors on this machine."""

import gzip
import struct
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

from fourfold.contract import events
from fourfold.prepare import source

NAMES = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)
Answer = Callable[[BaseHTTPRequestHandler], None]


@pytest.fixture(autouse=True)
def own_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No test sees the user's settings, reads the user's downloads, or adds to them."""
    for name in (events.FILE, source.FOLDER, source.MIRRORS):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache-home"))


@pytest.fixture(scope="session")
def idx_bytes() -> Callable[..., bytes]:
    """Makes an IDX file's bytes from an array of uint8."""

    def make(array: np.ndarray, kind: int = 0x08) -> bytes:
        array = np.asarray(array, dtype=np.uint8)
        return struct.pack(f">HBB{array.ndim}I", 0, kind, array.ndim, *array.shape) + array.tobytes()

    return make


@pytest.fixture(scope="session")
def arrays() -> dict[str, np.ndarray]:
    """Four arrays that belong together: 60 and 20 images of 5 x 4, labels 0 to 9."""
    rng = np.random.default_rng(11)
    made: dict[str, np.ndarray] = {}
    for images, labels, rows in ((NAMES[0], NAMES[1], 60), (NAMES[2], NAMES[3], 20)):
        made[images] = rng.integers(0, 256, (rows, 5, 4), dtype=np.uint8)
        made[labels] = (np.arange(rows) * 7 % 10).astype(np.uint8)
    return made


@pytest.fixture
def make_folder(tmp_path: Path, idx_bytes, arrays) -> Callable[..., Path]:
    """Makes a folder of IDX files: those of ``arrays``, gzipped, but for the bytes given by file name."""

    def make(changed: dict[str, bytes | None] | None = None, name: str = "digits") -> Path:
        folder = tmp_path / name
        folder.mkdir()
        files: dict[str, bytes | None] = {
            f"{file}.gz": gzip.compress(idx_bytes(array), mtime=0) for file, array in arrays.items()
        }
        for file, data in (files | (changed or {})).items():
            if data is not None:
                (folder / file).write_bytes(data)
        return folder

    return make


@pytest.fixture
def idx_folder(make_folder) -> Path:
    return make_folder()


@pytest.fixture(scope="session")
def full_mnist() -> Path:
    folder = Path(__file__).parents[3] / "shared" / "data" / "mnist"
    if not folder.is_dir():
        pytest.skip(f"needs full MNIST in {folder}")
    return folder


@pytest.fixture
def make_mirror() -> Iterator[Callable[[dict[str, bytes | Answer]], tuple[str, list[str]]]]:
    """Starts servers on this machine: what each answers by file name, its URL, and the names asked for."""
    servers = []

    def make(answers: dict[str, bytes | Answer]) -> tuple[str, list[str]]:
        asked: list[str] = []

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):  # noqa: N802
                name = self.path.rsplit("/", 1)[-1]
                asked.append(name)
                answer = answers.get(name)
                if callable(answer):
                    answer(self)
                elif answer is None:
                    self.send_error(404)
                else:
                    self.send_response(200)
                    self.send_header("Content-Length", str(len(answer)))
                    self.end_headers()
                    self.wfile.write(answer)

            def log_message(self, *args):
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        servers.append((server, thread))
        return f"http://127.0.0.1:{server.server_port}/mnist/", asked

    yield make
    for server, thread in servers:
        server.shutdown()
        server.server_close()
        thread.join()
