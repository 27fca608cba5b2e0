"""The records of a data set in the store: its manifest, how its rows are dealt, who reads it."""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Part:
    """One part of a data set: ``train``, ``holdout`` or ``test``.

    Attributes:
        batches: how many cached batches it has.
        rows: in all of them.
        bytes: of all their objects.
        classes: rows of each class, in the order of the class numbers.
        sha256: of the part's index, which lists the cached batches one by one (see ``cache.layout``).
    """

    batches: int
    rows: int
    bytes: int
    classes: list[int]
    sha256: str


@dataclass(frozen=True)
class DatasetManifest:
    """What a data set in the store holds. Written last: a data set without one does not exist.

    Attributes:
        format: version of the layout.
        fingerprint: name of the data set; a hash over all that its content depends on.
        source: what was read, for people.
        source_sha256: over the source's uncompressed bytes.
        normalisation: what is done to the values, e.g. ``"x / 255"``.
        dtype: of ``x`` in the cached batches.
        shape: of one row of ``x``.
        class_names: by class number.
        rows_per_batch: rows of a cached batch; the last of a part may have fewer.
        parts: ``train``, ``holdout`` and ``test``.
        scale: what cached values are divided by when they are read; 1 where they are ready as they are.
        created: when it was written, seconds since 1970; 0 where that is not known.
    """

    format: int
    fingerprint: str
    source: str
    source_sha256: str
    normalisation: str
    dtype: str
    shape: list[int]
    class_names: list[str]
    rows_per_batch: int
    parts: dict[str, Part]
    scale: float = 1.0
    created: float = 0.0

    def rows(self, part: str) -> int:
        """Rows in a part."""
        return self.parts[part].rows

    @property
    def batches(self) -> int:
        """Cached batches in all parts."""
        return sum(part.batches for part in self.parts.values())

    @property
    def bytes(self) -> int:
        """Bytes of all cached batches."""
        return sum(part.bytes for part in self.parts.values())


@dataclass(frozen=True)
class Split:
    """How the training rows are dealt to shards.

    Attributes:
        id: name of the split; a hash over the row numbers, and those of its order if it has one.
        rule: the ``--split`` it was made from.
        seed: of the rule, where it draws.
        sizes: rows of each shard.
        classes: rows of each class in each shard.
        rows_sha256: of the object with the row numbers.
        said: what a user should know about it, in sentences.
        order_sha256: of the object with the order that a user gave; empty for none.
    """

    id: str
    rule: str
    seed: int
    sizes: list[int]
    classes: list[list[int]]
    rows_sha256: str
    said: list[str] = field(default_factory=list)
    order_sha256: str = ""


@dataclass(frozen=True)
class Lease:
    """Somebody reads a data set, or is about to: until then it is not pruned.

    Attributes:
        who: process and host, for people.
        since: seconds since 1970.
        until: likewise; the lease of a reader that lives is renewed before.
    """

    who: str
    since: float
    until: float
