"""A real S3 server behind a proxy that makes trouble: every row is right, or the error says what is wrong."""

import os
import secrets
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fourfold.cache import dataset, orders
from fourfold.cache.budgets import Budgets
from fourfold.cache.reader import Reader
from fourfold.contract import keys
from fourfold.contract.errors import DamagedObjectError, StoreError
from fourfold.store import s3
from tests.cache.proxy import Proxy
from tests.cache.stores import random_rows
from tests.conftest import described

pytestmark = pytest.mark.cluster
ROOT = Path(__file__).parents[2]
ROWS, BATCH = 600, 10
BUCKET = "fourfold-tests"
SOON = {"read_seconds": 5.0, "patience_seconds": 8.0}
"""How long a store is tried that gives up soon."""


@pytest.fixture(scope="module")
def rows():
    return random_rows(ROWS, (28, 28))


@pytest.fixture(scope="module")
def prefix(s3_server, rows):
    """A data set on the real server."""
    prefix = f"faults/{secrets.token_hex(6)}"
    manifest = described("beef", (28, 28), BATCH)
    store = s3.S3Store(BUCKET, prefix, s3_server)
    dataset.write_dataset(store, manifest, {"train": rows})
    yield prefix
    for key in store.list(""):
        store.delete(key)


@pytest.fixture
def proxy(s3_server):
    proxy = Proxy(s3_server.host)
    thread = threading.Thread(target=proxy.serve_forever, daemon=True)
    thread.start()
    yield proxy
    proxy.faults.is_silent = False
    proxy.shutdown()
    proxy.server_close()


@pytest.fixture
def make_store(proxy, prefix, s3_server):
    """Opens the data set's store through the proxy."""

    def make(**how):
        through = replace(s3_server, host=proxy.host, secure=False, tries=2, region="us-east-1")
        return s3.S3Store(BUCKET, prefix, replace(through, **how))

    return make


@pytest.fixture
def store(make_store):
    """One that gives up soon."""
    return make_store(**SOON)


def read_all(store, rows, budgets=None, epochs=2, order="rows"):
    """Reads some epochs, each row checked; gives what the reader said."""
    manifest = dataset.read_manifest(store, "beef")
    with Reader(store, manifest, "train", None, budgets or Budgets(10**9)) as reader:
        for epoch in range(epochs):
            windows = orders.windows(order, 0, epoch, 0, reader.owners, reader.fit.window)
            wanted, stream, at = np.concatenate(windows), reader.epoch(windows), 0
            while stream.left:
                x, y = stream.take(min(64, stream.left))
                np.testing.assert_array_equal(x, rows[0][wanted[at : at + len(y)]])
                np.testing.assert_array_equal(y, rows[1][wanted[at : at + len(y)]])
                at += len(y)
            assert at == ROWS
        return reader.said


def test_every_object_is_fetched_once(store, proxy, rows):
    read_all(store, rows)
    assert len(proxy.faults.reads) == ROWS // BATCH
    assert set(proxy.faults.reads.values()) == {1}


@pytest.mark.parametrize(
    "fault", [{"refuse": 4}, {"cut": 3}, {"flip": 5}, {"refuse": 2, "cut": 2, "flip": 3}], ids=str
)
@pytest.mark.parametrize("ram", [10**9, 1], ids=["whole", "windows"])
def test_what_passes_is_survived_and_every_row_is_right(store, proxy, rows, fault, ram):
    for name, count in fault.items():
        setattr(proxy.faults, name, count)
    read_all(store, rows, Budgets(ram, at_once=4))
    assert {name: getattr(proxy.faults, name) for name in fault} == dict.fromkeys(fault, 0)


def test_what_always_comes_damaged_is_named(store, proxy, rows):
    key = keys.batch("beef", "train", 17)
    proxy.faults.flip_always = (key,)
    with pytest.raises(DamagedObjectError, match=f"{key} in s3://.* is damaged"):
        read_all(store, rows)


def test_a_slow_server_is_read_ahead_of(store, proxy, rows):
    """Objects are asked for while others are on their way: at once, not one after the other."""
    proxy.faults.delay = 0.1
    manifest = dataset.read_manifest(store, "beef")
    with Reader(store, manifest, "train", None, Budgets(10**9, ahead=16, at_once=8)) as reader:
        stream = reader.epoch(orders.windows("frozen", 0, 0, 0, reader.owners, 0))
        began = time.monotonic()
        while sum(proxy.faults.reads.values()) < 8:
            assert time.monotonic() - began < 5
            time.sleep(0.005)
        # Nobody has asked for a row yet, nor has one object come.
        assert stream.left == ROWS
        x, _ = stream.take(ROWS)
    np.testing.assert_array_equal(x, rows[0])


def test_a_server_that_goes_in_mid_epoch_and_comes_back_is_waited_for(store, proxy, rows):
    proxy.faults.delay = 0.02

    def go_and_come_back():
        while sum(proxy.faults.reads.values()) < 20:
            time.sleep(0.005)
        proxy.faults.is_gone = True
        time.sleep(1.0)
        proxy.faults.is_gone = False

    thread = threading.Thread(target=go_and_come_back)
    thread.start()
    read_all(store, rows)
    thread.join()


