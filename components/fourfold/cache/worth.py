"""What a cache saves, by arithmetic: the first epoch pays a miss for every batch, later ones a hit."""

from dataclasses import dataclass

from fourfold.contract.errors import InvalidInputError


@dataclass(frozen=True)
class Worth:
    """The input time of a training with and without a cache; times in the unit of what a batch costs.

    Attributes:
        batches: of an epoch.
        without: every epoch pays a miss for every batch.
        filling: the first epoch with the cache.
        hitting: all later ones together.
    """

    batches: int
    without: float
    filling: float
    hitting: float

    @property
    def within(self) -> float:
        """All epochs with the cache."""
        return self.filling + self.hitting

    @property
    def gain(self) -> float:
        """How many times less that is than without; 1 where neither costs anything."""
        return self.without / self.within if self.within else 1.0


def worth(rows: int, batch: int, epochs: int, miss: float, hit: float) -> Worth:
    """Works out what a cache of all rows saves.

    With 60,000 rows in batches of 128, 8 ms a miss, 1 ms a hit and 10 epochs: 469 batches, 37,520 ms without,
    3,752 + 4,221 = 7,973 ms with, about 4.7 times less. One epoch gains nothing.

    Args:
        rows: of an epoch.
        batch: rows of a batch.
        epochs: passes over the rows.
        miss: time of a batch that is fetched and made ready.
        hit: time of a batch that the cache has.

    Raises:
        InvalidInputError: a number is out of its range.
    """
    for name, value in (("rows", rows), ("batch", batch), ("epochs", epochs)):
        if value < 1:
            raise InvalidInputError(f"{name} must be at least 1, got {value}")
    for name, value in (("miss", miss), ("hit", hit)):
        if not 0 <= value < float("inf"):
            raise InvalidInputError(f"the time of a {name} must be a number from 0 on, got {value}")
    batches = -(-rows // batch)
    return Worth(batches, epochs * batches * miss, batches * miss, (epochs - 1) * batches * hit)
