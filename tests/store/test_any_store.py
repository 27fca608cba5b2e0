"""What every store must do: a folder, and a real S3 server in a cluster."""

import secrets
import threading
from dataclasses import replace

import numpy as np
import pytest

from fourfold.cache import dataset
from fourfold.contract.errors import DamagedObjectError, InvalidInputError, MissingObjectError, StoreError
from fourfold.store import s3
from fourfold.store.folder import FolderStore

ODD_KEYS = [
    "plain",
    "a/b/c.npy",
    "with space/and + plus",
    "100%/%2e%2e/x%20y",
    "Project#1 50% a+b",
    "#1?a=b&c",
    "Größe/训练/🚀",
    ".hidden",
    "..almost",
    "colon:here",
    "-rf",
    "a'b\"c$d`e",
]
BAD_KEYS = [
    "",
    "/",
    "/etc/passwd",
    "..",
    "../x",
    "a/../x",
    "a/..",
    "a\\b",
    "a\0b",
    ".",
    "a/./b",
    "a//b",
    "a/",
]


@pytest.fixture(params=["folder", pytest.param("s3", marks=pytest.mark.cluster)])
def store(request, tmp_path):
    """An empty store of each kind."""
    if request.param == "folder":
        return FolderStore(tmp_path / "store")
    return s3.S3Store("fourfold-tests", secrets.token_hex(6), request.getfixturevalue("s3_server"))


@pytest.mark.parametrize("key", ODD_KEYS)
def test_odd_keys_round_trip(store, key):
    store.write(key, b"\0\xff" + key.encode())
    assert store.exists(key)
    assert store.read(key) == b"\0\xff" + key.encode()
    assert store.list("") == [key]
    store.delete(key)
    assert not store.exists(key)
    assert store.list("") == []
    store.delete(key)


@pytest.mark.parametrize("key", BAD_KEYS)
@pytest.mark.parametrize("action", ["read", "write", "exists", "delete"])
def test_what_is_no_key_is_refused(store, key, action):
    arguments = (key, b"x") if action == "write" else (key,)
    with pytest.raises(InvalidInputError, match="is no key"):
        getattr(store, action)(*arguments)


@pytest.mark.parametrize("size", [0, 1, 5 << 20, (5 << 20) + 1, s3.PART_BYTES + 1])
def test_any_size_round_trips_whole(store, size):
    data = np.random.default_rng(size).bytes(size)
    store.write("object", data)
    assert store.read("object") == data


def test_writing_again_replaces(store):
    store.write("k", b"a long first text")
    store.write("k", b"second")
    assert store.read("k") == b"second"
    assert store.list("") == ["k"]


def test_what_is_missing_is_named(store):
    assert store.list("") == store.list("nowhere") == []
    with pytest.raises(MissingObjectError, match="a/file"):
        store.read("a/file")
    assert not store.exists("a/file")
    store.write("a/file", b"x")
    with pytest.raises(MissingObjectError, match="a/other"):
        store.read("a/other")
    assert not store.exists("a")


def test_a_listing_has_all_pages_and_stays_within_its_prefix(store):
    expected = sorted(f"train/{index:06d}" for index in range(1001))
    for key in [*expected, "train2/000000", "trai"]:
        store.write(key, b"x")
    assert store.list("train") == store.list("train/") == expected
    assert store.below("train").list("") == [key.removeprefix("train/") for key in expected]
    assert store.folders("") == ["train", "train2"]
    store.write("train/deep/er", b"x")
    assert store.folders("train") == store.folders("train/") == ["deep"]
    assert store.folders("nothing") == []


def test_below_is_the_same_objects_with_shorter_keys(store):
    store.below("a/b").write("c", b"x")
    assert store.read("a/b/c") == b"x"
    assert store.below("a").below("b/").read("c") == b"x"
    with pytest.raises(InvalidInputError):
        store.below("../x")


def test_a_data_set_round_trips_and_a_damaged_batch_is_named(store, describe, parts):
    manifest = dataset.write_dataset(store, describe(), parts)
    assert dataset.read_manifest(store, manifest.fingerprint) == manifest
    x, y = dataset.read_rows(store, manifest, "train", np.array([0, 9, 10, 46]))
    np.testing.assert_array_equal(x, parts["train"][0][[0, 9, 10, 46]])
    np.testing.assert_array_equal(y, parts["train"][1][[0, 9, 10, 46]])
    key = next(key for key in store.list("") if "train/000000001" in key)
    data = bytearray(store.read(key))
    data[-1] ^= 1
    store.write(key, bytes(data))
    with pytest.raises(DamagedObjectError, match="train/000000001"):
        dataset.read_rows(store, manifest, "train")


def test_many_writers_of_one_key_leave_one_whole_object(store):
    texts = [bytes([65 + number]) * 200_000 for number in range(4)]
    threads = [threading.Thread(target=store.write, args=("k", text)) for text in texts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert store.read("k") in texts


@pytest.mark.cluster
def test_several_at_once_may_be_the_first_to_need_a_bucket(s3_server):
    bucket, failed = f"fourfold-{secrets.token_hex(6)}", []

    def write(number: int) -> None:
        try:
            s3.S3Store(bucket, "", s3_server).write(f"k{number}", b"x")
        except StoreError as error:
            failed.append(error)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert s3.S3Store(bucket, "", s3_server).list("") == ["k0", "k1", "k2", "k3"]


@pytest.mark.cluster
def test_wrong_credentials_are_told_without_showing_them(s3_server):
    wrong = replace(s3_server, secret_key="marker-of-a-secret")
    with pytest.raises(StoreError, match="AWS_SECRET_ACCESS_KEY is not the one") as caught:
        s3.S3Store("fourfold-tests", "", wrong).write("k", b"x")
    assert "marker-of-a-secret" not in str(caught.value)
    unknown = replace(s3_server, access_key="nobody", secret_key="marker-of-a-secret")
    with pytest.raises(StoreError, match="does not know AWS_ACCESS_KEY_ID"):
        s3.S3Store("fourfold-tests", "", unknown).write("k", b"x")
