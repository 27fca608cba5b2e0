"""IDX files: each fault that has hurt people is refused, by the file's name and with what was found."""

import gzip
import hashlib
import struct
import zlib

import numpy as np
import pytest
from hypothesis import given, strategies as st
from hypothesis.extra import numpy as npst

from fourfold.contract.errors import InvalidInputError
from fourfold.prepare import idx

IMAGES = np.arange(100 * 3 * 2).reshape(100, 3, 2).astype(np.uint8)
LABELS = np.arange(100).astype(np.uint8) % 10
HTML = b"\n<!DOCTYPE html><html><title>404</title></html>"


@pytest.fixture
def refused(tmp_path):
    """Writes bytes to a file, reads it as IDX, and returns what the error says."""

    def read(data: bytes, dimensions: int = 3, name: str = "train-images-idx3-ubyte.gz") -> str:
        path = tmp_path / name
        path.write_bytes(data)
        with pytest.raises(InvalidInputError) as error:
            idx.read(path, dimensions)
        assert str(path) in str(error.value)
        return str(error.value)

    return read


@given(
    npst.arrays(np.uint8, npst.array_shapes(min_dims=3, max_dims=3, min_side=0, max_side=6)), st.booleans()
)
def test_images_are_read_back_whatever_the_form(tmp_path_factory, idx_bytes, array, packed):
    path = tmp_path_factory.mktemp("idx") / "images"
    raw = idx_bytes(array)
    path.write_bytes(gzip.compress(raw) if packed else raw)
    found = idx.read(path, 3)
    np.testing.assert_array_equal(found.values, array)
    assert found.sha256 == hashlib.sha256(raw).hexdigest()


@pytest.mark.parametrize("name", ["labels", "labels.gz"])
@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_the_content_and_not_the_name_decides_whether_it_is_gzip(tmp_path, idx_bytes, name, pack):
    (tmp_path / name).write_bytes(pack(idx_bytes(LABELS)))
    np.testing.assert_array_equal(idx.read(tmp_path / name, 1).values, LABELS)


@pytest.mark.parametrize("keep", [3, 12, 0.5, -9, -8, -1], ids=str)
def test_gzip_cut_anywhere_is_refused(refused, idx_bytes, keep):
    data = gzip.compress(idx_bytes(IMAGES))
    cut = data[: int(len(data) * keep) if isinstance(keep, float) else keep]
    message = refused(cut)
    assert f"is cut: the gzip stream ends after {len(cut)} bytes" in message
    assert "fetch it again" in message


def test_an_empty_file_is_refused(refused):
    assert "is empty: fetch it again" in refused(b"")


def test_gzip_of_nothing_is_refused(refused):
    assert "has 0 bytes" in refused(gzip.compress(b""))


@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["raw", "gzip"])
def test_a_header_that_says_100_where_99_images_follow_is_refused(refused, idx_bytes, pack):
    message = refused(pack(idx_bytes(IMAGES)[:-6]))
    assert "is cut: its header says 100 x 3 x 2 = 600 bytes, 594 follow" in message


@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["raw", "gzip"])
def test_three_bytes_too_many_are_refused(refused, idx_bytes, pack):
    message = refused(pack(idx_bytes(IMAGES) + b"abc"))
    assert "has bytes after its end: its header says 100 x 3 x 2 = 600 bytes, 603 follow" in message


def test_three_bytes_after_the_gzip_stream_are_refused(refused, idx_bytes):
    assert "damaged gzip" in refused(gzip.compress(idx_bytes(IMAGES)) + b"abc")


@pytest.mark.parametrize("place", [10, 60, -8, -1])
def test_a_wrong_byte_in_gzip_is_refused(refused, idx_bytes, place):
    rng = np.random.default_rng(0)
    data = bytearray(gzip.compress(idx_bytes(rng.integers(0, 256, (9, 5, 5)))))
    data[place] ^= 0x55
    message = refused(bytes(data))
    assert "damaged gzip" in message or "is cut" in message


def test_a_web_page_saved_as_gz_is_refused_with_its_start(refused):
    message = refused(HTML)
    assert "is a web page (it starts with '<!DOCTYPE html>')" in message
    assert "neither gzip nor IDX" in message


@pytest.mark.parametrize(
    "data", [b"PK\x03\x04 a zip", b'{"error": 403}', b"\x89PNG\r\n", bytes(4), b"\0\1\x08\3"], ids=repr
)
def test_a_wrong_magic_is_refused_in_hexadecimal(refused, data):
    message = refused(data)
    assert f"starts with {data[:4].hex()}, which is not the magic number of an IDX file" in message


def test_other_compression_is_refused(refused, idx_bytes):
    assert "not the magic number" in refused(zlib.compress(idx_bytes(IMAGES)))


def test_labels_where_images_should_be_are_refused_as_swapped(refused, idx_bytes):
    message = refused(idx_bytes(LABELS), dimensions=3)
    assert (
        "should hold images (3 dimensions) but has 1, which are labels: are the two files swapped?" in message
    )


def test_images_where_labels_should_be_are_refused_as_swapped(refused, idx_bytes):
    message = refused(idx_bytes(IMAGES), dimensions=1)
    assert (
        "should hold labels (1 dimensions) but has 3, which are images: are the two files swapped?" in message
    )


def test_other_dimensions_are_refused(refused, idx_bytes):
    message = refused(idx_bytes(IMAGES.reshape(100, 6)))
    assert message.endswith("but has 2")


@pytest.mark.parametrize("kind", [0x09, 0x0B, 0x0C, 0x0D, 0x0E])
def test_other_types_than_unsigned_bytes_are_refused(refused, idx_bytes, kind):
    assert f"IDX values of type 0x{kind:02x}; only unsigned bytes" in refused(idx_bytes(IMAGES, kind=kind))


def test_a_header_cut_anywhere_is_refused(refused, idx_bytes):
    data = idx_bytes(IMAGES)
    for length in range(1, 4):
        assert f"has {length} bytes: too short" in refused(data[:length])
    for length in range(4, 16):
        assert f"is cut inside its header: {length} of 16 bytes" in refused(data[:length])


def test_a_header_whose_product_overflows_is_refused(refused):
    # 2^32 - 2^31 twice and 4: 2^64, which is 0 in 64 bits, the number of bytes that follow.
    data = struct.pack(">HBBIII", 0, 0x08, 3, 1 << 31, 1 << 31, 4)
    assert f"= {1 << 64} bytes, 0 follow" in refused(data)


@pytest.mark.parametrize("name", ["nowhere", "."])
def test_what_cannot_be_read_is_named(tmp_path, name):
    with pytest.raises(InvalidInputError, match=f"cannot read {tmp_path / name}"):
        idx.read(tmp_path / name, 3)
