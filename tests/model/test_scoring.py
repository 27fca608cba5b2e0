"""A model's bytes: what is saved is what is loaded, and bytes that are not a safe model are refused."""

import io
import json
import zipfile
from pathlib import Path

import keras
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from fourfold.contract.errors import DamagedObjectError
from fourfold.model import measures, network, scoring, weights

X = np.random.default_rng(0).random((7, 28, 28, 1), dtype=np.float32)


@pytest.fixture(scope="module")
def model() -> keras.Model:
    return network.build((28, 28, 1), 10, seed=0)


@pytest.fixture(scope="module")
def data(model) -> bytes:
    return scoring.to_bytes(model)


@pytest.fixture(scope="module")
def tiny() -> bytes:
    return scoring.to_bytes(keras.Sequential([keras.Input((2,)), keras.layers.Dense(2)]))


def members_of(data: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def zipped(members: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def test_bytes_there_and_back_give_the_same_weights_and_logits(model, data):
    loaded = scoring.from_bytes(data, "model-0.keras")

    assert weights.digest(weights.arrays(loaded)) == weights.digest(weights.arrays(model))
    assert weights.structure(loaded) == weights.structure(model)
    np.testing.assert_array_equal(scoring.logits(loaded, X), scoring.logits(model, X))


def test_logits_do_not_depend_on_how_many_rows_are_taken_at_once(model):
    np.testing.assert_allclose(scoring.logits(model, X, batch=3), scoring.logits(model, X), atol=1e-6)


def test_nothing_is_left_on_disk(model, data, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    scoring.from_bytes(scoring.to_bytes(model), "m")
    with pytest.raises(DamagedObjectError):
        scoring.from_bytes(data[:-1], "m")

    assert list(tmp_path.iterdir()) == []


def test_members_may_share_all_their_names(data):
    members = [scoring.from_bytes(data, "model-0.keras") for _ in range(3)]
    assert len({member.name for member in members}) == 1

    voted = measures.soft_vote([scoring.logits(member, X) for member in members])

    np.testing.assert_allclose(voted.sum(axis=1), 1, atol=1e-12)


def test_code_in_a_lambda_layer_is_refused_and_not_run(tmp_path, monkeypatch):
    trace, file = tmp_path / "trace", tmp_path / "evil.keras"
    monkeypatch.setenv("FOURFOLD_TRACE", str(trace))
    code = lambda x: (__import__("pathlib").Path(__import__("os").environ["FOURFOLD_TRACE"]).touch(), x)[1]  # noqa: E731
    model = keras.Sequential([keras.Input((2,)), keras.layers.Lambda(code)])
    file.write_bytes(scoring.to_bytes(model))
    trace.unlink(missing_ok=True)
    keras.models.load_model(file, safe_mode=False)
    assert trace.exists(), "the code does nothing, so nothing is tested"
    trace.unlink()

    with pytest.raises(DamagedObjectError, match=r"evil\.keras cannot be loaded(.|\n)*Lambda"):
        scoring.from_bytes(file.read_bytes(), "evil.keras")

    assert not trace.exists()


@pytest.mark.parametrize("name", ["../outside", "assets/../../outside", "/tmp/fourfold-outside"])
def test_a_zip_with_names_outside_writes_nothing_there(tiny, tmp_path, monkeypatch, name):
    inside = tmp_path / "a" / "b"
    inside.mkdir(parents=True)
    monkeypatch.setattr("tempfile.tempdir", str(inside))
    monkeypatch.chdir(inside)

    try:
        scoring.from_bytes(zipped({**members_of(tiny), "assets/a": b"", name: b"evil"}), "evil.keras")
    except DamagedObjectError as error:
        assert "evil.keras" in str(error)

    assert not list(tmp_path.rglob("outside*"))
    assert not Path("/tmp/fourfold-outside").exists()


@pytest.mark.parametrize("data", [b"", b"PK", b"no model at all", b"\x89HDF\r\n\x1a\n"])
def test_bytes_that_are_no_model_are_refused_by_name(data):
    with pytest.raises(DamagedObjectError, match=r"model-3\.keras"):
        scoring.from_bytes(data, "model-3.keras")


@pytest.mark.parametrize("missing", ["config.json", "model.weights.h5"])
def test_a_model_without_one_of_its_parts_is_refused(tiny, missing):
    members = members_of(tiny)
    del members[missing]

    with pytest.raises(DamagedObjectError, match="m.keras"):
        scoring.from_bytes(zipped(members), "m.keras")


@pytest.mark.parametrize("config", [b"{}", b"[]", b"null", b'{"class_name": "Sequential"}', b"\xff", b"{"])
def test_a_model_with_a_config_that_is_none_is_refused(tiny, config):
    with pytest.raises(DamagedObjectError, match="m.keras"):
        scoring.from_bytes(zipped({**members_of(tiny), "config.json": config}), "m.keras")


def test_a_file_that_holds_a_layer_alone_is_refused(tiny):
    config = json.dumps(keras.saving.serialize_keras_object(keras.layers.Flatten())).encode()

    with pytest.raises(DamagedObjectError, match=r"m\.keras holds a Flatten, not a model"):
        scoring.from_bytes(zipped({**members_of(tiny), "config.json": config}), "m.keras")


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_one_wrong_bit_is_refused_or_harmless(tiny, data):
    """Never another model than the one that was saved, and never another error."""
    place = data.draw(st.integers(0, len(tiny) - 1))
    wrong = bytearray(tiny)
    wrong[place] ^= 1 << data.draw(st.integers(0, 7))

    try:
        loaded = scoring.from_bytes(bytes(wrong), "m.keras")
    except DamagedObjectError as error:
        assert "m.keras" in str(error)
    else:
        whole = scoring.from_bytes(tiny, "m.keras")
        assert weights.digest(weights.arrays(loaded)) == weights.digest(weights.arrays(whole))


def test_one_saved_model_loaded_three_times_is_an_ensemble():
    """Bug report M13: members may share the names of their layers."""
    data = scoring.to_bytes(network.build((8, 8, 1), 3, seed=5))
    rows = np.random.default_rng(0).random((4, 8, 8, 1), np.float32)
    members = [scoring.logits(scoring.from_bytes(data, "member"), rows) for _ in range(3)]
    vote = measures.soft_vote(members)
    assert np.allclose(vote.sum(axis=1), 1.0)
    assert np.allclose(vote, measures.probabilities(members[0]))