def test_a_server_that_falls_silent_in_mid_epoch_and_speaks_again_is_waited_for(make_store, proxy, rows):
    store = make_store(read_seconds=1.0, patience_seconds=20.0)
    manifest = dataset.read_manifest(store, "beef")
    with Reader(store, manifest, "train", None, Budgets(10**9, ahead=4, at_once=4)) as reader:
        stream = reader.epoch([np.arange(ROWS)])
        x = [stream.take(100)[0]]
        proxy.faults.is_silent = True

        def speak_again():
            # Each reader has given up on a request, and asks again.
            while proxy.faults.unanswered < 9:
                time.sleep(0.02)
            proxy.faults.is_silent = False

        thread = threading.Thread(target=speak_again, daemon=True)
        thread.start()
        x.append(stream.take(ROWS - 100)[0])
        thread.join(20)
    np.testing.assert_array_equal(np.concatenate(x), rows[0])
    assert proxy.faults.unanswered >= 9


@pytest.mark.parametrize(
    ("how", "fault"), [({"read_seconds": 0.5, "patience_seconds": 1.0}, "is_silent"), (SOON, "is_gone")]
)
def test_a_server_that_is_silent_or_gone_for_good_is_told_with_its_address(
    make_store, proxy, rows, how, fault
):
    store = make_store(**how)
    manifest = dataset.read_manifest(store, "beef")
    with Reader(store, manifest, "train", None, Budgets(10**9, ahead=0)) as reader:
        stream = reader.epoch([np.arange(ROWS)])
        stream.take(100)
        setattr(proxy.faults, fault, True)
        with pytest.raises(StoreError, match=f"cannot read datasets/beef/train/.* at http://{proxy.host}"):
            stream.take(400)


def test_what_is_on_disk_is_read_though_the_server_is_gone(store, proxy, rows, tmp_path):
    budgets = Budgets(1, 10**9, str(tmp_path / "cache"), at_once=4)
    manifest = dataset.read_manifest(store, "beef")
    with Reader(store, manifest, "train", None, budgets) as reader:
        places = [np.arange(first, first + BATCH) for first in range(0, ROWS, BATCH)]
        reader.epoch(places).take(ROWS)
        proxy.faults.is_gone = True
        x, _ = reader.epoch(places).take(ROWS)
        served = reader.take_served()
    np.testing.assert_array_equal(x, rows[0])
    assert (served.store, served.disk) == (ROWS, ROWS)


FILLING = """
import sys
import numpy as np
from pathlib import Path
from fourfold.cache import dataset
from fourfold.cache.budgets import Budgets
from fourfold.cache.reader import Reader
from fourfold.store.objects import open_store
store = open_store(sys.argv[1])
manifest = dataset.read_manifest(store, "beef")
with Reader(store, manifest, "train", None, Budgets(1, 10**9, sys.argv[2], at_once=4)) as reader:
    stream, total = reader.epoch([np.arange(a, a + 10) for a in range(0, 600, 10)]), 0.0
    while stream.left:
        x, y = stream.take(10)
        total += float(x.astype(np.float64).sum())
        print("row", flush=True)
print(total, flush=True)
"""


def fill(proxy, s3_server, prefix, folder):
    environment = {
        **os.environ,
        "AWS_ENDPOINT_URL_S3": f"http://{proxy.host}",
        "AWS_ACCESS_KEY_ID": s3_server.access_key,
        "AWS_SECRET_ACCESS_KEY": s3_server.secret_key,
        "AWS_REGION": "us-east-1",
    }
    return subprocess.Popen(
        [sys.executable, "-c", FILLING, f"s3://{BUCKET}/{prefix}", str(folder)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment,
        cwd=ROOT,
    )


def total_of(process):
    said, _ = process.communicate(timeout=90)
    assert process.returncode == 0, said
    return float(said.split()[-1])


def test_two_fillers_at_once_fetch_each_object_once_and_a_killed_one_holds_nobody_up(
    proxy, s3_server, prefix, rows, tmp_path
):
    proxy.faults.delay = 0.02
    expected = pytest.approx(float(rows[0].astype(np.float64).sum()), rel=1e-12)
    killed, other = (fill(proxy, s3_server, prefix, tmp_path / "cache") for _ in range(2))
    assert killed.stdout is not None
    for _ in range(10):
        assert killed.stdout.readline() == "row\n"
    killed.send_signal(signal.SIGKILL)
    killed.communicate(timeout=20)
    assert total_of(other) == expected
    # What the killed one was fetching at that moment was fetched again: four objects at most.
    assert sum(count - 1 for count in proxy.faults.reads.values()) <= 4
    before = sum(proxy.faults.reads.values())
    both = [fill(proxy, s3_server, prefix, tmp_path / "cache") for _ in range(2)]
    assert [total_of(process) for process in both] == [expected, expected]
    assert sum(proxy.faults.reads.values()) == before
    new = [fill(proxy, s3_server, prefix, tmp_path / "another") for _ in range(3)]
    assert [total_of(process) for process in new] == [expected] * 3
    assert sum(proxy.faults.reads.values()) == before + ROWS // BATCH
