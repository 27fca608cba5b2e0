"""The story of the step: read what the other steps left, gather the numbers, draw the page."""

import platform
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from fourfold.cache import dataset, splits
from fourfold.contract import images, keys
from fourfold.contract.merged import Merged
from fourfold.contract.pods import HERE, read
from fourfold.contract.records import Evaluation
from fourfold.contract.strict import from_json
from fourfold.report import page, results
from fourfold.store.objects import open_store

LIBRARIES = ("fourfold", "tensorflow", "tensorflow-cpu", "keras", "numpy", "kfp")


def report(
    store: str,
    fingerprint: str,
    split_id: str,
    evaluations: Sequence[str],
    merged: str,
    arguments: Mapping[str, Any],
    pods: str = HERE,
) -> tuple[dict[str, Any], str]:
    """Makes the page and the results of a run.

    Args:
        store: URI of the store that holds the data set.
        fingerprint: of the data set.
        split_id: of the split.
        evaluations: paths of the evaluations' JSON.
        merged: URI of the merge step's output.
        arguments: of the run.
        pods: what the workers' pods were given, as a JSON object, or ``here`` where there were none.

    Returns:
        The values of ``results.json``, and the page's HTML.
    """
    source = open_store(store)
    split, _ = splits.read_split(source, fingerprint, split_id)
    gathered = results.build(
        [from_json(Evaluation, Path(path).read_bytes(), path) for path in evaluations],
        from_json(Merged, open_store(merged).read(keys.MERGED), keys.MERGED),
        dataset.read_manifest(source, fingerprint),
        split,
        arguments=arguments,
        versions=versions(),
        images=_images(pods),
    )
    return gathered, page.render(gathered)


def _images(pods: str) -> dict[str, str]:
    """The code that ran, and the image that the workers ran in, if they did."""
    found = {"code": images.code()}
    return found if pods == HERE else {**found, "worker": read(pods).image}


def versions() -> dict[str, str]:
    """Of Python and of the libraries that results depend on, where they are installed."""
    found = {"python": platform.python_version()}
    for name in LIBRARIES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found
