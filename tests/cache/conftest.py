"""A small data set in a folder."""

from collections.abc import Callable

import pytest

from fourfold.cache import dataset
from fourfold.contract.datasets import DatasetManifest
from fourfold.store.objects import Store
from tests.conftest import Parts


@pytest.fixture
def made(objects: Store, parts: Parts, describe: Callable[[], DatasetManifest]) -> DatasetManifest:
    """The manifest of the data set as it was written to ``objects``."""
    return dataset.write_dataset(objects, describe(), parts)
