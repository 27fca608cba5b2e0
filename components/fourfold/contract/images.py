"""The container images that steps and workers run in, one name each, and the code that is in them.

An image's name says only its version, and a name can be built again with other code. So every step is told
the digest of the code that it was asked to run (an input, which KFP's cache compares), and refuses to run
other code.
"""

import functools
import hashlib
import importlib.util
from pathlib import Path

from fourfold import __version__
from fourfold.contract.errors import InvalidInputError

WORKER = f"fourfold/python-worker:{__version__}"
"""Everything: TensorFlow, kfp, kubernetes. Runs the TFJob's pods and the steps that train, merge or draw."""

STEPS = f"fourfold/python-steps:{__version__}"
"""Slim: no TensorFlow. Runs the steps that read, check and launch."""

PACKAGES = ("fourfold", "fourfold_pipelines")
KINDS = (".py", ".html")
"""Files of the wheel that are code."""


@functools.cache
def code() -> str:
    """Digest of the code that runs here: sha256 over path and content of every file of code in the wheel.

    The same for a checkout, an editable installation and the wheel that is built from it.
    """
    digest = hashlib.sha256()
    for package in PACKAGES:
        spec = importlib.util.find_spec(package)
        for root in map(Path, (spec and spec.submodule_search_locations) or []):
            files = {path.relative_to(root).as_posix(): path for path in root.rglob("*")}
            for name in sorted(n for n, path in files.items() if path.suffix in KINDS and path.is_file()):
                digest.update(f"{package}/{name}\0".encode())
                digest.update(hashlib.sha256(files[name].read_bytes()).digest())
    return digest.hexdigest()


def expect(wanted: str) -> None:
    """Refuses to go on with other code than was asked for.

    Args:
        wanted: as of ``code``, where the run was started; empty for whatever is here.

    Raises:
        InvalidInputError: the code here is another.
    """
    if wanted and wanted != code():
        raise InvalidInputError(
            f"the run was started with code {wanted[:12]}, this image or installation holds {code()[:12]} "
            f"(version {__version__}): build and load the images again (images/build), or start the run, or "
            "compile the pipeline, with the installation that the images were built from"
        )
