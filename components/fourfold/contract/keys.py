"""The name of every object in the store. All keys are relative to a store's root and use ``/``."""


def dataset(fingerprint: str) -> str:
    """The prefix of one data set's cached batches."""
    return f"datasets/{fingerprint}"


def dataset_manifest(fingerprint: str) -> str:
    """The manifest of a data set; written last, so what has none does not exist."""
    return f"{dataset(fingerprint)}/manifest.json"


def batch(fingerprint: str, part: str, index: int, array: str) -> str:
    """One array (``x`` or ``y``) of one cached batch of a part (``train``, ``holdout`` or ``test``)."""
    return f"{dataset(fingerprint)}/{part}/{index:06d}.{array}.npy"


def split(fingerprint: str, split_id: str) -> str:
    """The description of one split: its shards' sizes and class counts."""
    return f"{dataset(fingerprint)}/splits/{split_id}.json"


def split_rows(fingerprint: str, split_id: str) -> str:
    """The row numbers of one split, int64, shard after shard."""
    return f"{dataset(fingerprint)}/splits/{split_id}.npy"


def model(index: int) -> str:
    """A trained model, whole, as Keras saves it; relative to a training's output."""
    return f"model-{index}.keras"


def scores(index: int) -> str:
    """The logits of a trained model for the hold-out and test rows; relative to a training's output."""
    return f"scores-{index}.safetensors"


def worker(index: int) -> str:
    """What one worker says of its training; relative to a training's output."""
    return f"worker-{index}.json"


def trace(worker_index: int, step: int) -> str:
    """A worker's state before and after one step; relative to a training's output."""
    return f"trace/worker-{worker_index}/step-{step:06d}.safetensors"


TRAINED = "trained.json"
"""What a training yielded, with the sha256 of its objects; written last, relative to a training's output."""

EVALUATION = "evaluation.json"
MERGED = "merged.json"
