"""What a site gathers of its own model and rows when it has trained, so that merging needs no row of it."""

from fourfold.contract import keys
from fourfold.contract.records import Training
from fourfold.model import linear, scoring, weights
from fourfold.rules import statistics
from fourfold.rules.sites import Site
from fourfold.store.formats import arrays_to_bytes, sha256
from fourfold.store.objects import Store
from fourfold.worker.input import Shard


def write(output: Store, index: int, training: Training, shard: Shard) -> dict[str, str]:
    """Writes the statistics of a model that was trained on a shard.

    Args:
        output: the training's output, with the model.
        index: of the model.
        training: gives the seed of what is drawn.
        shard: whose rows are run through the model.

    Returns:
        The sha256 of the object written, by key.
    """
    model = scoring.from_bytes(output.read(keys.model(index)), keys.model(index))
    maps, _ = linear.maps(model, statistics.WIDEST)
    x, y = shard.drawn(statistics.GRAM_ROWS)
    site = Site(index, x, y, model, maps)
    found = statistics.gather(site, weights.arrays(model), training.seed)
    key, data = keys.statistics(index), arrays_to_bytes(found)
    output.write(key, data)
    return {key: sha256(data)}
