"""The disk tier: cached batches as files under their keys, shared by all processes of a node.

Who dies leaves nothing that stops others: locks are the kernel's (``flock``), which frees them, and a file
appears under its name when it is whole. What is read is verified by whoever reads it.
"""

import contextlib
import errno
import fcntl
import hashlib
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from fourfold.contract import keys
from fourfold.store.folder import read_file_into

LOCKS = "locks"
STRIPES = 256
USAGE = "usage"
HELD = "held"
PATIENCE = 60.0
"""Seconds for which another process is waited for that reads the same batch into the folder."""
STALE_SECONDS = 3600.0
"""A part that nobody has written to for so long was left by a process that was killed."""


class DiskTier:
    """A folder of cached batches, up to a budget.

    Args:
        folder: made where it is not there.
        budget: bytes of all batches in it together, whoever put them there.

    Raises:
        OSError: the folder cannot be used.
    """

    def __init__(self, folder: str, budget: int):
        self._root, self._budget = Path(folder), budget
        (self._root / LOCKS).mkdir(parents=True, exist_ok=True)
        self.full = ""
        """Why nothing more is put here; empty while there is room."""
        with self._accounts() as accounts:
            if accounts is not None:
                _write_number(accounts, self._count())

    def get(self, key: str, buffer: bytearray | None = None) -> memoryview | None:
        """The bytes under a key, as they are; None where there are none.

        Args:
            key: of a cached batch.
            buffer: to read into; a new one if None.
        """
        try:
            return read_file_into(self._root / key, bytearray() if buffer is None else buffer)
        except OSError:
            return None

    def put(self, key: str, data: bytes | memoryview) -> bool:
        """Puts a batch here, if there is room, also after what nobody reads now has made room.

        Returns:
            Whether it is here now.
        """
        path = self._root / key
        if self.full or path.exists():
            return not self.full
        part = None
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            part = self._reserve(key, len(data))
            if part is None:
                return False
            with part.open("r+b") as file:
                file.write(data)
            part.replace(path)
            return True
        except OSError as error:
            if part:
                part.unlink(missing_ok=True)
                self._release(len(data))
            self.full = error.strerror or str(error)
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                self.full = f"it cannot be written ({self.full})"
            return False

    def drop(self, key: str) -> None:
        """Takes a batch away that turned out to be damaged."""
        with contextlib.suppress(OSError):
            size = (self._root / key).stat().st_size
            (self._root / key).unlink()
            self._release(size)

    @contextlib.contextmanager
    def once(self, key: str) -> Iterator[None]:
        """While one process of the node is inside with a key, others wait, for a while."""
        stripe = int(hashlib.sha256(key.encode()).hexdigest()[:8], 16) % STRIPES
        with _locked(self._root / LOCKS / f"{stripe:03d}", fcntl.LOCK_EX, PATIENCE):
            yield

    @contextlib.contextmanager
    def held(self, fingerprint: str) -> Iterator[None]:
        """While somebody is inside, the batches of a data set are not deleted here."""
        mark = self._root / keys.dataset(fingerprint) / HELD
        with contextlib.ExitStack() as lock:
            while True:
                try:
                    mark.parent.mkdir(parents=True, exist_ok=True)
                    mark.touch()
                except OSError as error:
                    self.full = error.strerror or str(error)
                handle = lock.enter_context(_locked(mark, fcntl.LOCK_SH, 5.0))
                if handle is None or _is_at(mark, handle):
                    break
                lock.close()
            yield

    def datasets(self) -> dict[str, tuple[int, float]]:
        """Bytes and time of last use of each data set that has batches here, by fingerprint."""
        found = {}
        with contextlib.suppress(OSError):
            for folder in (self._root / keys.DATASETS).iterdir():
                mark = folder / HELD
                found[folder.name] = (_bytes_below(folder), mark.stat().st_mtime if mark.exists() else 0.0)
        return found

    def delete(self, fingerprint: str) -> bool:
        """Deletes the batches of a data set here, unless somebody reads them.

        Returns:
            Whether they are gone.
        """
        with self._accounts() as accounts:
            return self._delete(fingerprint, accounts)

    def _delete(self, fingerprint: str, accounts: int | None) -> bool:
        folder = self._root / keys.dataset(fingerprint)
        if not folder.exists():
            return True
        with _locked(folder / HELD, fcntl.LOCK_EX, 0.0) as mine:
            if not mine:
                return False
            size = _bytes_below(folder)
            # Under another name at once, so that nobody finds half of it; who opens the folder clears those.
            gone = self._root / f"{keys.PART}{fingerprint}-{os.getpid()}-{time.monotonic_ns()}"
            try:
                folder.rename(gone)
            except OSError:
                return False
            shutil.rmtree(gone, ignore_errors=True)
            if accounts is not None:
                _write_number(accounts, max(0, _read_number(accounts) - size))
            return True

    def _reserve(self, key: str, size: int) -> Path | None:
        """A file of this size to write into, which counts from now on; None where there is no room for it."""
        mine = key.split("/")[1]
        with self._accounts() as accounts:
            if accounts is None:
                self.full = f"{self._root / USAGE} cannot be written, or somebody holds it"
                return None
            # Nobody is thrown out for what will not fit in any case.
            if size <= self._budget < _read_number(accounts) + size:
                others = sorted(self.datasets().items(), key=lambda item: item[1][1])
                for fingerprint, _ in others:
                    if fingerprint != mine and _read_number(accounts) + size > self._budget:
                        self._delete(fingerprint, accounts)
            used = _read_number(accounts)
            if used + size > self._budget:
                self.full = f"its budget of {self._budget:,} bytes is used up"
                return None
            handle, part = tempfile.mkstemp(dir=(self._root / key).parent, prefix=keys.PART)
            with os.fdopen(handle, "wb") as file:
                file.truncate(size)
            _write_number(accounts, used + size)
            return Path(part)

    def _release(self, size: int) -> None:
        with self._accounts() as accounts:
            if accounts is not None:
                _write_number(accounts, max(0, _read_number(accounts) - size))

    def _count(self) -> int:
        """Bytes of all batches here and of those being written; what killed processes left is cleared."""
        for path in self._root.glob(f"{keys.PART}*"):
            shutil.rmtree(path, ignore_errors=True)
        long_ago, total = time.time() - STALE_SECONDS, 0
        for path in (self._root / keys.DATASETS).rglob("*"):
            with contextlib.suppress(OSError):
                found = path.stat()
                if path.name.startswith(keys.PART) and found.st_mtime < long_ago:
                    path.unlink()
                elif path.suffix == ".npy" or path.name.startswith(keys.PART):
                    total += found.st_size
        return total

    @contextlib.contextmanager
    def _accounts(self) -> Iterator[int | None]:
        """The open file with the bytes in use, to oneself; None where somebody holds it for too long."""
        with _locked(self._root / USAGE, fcntl.LOCK_EX, 5.0) as handle:
            yield handle


