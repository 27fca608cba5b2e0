"""What merging costs as models grow: seconds and memory of the rules that need no rows, by parameters.

Two members that are stacks of twelve Dense layers, as arrays alone; a process a case, so that each has a peak
of memory of its own. ``PYTHONPATH=components python tests/benchmarks/merging_cost.py``
"""

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

LAYERS = 12
MILLIONS = (0.5, 5, 50)
RULES = ("plain_mean", "weighted_mean", "fisher", "ties", "task_arithmetic", "weight_matching")
COPIES = 2
"""Models that a rule may hold beside what it is given; the merged one is the first of them."""
SLACK = 0.05
"""Of one model: what the allocator and arrays of indices take."""
SIDES = (250, 500, 1000, 2000)
"""Units of a layer whose assignment is timed by itself."""
SECONDS = 1500
"""A case at most."""

Weights = dict[str, np.ndarray]


def drawn(width: int, seed: int) -> Weights:
    """A stack's weights, float32."""
    generator, found = np.random.default_rng(seed), {}
    for layer in range(LAYERS):
        found[f"{layer}:Dense/kernel"] = generator.standard_normal((width, width), np.float32)
        found[f"{layer}:Dense/bias"] = generator.standard_normal(width, np.float32)
    return found


def memory(name: str) -> int:
    """A line of this process's memory in /proc, bytes: ``VmRSS`` now, ``VmHWM`` at most."""
    (line,) = (each for each in Path("/proc/self/status").read_text().splitlines() if each.startswith(name))
    return 1024 * int(line.split()[1])


def matching(width: int) -> tuple[Weights, Weights, Callable[[], object]]:
    """Two stacks, and what matches them: the second is the first with noise, its units in other places."""
    from fourfold.model.symmetry import Axis, Group, Symmetry, drawn as orders
    from fourfold.rules import members, weight_matching

    axes = [Axis(np.full(width, group), np.arange(width)) for group in range(LAYERS - 1)]
    ends = [None, *axes, None]
    symmetry = Symmetry(
        tuple(Group(f"layer {group}", width) for group in range(LAYERS - 1)),
        {f"{i}:Dense/kernel": (ends[i], ends[i + 1]) for i in range(LAYERS)}
        | {f"{i}:Dense/bias": (ends[i + 1],) for i in range(LAYERS)},
    )
    first = drawn(width, 0)
    second = symmetry.permuted(first, orders(symmetry, 0))
    noise = np.random.default_rng(1)
    for value in second.values():
        value += 0.3 * noise.standard_normal(value.shape, np.float32)

    def merge() -> object:
        found = weight_matching.match(symmetry, first, second, tries=1)
        moved = symmetry.permuted(second, found)
        return members.mean([member(first), member(moved)])

    return first, second, merge


def member(values: Weights, statistics: Weights | None = None):
    """A member of one row."""
    from fourfold.rules.members import Member

    return Member("made up", values, (), (), 1, 0, statistics or {})


def made(rule: str, width: int) -> tuple[int, Callable[[], object]]:
    """How many models' worth of arrays a rule is given, and what applies it."""
    from fourfold.rules import fisher, plain_mean, task_arithmetic, ties, weighted_mean

    if rule == "weight_matching":
        return 2, matching(width)[2]
    if rule == "fisher":
        told = [
            {f"fisher/{name}": np.square(value) for name, value in drawn(width, seed).items()}
            for seed in (2, 3)
        ]
        two = [member(drawn(width, seed), told[seed]) for seed in (0, 1)]
        return 4, lambda: fisher.merge(two)
    two = [member(drawn(width, seed)) for seed in (0, 1)]
    if rule in ("ties", "task_arithmetic"):
        start = drawn(width, 4)
        if rule == "ties":
            return 3, lambda: ties.merge(two, start)
        return 3, lambda: task_arithmetic.merge(two, start, 0.5)
    return 2, lambda: {"plain_mean": plain_mean, "weighted_mean": weighted_mean}[rule].merge(two)


def case(rule: str, width: int) -> None:
    """The child: applies a rule once and prints what it took."""
    made(rule, 8)[1]()  # Imports, and what libraries set up at their first use.
    before = memory("VmRSS")
    given, merge = made(rule, width)
    # Imports may have taken more than they hold now: the peak is counted from here on.
    Path("/proc/self/clear_refs").write_text("5")
    began = time.perf_counter()
    merged = merge()
    seconds = time.perf_counter() - began
    assert merged is not None
    print(json.dumps({"given": given, "seconds": seconds, "peak": memory("VmHWM") - before}))


def measured(rule: str, width: int) -> dict[str, float]:
    """Runs a case in a process of its own."""
    command = [sys.executable, __file__, rule, str(width)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=SECONDS)
    return json.loads(done.stdout.splitlines()[-1])


def assignments() -> None:
    """Times the assignment of units by itself, which grows faster than the parameters do."""
    from scipy.optimize import linear_sum_assignment

    print("the assignment of weight_matching alone, of scores at random")
    before = None
    for side in SIDES:
        scores = np.random.default_rng(0).standard_normal((side, side))
        began = time.perf_counter()
        linear_sum_assignment(scores, maximize=True)
        took = time.perf_counter() - began
        grew = f", {took / before:.1f} times the line above" if before else ""
        print(f"  {side:5,} units {took:8.3f} s{grew}", flush=True)
        before = took


def main() -> None:
    """Measures and prints."""
    print(f"two members of {LAYERS} Dense layers, float32; memory in multiples of one model")
    for rule in RULES:
        said = " (one try, by default 5)" if rule == "weight_matching" else ""
        print(f"{rule}{said}", flush=True)
        first = None
        for millions in MILLIONS:
            width = round((millions * 1e6 / LAYERS) ** 0.5)
            found = measured(rule, width)
            parameters = LAYERS * (width * width + width)
            each = found["seconds"] / parameters * 1e6
            peak, limit = found["peak"] / (4 * parameters), found["given"] + COPIES
            held = "within" if peak <= limit + SLACK else "ABOVE"
            first = first or each
            print(
                f"  {parameters / 1e6:5.1f} M parameters {found['seconds']:8.3f} s "
                f"{each:8.4f} s a million ({each / first:5.2f} of the first)  "
                f"peak {peak:5.2f}, {held} {found['given']} given + {COPIES}",
                flush=True,
            )
    assignments()


if __name__ == "__main__":
    if len(sys.argv) == 3:
        case(sys.argv[1], int(sys.argv[2]))
    else:
        main()
