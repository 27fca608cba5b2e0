"""What is chosen when a pipeline is built, and so is no argument of its runs: where it runs, and in what."""

import json
import re
from dataclasses import dataclass, replace

from fourfold.contract import images, pods
from fourfold.contract.errors import InvalidInputError
from fourfold.contract.pods import Pods

KUBEFLOW_PODS = json.dumps(
    {"secret": "mlpipeline-minio-artifact", "access_key": "accesskey", "secret_key": "secretkey"}
)
"""Where Kubeflow Pipelines itself keeps the account of its store, as ``manifests/overlays/kubeflow`` says."""
KUBEFLOW_STORE = "s3://mlpipeline/fourfold"
NAME = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?")
NAME_LENGTH = 100
"""Of a pipeline, as the API of Kubeflow Pipelines takes it."""


@dataclass(frozen=True)
class Chosen:
    """What a pipeline is built with.

    Attributes:
        pods: what the pods that train are given, a JSON object; or ``here``, for processes.
        store: URI of the store that a run uses if none is named.
        in_kubeflow: whether steps are pods of Kubeflow, which need an image, resources, the store's account.
        registry: put before the images' names, such as ``registry.example.org/team``; empty for none.
        steps_image: in place of the slim image; empty for ours.
        worker_image: in place of the image with TensorFlow; empty for ours.
        keep_failed: leave TFJobs that failed to their time to live, so that their pods can be looked at.
    """

    pods: str = pods.HERE
    store: str = "/fourfold"
    in_kubeflow: bool = False
    registry: str = ""
    steps_image: str = ""
    worker_image: str = ""
    keep_failed: bool = False

    def image(self, ours: str) -> str:
        """The image that takes the place of one of ours.

        Raises:
            InvalidInputError: it has no tag that stays what it is.
        """
        other = self.worker_image if ours == images.WORKER else self.steps_image
        found = other or (f"{self.registry.rstrip('/')}/{ours}" if self.registry else ours)
        if not pods.is_pinned(found):
            raise InvalidInputError(
                f"{found!r} cannot be the image of a step: name one with a tag that stays what it is (not "
                "`latest`), or with a digest, since Kubeflow's cache goes by the name"
            )
        return found

    def of_pods(self) -> Pods:
        """What the pods that train are given; what is usual where there are none."""
        return Pods() if self.pods == pods.HERE else pods.read(self.pods)


def for_kubeflow(said: str = "{}", store: str = "", **how: str | bool) -> Chosen:
    """What a pipeline for Kubeflow is built with.

    Args:
        said: of the pods, a JSON object; goes before what Kubeflow Pipelines' own store needs.
        store: URI; empty for a prefix in Kubeflow Pipelines' own store.
        **how: other attributes of ``Chosen``.

    Raises:
        InvalidInputError: something cannot be used; the error names it.
    """
    if store and not pods.can_reach(store):
        raise InvalidInputError(
            f"steps in Kubeflow cannot reach the store {store!r}: give s3://bucket/prefix"
        )
    chosen = Chosen(pods="{}", store=store or KUBEFLOW_STORE, in_kubeflow=True, **how)  # pyright: ignore
    given = pods.read(KUBEFLOW_PODS, said)
    if given.image == images.WORKER:
        given = replace(given, image=chosen.image(images.WORKER))
    return replace(chosen, pods=pods.write(given))


def check_name(name: str) -> None:
    """Refuses a pipeline's name that Kubeflow would refuse, with a bare 400, or change.

    Raises:
        InvalidInputError: it cannot be a pipeline's name.
    """
    if not NAME.fullmatch(name) or len(name) > NAME_LENGTH:
        raise InvalidInputError(
            f"{name!r} cannot be a pipeline's name: it has a-z, 0-9 and '-', a letter or digit at both ends, "
            f"and at most {NAME_LENGTH} characters; this one has {len(name)}"
        )
