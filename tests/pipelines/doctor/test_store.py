"""The store: an object goes in, comes out the same, and is gone again; what does not is told."""

import pytest

from fourfold.contract.errors import StoreDeniedError, StoreError
from fourfold.store.folder import FolderStore
from fourfold.store.objects import open_store
from fourfold_pipelines.doctor import store
from tests.pipelines.doctor.answers import only, said


class Faulty(FolderStore):
    """A folder in which one operation goes wrong."""

    def __init__(self, root, **faults):
        super().__init__(root)
        self._faults = faults

    def write(self, key, data):
        self._faults.get("write", super().write)(key, data)

    def read(self, key):
        return self._faults.get("read", super().read)(key)

    def delete(self, key):
        self._faults.get("delete", super().delete)(key)


def refuse(error):
    def do(*_):
        raise error

    return do


@pytest.fixture
def check_with(monkeypatch, tmp_path):
    """Checks a folder in which some operations are others."""

    def check(**faults):
        monkeypatch.setattr(store, "open_store", lambda uri: Faulty(tmp_path / "store", **faults))
        return only(store.check("there"))

    return check


def files(folder):
    return [path for path in folder.rglob("*") if path.is_file()]


def test_a_folder_is_well_and_nothing_is_left_in_it(tmp_path):
    (tmp_path / "store").mkdir()

    said(only(store.check(str(tmp_path / "store"))), "ok", "written, read back, deleted")
    assert list((tmp_path / "store").iterdir()) == []


def test_what_was_in_a_store_stays_as_it_is(tmp_path):
    held = open_store(str(tmp_path / "store"))
    held.write("doctor/object", b"before")

    list(store.check(str(tmp_path / "store")))
    assert held.list("") == ["doctor/object"]
    assert held.read("doctor/object") == b"before"


def test_a_file_in_place_of_the_folder_cannot_be_written(tmp_path):
    (tmp_path / "store").write_text("a file")

    said(
        only(store.check(str(tmp_path / "store"))),
        "wrong",
        r"cannot be written: .*store.*is the folder",
        "--store",
    )
    assert (tmp_path / "store").read_text() == "a file"


@pytest.mark.parametrize("uri", ["", "ftp://host/path", "s3://", "file://elsewhere/path"])
def test_a_uri_that_names_no_store_is_wrong_and_says_what_one_looks_like(uri):
    said(only(store.check(uri)), "wrong", "cannot be opened", "--store")


def test_a_store_that_loses_what_was_written_is_wrong(check_with):
    said(
        check_with(write=lambda key, data: None), "wrong", "written and cannot be read back: there is no", "."
    )


def test_a_store_that_changes_what_was_written_is_wrong_and_the_object_is_deleted(check_with, tmp_path):
    said(check_with(read=lambda key: b"other"), "wrong", "read back is not what was written", "do not use")
    assert files(tmp_path) == []


def test_a_store_that_cannot_be_read_is_wrong_and_the_object_is_deleted(check_with, tmp_path):
    said(
        check_with(read=refuse(StoreError("no answer"))), "wrong", "cannot be read back: no answer", "--store"
    )
    assert files(tmp_path) == []


def test_a_store_that_keeps_what_is_deleted_is_wrong_and_the_object_is_named(check_with, tmp_path):
    found = check_with(delete=lambda key: None)

    said(found, "wrong", "what was deleted is still there")
    (left,) = files(tmp_path)
    assert left.name in found.do


def test_a_store_that_lets_nothing_be_deleted_is_wrong_and_the_account_is_to_blame(check_with):
    found = check_with(delete=refuse(StoreDeniedError("AccessDenied")))

    said(found, "wrong", "lets nothing be deleted: AccessDenied", "give an account .* AWS_ACCESS_KEY_ID")


def test_each_check_uses_a_name_of_its_own(check_with, tmp_path):
    names = set()

    def write(key, data):
        names.add(key)

    for _ in range(3):
        check_with(write=write)
    assert len(names) == 3
