"""The name of every object in the store. All keys are relative to a store's root and use ``/``."""

from fourfold.contract.errors import InvalidInputError

PART = ".part-"
"""What the name of an object begins with while a store writes it; no key has such a part."""


def parts(key: str) -> list[str]:
    """The parts of a key.

    Raises:
        InvalidInputError: the key is not relative, or has a part, or a character, that a store cannot keep.
    """
    found = key.split("/")
    wrong = any(part in ("", ".", "..") or part.startswith(PART) for part in found)
    if wrong or "\\" in key or "\0" in key:
        raise InvalidInputError(
            f"{key!r} is no key: a key is relative, uses '/', has no empty, '.', '..' or '{PART}' part, "
            "no backslash and no NUL"
        )
    return found


def dataset(fingerprint: str) -> str:
    """The prefix of one data set's cached batches."""
    return f"{DATASETS}/{fingerprint}"


def dataset_manifest(fingerprint: str) -> str:
    """The manifest of a data set; written last, so what has none does not exist."""
    return f"{dataset(fingerprint)}/manifest.json"


def batch(fingerprint: str, part: str, index: int) -> str:
    """One cached batch of a part (``train``, ``holdout`` or ``test``)."""
    return f"{dataset(fingerprint)}/{part}/{index:09d}.npy"


def index(fingerprint: str, part: str) -> str:
    """The list of a part's cached batches."""
    return f"{dataset(fingerprint)}/{part}/index.npy"


def lease(fingerprint: str, reader: str) -> str:
    """What one reader of a data set leaves while it reads."""
    return f"{leases(fingerprint)}/{reader}.json"


def leases(fingerprint: str) -> str:
    """The prefix of what readers of a data set leave while they read."""
    return f"{dataset(fingerprint)}/readers"


def used(fingerprint: str) -> str:
    """When a data set was last read."""
    return f"{dataset(fingerprint)}/used.json"


def pruning(fingerprint: str) -> str:
    """There while somebody is deleting a data set."""
    return f"{dataset(fingerprint)}/pruning.json"


def split(fingerprint: str, split_id: str) -> str:
    """The description of one split: its shards' sizes and class counts."""
    return f"{dataset(fingerprint)}/splits/{split_id}.json"


def split_rows(fingerprint: str, split_id: str) -> str:
    """The row numbers of one split, int64, shard after shard."""
    return f"{dataset(fingerprint)}/splits/{split_id}.npy"


def split_order(fingerprint: str, split_id: str) -> str:
    """The order of rows that a user gave with a split, int64."""
    return f"{dataset(fingerprint)}/splits/{split_id}.order.npy"


DATASETS = "datasets"


def trainings(run: str) -> str:
    """The prefix of what the trainings of a run write where their step has no place that pods can reach."""
    return f"trainings/{run}"


def training(run: str, digest: str) -> str:
    """The output of one training of a run."""
    return f"{trainings(run)}/{digest}"


def model(index: int) -> str:
    """A trained model, whole, as Keras saves it; relative to a training's output."""
    return f"model-{index}.keras"


def scores(index: int) -> str:
    """The logits of a trained model for the hold-out and test rows; relative to a training's output."""
    return f"scores-{index}.safetensors"


def statistics(index: int) -> str:
    """What the site of a trained model gathered for merging it; relative to a training's output."""
    return f"statistics-{index}.safetensors"


def merged(index: int) -> str:
    """What a chain of rules made of models at their sites; relative to the output of that."""
    return f"merged-{index}.keras"


def probes(index: int) -> str:
    """Features of fixed rows along the training of a model; relative to a training's output."""
    return f"probes-{index}.safetensors"


def stage(index: int) -> str:
    """What the process says that holds one stage of a model; relative to a training's output."""
    return f"stage-{index}.json"


def worker(index: int) -> str:
    """What one worker says of its training; relative to a training's output."""
    return f"worker-{index}.json"


CHECKPOINTS = "checkpoints"
SAVED = "saved.json"


def checkpoints(model_index: int) -> str:
    """The prefix of the checkpoints of one model; relative to a training's output."""
    return f"{CHECKPOINTS}/model-{model_index}"


def saved(model_index: int, epoch: int) -> str:
    """The manifest of the checkpoint after an epoch; written last, so what has none does not exist."""
    return f"{checkpoints(model_index)}/epoch-{epoch:06d}/{SAVED}"


def shared_state(model_index: int, epoch: int) -> str:
    """In a checkpoint what all copies of the model share."""
    return f"{checkpoints(model_index)}/epoch-{epoch:06d}/shared.safetensors"


def own_state(model_index: int, epoch: int, worker_index: int) -> str:
    """In a checkpoint what is one worker's own."""
    return f"{checkpoints(model_index)}/epoch-{epoch:06d}/worker-{worker_index}.safetensors"


def saved_report(model_index: int, epoch: int, worker_index: int) -> str:
    """In a checkpoint what a worker had to say so far."""
    return f"{checkpoints(model_index)}/epoch-{epoch:06d}/worker-{worker_index}.json"


def epoch_of(key: str) -> int:
    """The epoch of an object of a checkpoint."""
    return int(key.split("/")[2].removeprefix("epoch-"))


def trace(worker_index: int, step: int) -> str:
    """A worker's state before and after one step; relative to a training's output."""
    return f"trace/worker-{worker_index}/step-{step:06d}.safetensors"


TRAINED = "trained.json"
"""What a training yielded, with the sha256 of its objects; written last, relative to a training's output."""

RESULTS = "results.json"
"""A run's numbers; written last, so where they are all of the run is; relative to the run's place."""

NOTHING = "nothing.json"
"""Says that a step had nothing to do; relative to its output."""

MERGED = "merged.json"

HANDED_ON = "handed-on.keras"
"""The model that the merge step hands on: the merge, or what is better; relative to the step's output."""
