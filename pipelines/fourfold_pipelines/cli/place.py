"""Where the workers of a run are: processes here, or pods of a cluster; and how its store is reached."""

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fourfold.contract import pods
from fourfold.contract.errors import InvalidInputError
from fourfold.prepare.source import cache_folder
from fourfold_pipelines.cli.options import NAMESPACE

if TYPE_CHECKING:
    from fourfold_pipelines.reach import Reached

STORE = "FOURFOLD_STORE"
GIVEN = "FOURFOLD_PODS"
PLACES = ("here", "cluster")


@dataclass(frozen=True)
class Place:
    """Where a run's workers are.

    Attributes:
        pods: what their pods are given, as the pipeline takes it.
        store: URI of the store.
    """

    pods: str
    store: str


@contextlib.contextmanager
def place(on: str, store: str | None, namespace: str | None, said: str) -> Iterator[Place]:
    """Finds out how the workers are reached; what is opened for it is closed at the end.

    Meanwhile this process's environment says how the store is reached, and its children inherit that.

    Args:
        on: one of ``PLACES``.
        store: URI, if one was given.
        namespace: of the cluster, if one was given.
        said: of the pods, a JSON object.

    Raises:
        InvalidInputError: an option only makes sense on a cluster, or pods cannot reach the store.
        ClusterError: the cluster does not answer, or lacks what the manifests make.
    """
    told = store or os.environ.get(STORE)
    if on == pods.HERE:
        if said != "{}":
            raise InvalidInputError("--namespace, --gpus and --pods are about pods: add --on cluster")
        yield Place(pods.HERE, told or str(cache_folder() / "store"))
    elif "KUBERNETES_SERVICE_HOST" in os.environ:
        given = pods.read(os.environ.get(GIVEN, "{}"), said)
        yield Place(pods.write(given), remote(told))
    else:
        if told:
            remote(told)
        with reached(namespace or NAMESPACE, said) as found:
            yield Place(pods.write(found.pods), remote(told or found.store))


@contextlib.contextmanager
def reached(namespace: str, said: str = "{}") -> "Iterator[Reached]":
    """Opens the way to the store of a cluster; meanwhile this process's environment says how it is reached.

    Args:
        namespace: of the cluster.
        said: of the pods, a JSON object.

    Raises:
        ClusterError: the cluster does not answer, or lacks what the manifests make.
    """
    # The Kubernetes client is slow to import; a run here does without it.
    from fourfold_pipelines.reach import reach

    with reach(namespace, said) as found:
        os.environ.update(found.environment)
        try:
            yield found
        finally:
            for name in found.environment:
                os.environ.pop(name, None)


def remote(store: str | None) -> str:
    """The store, if pods can reach it.

    Raises:
        InvalidInputError: they cannot.
    """
    if not store or not pods.can_reach(store):
        raise InvalidInputError(
            f"pods cannot reach the store {store or ''!r}: give --store s3://bucket/prefix "
            f"(or {STORE}; the manifests' ConfigMap names one)"
        )
    return store
