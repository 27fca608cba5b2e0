"""The folder store: whole objects under odd names, nothing outside the root, nothing half-written."""

import stat
import subprocess
import sys

import pytest
from hypothesis import HealthCheck, example, given, settings, strategies as st

from fourfold.contract.errors import InvalidInputError, MissingObjectError, StoreError
from fourfold.store.objects import FolderStore, open_store

PARTS = st.text(st.characters(exclude_characters="/\\\0", exclude_categories=["Cs"]), min_size=1, max_size=20)
KEYS = st.lists(PARTS, min_size=1, max_size=4).map("/".join)


def is_key(key: str) -> bool:
    return not any(part in (".", "..") or part.startswith(".part-") for part in key.split("/"))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50)
@given(KEYS.filter(is_key), st.binary(max_size=50))
@example("a", b"")
def test_any_key_and_any_bytes_round_trip(tmp_path_factory, key, data):
    objects = FolderStore(tmp_path_factory.mktemp("any"))
    objects.write(key, data)
    assert objects.read(key) == data
    assert objects.list("") == [key]


@pytest.mark.parametrize("prefix", ["..", "../other", "/etc", "a/../..", "a\\b"])
def test_list_and_below_do_not_leave_the_root(objects, prefix):
    with pytest.raises(InvalidInputError, match="is no key"):
        objects.list(prefix)
    with pytest.raises(InvalidInputError, match="is no key"):
        objects.below(prefix)


def test_what_is_missing_is_named(objects):
    objects.write("a/file", b"x")
    for key in ("a/other", "nowhere/x", "a/file/below"):
        with pytest.raises(MissingObjectError, match=key):
            objects.read(key)
        assert not objects.exists(key)
        objects.delete(key)


def test_a_folder_is_no_object(objects):
    objects.write("a/file", b"x")
    assert not objects.exists("a")
    with pytest.raises(StoreError, match="cannot read a "):
        objects.read("a")
    with pytest.raises(StoreError, match="cannot delete a "):
        objects.delete("a")
    assert objects.read("a/file") == b"x"


def test_writing_again_replaces_and_readers_keep_what_they_opened(objects, root):
    objects.write("k", b"a long first text")
    with (root / "k").open("rb") as reader:
        objects.write("k", b"second")
        assert reader.read() == b"a long first text"
    assert objects.read("k") == b"second"
    assert objects.list("") == ["k"]


def test_an_object_can_be_read_by_others(objects, root):
    objects.write("k", b"x")
    assert stat.S_IMODE((root / "k").stat().st_mode) == 0o644


def test_a_half_written_object_is_never_listed_nor_read(objects, root):
    objects.write("train/whole", b"x")
    (root / "train" / ".part-abc123").write_bytes(b"hal")
    assert objects.list("") == objects.list("train") == ["train/whole"]
    with pytest.raises(InvalidInputError):
        objects.read("train/.part-abc123")


def test_a_writer_killed_half_way_leaves_the_object_as_it_was(objects, root):
    objects.write("k", b"before")
    program = (
        "import os, signal, sys\n"
        "from pathlib import Path\n"
        "from fourfold.store.objects import FolderStore\n"
        "os.fsync = lambda handle: os.kill(os.getpid(), signal.SIGKILL)\n"
        "FolderStore(Path(sys.argv[1])).write('k', b'after')\n"
    )
    assert subprocess.run([sys.executable, "-c", program, str(root)], timeout=60).returncode == -9
    assert len(list(root.iterdir())) == 2
    assert objects.list("") == ["k"]
    assert objects.read("k") == b"before"
    objects.write("k", b"again")
    assert objects.read("k") == b"again"


def test_a_failed_write_leaves_nothing_behind(objects, root):
    objects.write("k/inside", b"x")
    with pytest.raises(StoreError, match="cannot write k "):
        objects.write("k", b"where a folder is")
    assert [path.name for path in root.rglob("*")] == ["k", "inside"]


def test_list_stays_within_its_folder(objects):
    for key in ("train/0", "train/b/1", "train2/0", "trai", "z"):
        objects.write(key, b"")
    assert objects.list("train") == objects.list("train/") == ["train/0", "train/b/1"]
    assert objects.list("tr") == objects.list("z") == objects.list("nowhere") == []
    assert objects.list("") == ["trai", "train/0", "train/b/1", "train2/0", "z"]


def test_below_is_the_same_store_with_another_root(objects):
    inner = objects.below("runs/1/")
    inner.write("a b", b"x")
    assert objects.read("runs/1/a b") == b"x"
    assert inner.list("") == ["a b"]
    assert open_store(inner.uri).read("a b") == b"x"


def test_an_unwritable_folder_is_told_with_key_and_store(tmp_path):
    (tmp_path / "file").write_bytes(b"")
    objects = FolderStore(tmp_path / "file" / "store")
    with pytest.raises(StoreError, match="cannot write a/k in file:///.*is the folder writable"):
        objects.write("a/k", b"x")
    assert objects.list("") == []


@pytest.mark.parametrize("name", ["plain", "with space", "100%25", "a#b", "a?b", "ä"])
def test_a_store_opens_again_by_its_uri(tmp_path, name):
    FolderStore(tmp_path / name).write("k", b"x")
    assert open_store(FolderStore(tmp_path / name).uri).read("k") == b"x"
    assert open_store(str(tmp_path / name)).read("k") == b"x"


@pytest.mark.parametrize("form", ["{}", "file://{}", "file://localhost{}", "FILE://{}", "file:{}"])
def test_uris_of_one_folder(tmp_path, form):
    open_store(form.format(tmp_path)).write("k", b"x")
    assert (tmp_path / "k").read_bytes() == b"x"


def test_a_relative_path_is_kept_when_the_process_moves(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    objects = open_store("./my store")
    monkeypatch.chdir("/")
    objects.write("k", b"x")
    assert (tmp_path / "my store" / "k").read_bytes() == b"x"
    assert objects.uri == (tmp_path / "my store").as_uri()


@pytest.mark.parametrize(
    ("uri", "said"),
    [
        ("", "URI is empty"),
        ("file://server/share", "names host 'server'"),
        ("file://data", "file:///path"),
        ("file://", "file:///path"),
        ("file:", "file:///path"),
        ("ftp://host/x", "scheme 'ftp'"),
        ("file2:///x", "scheme 'file2'"),
        ("http://[", "scheme 'http'"),
    ],
)
def test_what_is_no_store_is_refused(uri, said):
    with pytest.raises(InvalidInputError, match=said):
        open_store(uri)


def test_concurrent_writers_of_one_key_leave_one_whole_object(objects, root):
    program = (
        "import sys\nfrom pathlib import Path\nfrom fourfold.store.objects import FolderStore\n"
        "store = FolderStore(Path(sys.argv[1]))\n"
        "for _ in range(30): store.write('deep/er/k', sys.argv[2].encode() * 200_000)\n"
    )
    writers = [subprocess.Popen([sys.executable, "-c", program, str(root), letter]) for letter in "abc"]
    seen = set()
    while any(writer.poll() is None for writer in writers):
        if objects.exists("deep/er/k"):
            data = objects.read("deep/er/k")
            assert len(data) == 200_000
            seen |= set(data)
    assert [writer.returncode for writer in writers] == [0, 0, 0]
    assert seen <= set(b"abc")
    assert len(set(objects.read("deep/er/k"))) == 1
    assert objects.list("") == ["deep/er/k"]
    assert [path.name for path in (root / "deep" / "er").iterdir()] == ["k"]