@contextlib.contextmanager
def _locked(path: Path, kind: int, seconds: float) -> Iterator[int | None]:
    """Holds a lock on a file, which is made where it is not there.

    Yields the open file; None where the lock could not be had in time. Whoever waits for a batch reads it
    himself then: a process that is stopped, not killed, holds nobody up for ever.
    """
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError:
        yield None
        return
    try:
        until, pause = time.monotonic() + seconds, 0.001
        while not (mine := _try_lock(handle, kind)) and time.monotonic() < until:
            time.sleep(pause)
            pause = min(0.02, pause * 2)
        yield handle if mine else None
    finally:
        os.close(handle)


def _is_at(path: Path, handle: int) -> bool:
    """Whether an open file still has its name: what was deleted meanwhile, and is there anew, is another."""
    with contextlib.suppress(OSError):
        return path.stat().st_ino == os.fstat(handle).st_ino
    return False


def _try_lock(handle: int, kind: int) -> bool:
    try:
        fcntl.flock(handle, kind | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _read_number(handle: int) -> int:
    text = os.pread(handle, 32, 0).strip()
    return int(text) if text.isdigit() else 0


def _write_number(handle: int, number: int) -> None:
    os.pwrite(handle, f"{number:<31}\n".encode(), 0)


def _bytes_below(folder: Path) -> int:
    total = 0
    for path in folder.rglob("*.npy"):
        with contextlib.suppress(OSError):
            total += path.stat().st_size
    return total
