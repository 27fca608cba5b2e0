"""This machine: versions of what runs here."""

import platform
from collections.abc import Iterator
from importlib import metadata

from fourfold.contract import images
from fourfold_pipelines.doctor import tested
from fourfold_pipelines.doctor.findings import Finding, ok, wrong

PACKAGES = {"TensorFlow": ("tensorflow", "tensorflow-cpu"), "Keras": ("keras",), "KFP SDK": ("kfp",)}
"""Distributions that bring a library; one of them is enough."""


def check() -> Iterator[Finding]:
    """Looks at the versions that are installed, and says which code this is."""
    yield tested.check("Python", platform.python_version())
    for what, names in PACKAGES.items():
        found = next((version for name in names if (version := _version(name))), None)
        if found is None:
            yield wrong(
                f"{what} is not installed",
                "install this package again, with all that it needs: pip install -e .",
            )
        else:
            yield tested.check(what, found)
    yield ok(f"code {images.code()[:12]}, which the images must hold too")


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
