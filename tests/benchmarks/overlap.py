"""How much two stages of a pipeline work at once: beside one after the other, the uncut model, the bound.

    python tests/benchmarks/overlap.py [--rounds 7] [--rows 4096] [--width 512]

Two balanced stages of dense layers lie on two logical devices of the CPU, a thread each; what is timed is
the worker's own compiled training step, forward, backward and update. Beside it run, in turns, in a process
with one thread: the same micro-batches through the same stages, which then work one after the other, and the
uncut model on the whole batch. The bound is that of a pipeline without any cost, S M / (M + S - 1) (Huang et
al., GPipe, 2019). A stage's own operations may run at once, too (the gradients of its weights and of its
inputs): that is what is gained at M = 1, and what the uncut model gains on two threads. What two processes
that do not know of each other get done at once is measured as well. A ratio above 1 is in favour of the
pipeline; medians over rounds.
"""

import argparse
import multiprocessing as mp
import statistics
import time

from fourfold.page import lanes

MICRO_BATCHES = (1, 2, 4, 8)
STAGES = 2


def serve(connection, threads: int, rows: int, width: int, layers: int) -> None:
    """Times steps on demand: receives (stages, micro-batches), answers with seconds a step and busy spans."""
    import numpy as np
    import tensorflow as tf

    from fourfold.model import network
    from fourfold.model.pinned import keras
    from fourfold.worker import busy, cluster, parts
    from fourfold.worker.steps import Group, Steps

    cluster.start_runtime(1, STAGES)
    tf.config.threading.set_inter_op_parallelism_threads(threads)
    random = np.random.default_rng(0)
    x = random.standard_normal((rows, width)).astype(np.float32)
    y = random.integers(0, width, rows).astype(np.int32)
    made: dict[tuple[int, int], Steps] = {}

    def steps_of(stages: int, micro_batches: int) -> Steps:
        keras.utils.set_random_seed(0)
        dense = [keras.layers.Dense(width, activation="relu", name=f"dense_{n}") for n in range(layers)]
        model = keras.Sequential([keras.Input((width,)), *dense])
        if stages == 1:
            built = parts.whole(model, network.optimizer("sgd", 1e-3))
        else:
            cut = [f"dense_{layers // 2 - 1}"]
            built = parts.staged(model, lambda: network.optimizer("sgd", 1e-3), cut, ["CPU:0", "CPU:1"])
        return Steps(tf.distribute.get_strategy(), built, (width,), Group(), micro_batches)

    while (asked := connection.recv()) is not None:
        if asked not in made:
            made[asked] = steps_of(*asked)
        step = made[asked]

        def take(step=step):
            return step.run(x, y, np.array([0, rows]), np.array([float(rows)]), 0.0)

        take()
        started = time.perf_counter()
        take()
        seconds = time.perf_counter() - started
        spans = busy.during(take)[1] if asked[0] > 1 else []
        connection.send((seconds, [(span.stage, span.begin, span.end) for span in spans]))


def main() -> None:
    """Runs the benchmark."""
    shown = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=shown)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--rows", type=int, default=4096)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--layers", type=int, default=8)
    options = parser.parse_args()
    context = mp.get_context("spawn")
    ends = {}
    for name, threads in (("overlapped", STAGES), ("in turn", 1)):
        ours, theirs = context.Pipe()
        arguments = (theirs, threads, options.rows, options.width, options.layers)
        context.Process(target=serve, args=arguments, daemon=True).start()
        ends[name] = ours

    def ask(name: str, stages: int, micro_batches: int):
        ends[name].send((stages, micro_batches))
        return ends[name].recv()

    def at_once() -> float:
        """Work of two processes at once, each with the uncut model on a thread, in units of one's alone."""
        alone = ask("in turn", 1, 1)[0]
        for end in ends.values():
            end.send((1, 1))
        return len(ends) * alone / max(end.recv()[0] for end in ends.values())

    times: dict[tuple[str, int], list[float]] = {}
    machine: list[float] = []
    shares: dict[int, list[float]] = {}
    for turn in range(options.rounds + 1):
        machine.append(at_once())
        for micro_batches in MICRO_BATCHES:
            seconds, spans = ask("overlapped", STAGES, micro_batches)
            found = {"overlapped": seconds, "in turn": ask("in turn", STAGES, micro_batches)[0]}
            found["uncut"] = ask("in turn", 1, 1)[0]
            found["uncut, two threads"] = ask("overlapped", 1, 1)[0]
            if turn:
                for name, value in found.items():
                    times.setdefault((name, micro_batches), []).append(value)
                shares.setdefault(micro_batches, []).append(lanes.overlap(spans).share)
    for end in ends.values():
        end.send(None)
    print(f"{options.layers} dense layers of {options.width}, {options.rows:,} rows, {STAGES} stages, "
          f"medians of {options.rounds} rounds")  # fmt: skip
    print(f"two processes at once do {statistics.median(machine[1:]):.2f} times the work of one here "
          f"(from {min(machine[1:]):.2f} to {max(machine[1:]):.2f})")  # fmt: skip
    print(f"{'M':>2} {'overlapped':>11} {'in turn':>9} {'uncut':>9} {'bound':>6} {'/in turn':>9} "
          f"{'of bound':>9} {'/uncut':>7} {'/uncut on 2':>11} {'two busy':>9}")  # fmt: skip
    for micro_batches in MICRO_BATCHES:
        over, turned, uncut = (times[name, micro_batches] for name in ("overlapped", "in turn", "uncut"))
        gain = statistics.median(b / a for a, b in zip(over, turned, strict=True))
        whole = statistics.median(c / a for a, c in zip(over, uncut, strict=True))
        other = times["uncut, two threads", micro_batches]
        on_two = statistics.median(c / a for a, c in zip(over, other, strict=True))
        bound = STAGES * micro_batches / (micro_batches + STAGES - 1)
        print(
            f"{micro_batches:>2} {statistics.median(over):>9.3f} s {statistics.median(turned):>7.3f} s "
            f"{statistics.median(uncut):>7.3f} s {bound:>6.2f} {gain:>9.2f} {gain / bound:>9.2f} "
            f"{whole:>7.2f} {on_two:>11.2f} {statistics.median(shares[micro_batches]):>9.0%}"
        )


if __name__ == "__main__":
    main()
