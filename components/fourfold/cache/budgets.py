"""How much memory and disk the cache may take."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from fourfold.contract.caching import Caching
from fourfold.contract.errors import InvalidInputError

FOLDER = "FOURFOLD_CACHE"
"""Names the folder of the disk tier."""
ROOM = "FOURFOLD_CACHE_BYTES"
"""Says how many bytes that folder has room for; what is asked for is cut down to it."""
GROUPS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
"""Where a container finds its memory limit: control groups of version 2 and 1."""
UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
UNITS |= {f"{unit}i": 1024**power for power, unit in enumerate("kmgt", start=1)}
USUAL_DISK = 10 * 1024**3
"""Bytes of the disk tier where nothing is said, if so many are free."""


@dataclass(frozen=True)
class Budgets:
    """What one reader may take.

    Attributes:
        ram: bytes of memory for rows.
        disk: bytes of the disk tier, of all who share its folder; 0 for no such tier.
        folder: of the disk tier; empty for none.
        ahead: cached batches that are asked for ahead.
        at_once: objects that are read at the same time.
    """

    ram: int
    disk: int = 0
    folder: str = ""
    ahead: int = 16
    at_once: int = 8


def budgets(
    caching: Caching,
    store: str,
    readers: int = 1,
    environment: Mapping[str, str] = os.environ,
) -> Budgets:
    """The budgets of one reader.

    Args:
        caching: what was asked for.
        store: the store's URI. What lies in a folder is on disk already: there a disk tier is used only where
            ``FOURFOLD_CACHE`` names its folder.
        readers: that share this machine's, or container's, memory.
        environment: to read the folder from.
    """
    ram = caching.ram or memory_limit() // 2 // readers
    folder = environment.get(FOLDER, "")
    # What a pod keeps in its home is gone with it.
    if not folder and not store.startswith("file:") and "KUBERNETES_SERVICE_HOST" not in environment:
        home = environment.get("XDG_CACHE_HOME") or str(
            Path(environment.get("HOME") or "~").expanduser() / ".cache"
        )
        folder = str(Path(home) / "fourfold" / "batches")
    if caching.disk < 0 or not folder:
        return Budgets(ram, ahead=caching.ahead)
    room = bytes_of(environment[ROOM]) if environment.get(ROOM) else _free(Path(folder)) * 8 // 10
    return Budgets(ram, min(caching.disk or USUAL_DISK, room), folder, caching.ahead)


def memory_limit(groups: tuple[str, ...] = GROUPS) -> int:
    """Bytes of memory that this process may use: its container's limit, or all that the machine has."""
    found = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for group in groups:
        try:
            text = Path(group).read_text().strip()
        except OSError:
            continue
        if text.isdigit():
            found = min(found, int(text))
    return found


def bytes_of(text: str) -> int:
    """Reads a number of bytes: ``512``, ``300M`` (10^6), ``2Gi`` (2^30), as Kubernetes writes them.

    Raises:
        InvalidInputError: it is no such number.
    """
    number = text.strip().rstrip("kKMGTibB ")
    unit = text.strip()[len(number) :].strip().lower().removesuffix("b")
    try:
        size = float(number) * UNITS[unit]
    except (ValueError, KeyError):
        size = -1.0
    if not 0 <= size < 2**62:
        raise InvalidInputError(f"{text!r} is no number of bytes: give one such as 500M, 2Gi or 1000000")
    return int(size)


def in_words(size: float) -> str:
    """A number of bytes for people: ``1.6 MB``."""
    for unit, factor in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size >= factor:
            return f"{size / factor:.1f} {unit}"
    return f"{size:.0f} B"


def _free(folder: Path) -> int:
    """Bytes that are free where a folder is, or will be."""
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize
