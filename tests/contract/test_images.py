"""The digest of the code: the same wherever the same code is installed, another for any other code."""

import importlib.util
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from fourfold import __version__
from fourfold.contract import images
from fourfold.contract.errors import InvalidInputError

ROOT = Path(__file__).parents[2]
DIGEST = "from fourfold.contract import images; print(images.__file__, images.code())"
OTHER = "0" * 64


def digest_in(*folders: Path) -> str:
    """The digest in a new process that finds the packages in these folders first."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, folders))}
    done = subprocess.run(
        [sys.executable, "-c", DIGEST], cwd="/", env=environment, capture_output=True, text=True, check=True
    )
    file, digest = done.stdout.split()
    assert not folders or Path(file).is_relative_to(folders[0])
    return digest


@pytest.fixture
def tree(tmp_path) -> Path:
    """A copy of the two packages, side by side as in a wheel."""
    ignored = shutil.ignore_patterns("__pycache__", "*.gz")
    for package in ("components/fourfold", "pipelines/fourfold_pipelines"):
        shutil.copytree(ROOT / package, tmp_path / "tree" / Path(package).name, ignore=ignored)
    return tmp_path / "tree"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> tuple[Path, Path]:
    """A copy of the checkout, and the wheel that is built from it, unpacked."""
    checkout, folder = tmp_path_factory.mktemp("checkout"), tmp_path_factory.mktemp("wheel")
    for name in ("components", "pipelines"):
        shutil.copytree(ROOT / name, checkout / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE", ".gitignore"):
        shutil.copy(ROOT / name, checkout)
    # Without the builder that pyproject.toml names pip fetches it, as for any user.
    here = ("--no-build-isolation", "--no-index") if importlib.util.find_spec("hatchling") else ()
    command = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "-q",
        "--no-deps",
        *here,
        "-w",
        str(folder),
        str(checkout),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    if done.returncode and not here:
        pytest.skip(f"hatchling is not installed and could not be fetched: {done.stderr[-300:]}")
    assert done.returncode == 0, done.stderr
    (built,) = folder.glob("fourfold-*.whl")
    with zipfile.ZipFile(built) as file:
        file.extractall(folder / "unpacked")
    return checkout, folder / "unpacked"


def test_checkout_and_wheel_have_one_digest(wheel):
    checkout, unpacked = wheel
    assert digest_in(checkout / "components", checkout / "pipelines") == digest_in(unpacked)


def test_all_of_the_wheel_is_code_but_the_sample(wheel):
    _, unpacked = wheel
    files = [path.relative_to(unpacked) for path in unpacked.rglob("*") if path.is_file()]
    rest = {path.as_posix() for path in files if path.suffix not in images.KINDS}
    inside = {name for name in rest if ".dist-info/" not in name}
    assert inside
    assert {name for name in inside if not name.startswith("fourfold/prepare/sample/")} == set()


def test_an_editable_installation_has_the_digest_of_a_copy_elsewhere(tree):
    assert digest_in() == digest_in(tree)


def test_the_digest_is_a_sha256_and_does_not_change_within_a_process():
    assert len(bytes.fromhex(images.code())) == 32
    assert images.code() == images.code()


@pytest.mark.parametrize(
    "name",
    [
        "fourfold/__init__.py",
        "fourfold/contract/plan.py",
        "fourfold/worker/loop.py",
        "fourfold/report/templates/report.html",
        "fourfold_pipelines/experiment.py",
        "fourfold_pipelines/cli/__init__.py",
    ],
)
def test_one_changed_byte_is_other_code(tree, name):
    before = digest_in(tree)
    path = tree / name
    path.write_bytes(path.read_bytes() + b"\n")
    assert digest_in(tree) != before


@pytest.mark.parametrize("change", ["a file more", "a file less", "renamed", "swapped"])
def test_files_that_come_go_or_change_places_are_other_code(tree, change):
    before = digest_in(tree)
    one, two = tree / "fourfold/rules/plain_mean.py", tree / "fourfold/rules/weighted_mean.py"
    if change == "a file more":
        (tree / "fourfold/rules/empty.py").touch()
    elif change == "a file less":
        one.unlink()
    elif change == "renamed":
        one.rename(one.with_name("plainer_mean.py"))
    else:
        first, second = one.read_bytes(), two.read_bytes()
        one.write_bytes(second)
        two.write_bytes(first)
    assert digest_in(tree) != before


def test_what_python_or_a_reader_leaves_beside_the_code_does_not_count(tree):
    before = digest_in(tree)
    subprocess.run([sys.executable, "-m", "compileall", "-q", str(tree)], check=True)
    assert list(tree.rglob("*.pyc"))
    (tree / "fourfold" / "notes.txt").write_text("not code")
    (tree / "other.py").write_text("beside the packages")
    os.utime(tree / "fourfold" / "__init__.py", (0, 0))
    assert digest_in(tree) == before


def test_the_order_in_which_a_file_system_lists_does_not_matter(monkeypatch):
    before, listed = images.code.__wrapped__(), Path.rglob
    monkeypatch.setattr(Path, "rglob", lambda self, pattern: reversed(list(listed(self, pattern))))
    assert images.code.__wrapped__() == before


@pytest.mark.parametrize("wanted", ["", images.code()], ids=["any", "this"])
def test_the_code_that_was_asked_for_is_accepted(wanted):
    images.expect(wanted)


@pytest.mark.parametrize(
    "wanted", [OTHER, images.code()[:12], images.code() + "0"], ids=["another", "its beginning", "longer"]
)
def test_other_code_is_refused_with_both_digests_and_what_to_do(wanted):
    with pytest.raises(InvalidInputError) as caught:
        images.expect(wanted)
    said = str(caught.value)
    assert f"the run was started with code {wanted[:12]}" in said
    assert f"this image or installation holds {images.code()[:12]} (version {__version__})" in said
    assert "build and load the images again (images/build)" in said


@pytest.mark.parametrize("image", [images.WORKER, images.STEPS])
def test_an_images_tag_is_the_version(image):
    """Neither ``latest`` nor no tag, which a cluster pulls whatever was loaded into it (C1)."""
    name, _, tag = image.rpartition(":")
    assert name.startswith("fourfold/")
    assert tag == __version__
