"""The versions that this version was tested with; the README's table says the same, tested."""

from fourfold_pipelines.doctor.findings import Finding, ok, warn

TESTED: dict[str, tuple[str, ...]] = {
    "Python": ("3.11",),
    "TensorFlow": ("2.21",),
    "Keras": ("3.15",),
    "KFP SDK": ("2.17",),
    "KFP back end": ("2.17",),
    "Kubernetes": ("1.34",),
    "training operator": ("1.8",),
}
"""The beginning of each version, by what it is of."""


def check(what: str, version: str) -> Finding:
    """How a version stands to those that were tested.

    Args:
        what: a key of ``TESTED``.
        version: as it says itself, such as ``v1.34.4``.
    """
    plain = version.removeprefix("v")
    if any(plain == tested or plain.startswith(f"{tested}.") for tested in TESTED[what]):
        return ok(f"{what} {plain}")
    return warn(
        f"{what} {plain} was not tested, {' and '.join(TESTED[what])} was",
        "it may well work; if something is odd, try a tested version first",
    )
