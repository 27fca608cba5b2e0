"""The training of one worker, as one story."""

import resource
import sys
from dataclasses import replace

import tensorflow as tf

from fourfold.cache import leases
from fourfold.contract import events, keys, plan as plans
from fourfold.contract.records import Training, WorkerReport
from fourfold.contract.strict import to_json
from fourfold.model import stages as cutting
from fourfold.store.formats import sha256
from fourfold.store.objects import open_store
from fourfold.worker import build, cluster, gathered, input, merging, remote, save, words
from fourfold.worker.checkpoint import Checkpoints, identity
from fourfold.worker.epochs import Epochs
from fourfold.worker.probes import Probes
from fourfold.worker.rounds import Rounds
from fourfold.worker.steps import Group, Steps


def train(training: Training, role: cluster.Role, process: str) -> None:
    """Is one process of a training: trains its workers' models, or holds a stage for the one that does.

    Args:
        training: what to train.
        role: this process's place among all processes.
        process: what it is called in the results.

    Raises:
        DivergedError: the loss or a weight is not finite any more.
        StoreError: rows cannot be read, or results not written.
        PeerLostError: a process that this one needs is gone.
    """
    plan = plans.of(training)
    if not plan.workers_of(role.rank):
        remote.hold_stage(training, role, process)
        return
    # What an earlier try left must not be taken for this one's; peers meet after this.
    for worker in plan.workers_of(role.rank):
        open_store(training.output).delete(keys.worker(worker))
    devices = cluster.start_runtime(training.threads, 1 if plan.stage_a_process else plan.stages)
    if training.debug:
        tf.config.run_functions_eagerly(True)
        strategy, devices = tf.distribute.get_strategy(), [devices[0]] * plan.stages
    elif plan.stage_a_process:
        strategy, devices = tf.distribute.get_strategy(), remote.connect(role, plan.stages)
    else:
        one_device = plan.scenario.splits_model or plan.scenario.in_rounds
        strategy = cluster.make_strategy(role.in_group(plan), one_device)
    events.tell(
        "started", scenario=training.scenario, worker=role.rank, workers=plan.processes, process=process
    )
    if training.merging is not None:
        merging.merge(training, training.merging, plan, role, strategy, process)
        return
    for worker in plan.workers_of(role.rank):
        with leases.reading(open_store(training.store), training.fingerprint):
            shard = input.read_shard(training, plan, worker, role.beside)
            with shard.reader:
                _train(training, plan, shard, strategy, devices, process)


def _train(
    training: Training,
    plan: plans.Plan,
    shard: input.Shard,
    strategy: tf.distribute.Strategy,
    devices: list[str],
    process: str,
) -> None:
    output, worker = open_store(training.output), shard.worker
    shape, classes = tuple(shard.manifest.shape), len(shard.manifest.class_names)
    built = build.build(training, plan, worker, strategy, devices, shape, classes)
    row = plan.scenario
    workers = plan.group_of(worker)
    group = Group(
        rank=workers.index(worker),
        world=len(workers),
        exchanges=not row.in_rounds,
        copies_back=row.copies_back,
    )
    rounds = Rounds(strategy, built, training.server_momentum) if row.in_rounds else None
    steps = Steps(
        strategy,
        built,
        shape,
        group,
        micro_batches=training.micro_batches if row.splits_model else 1,
        proximal=training.proximal if rounds else 0.0,
        anchor=rounds.anchor if rounds and training.proximal else None,
    )
    steps.compile()
    probes = Probes(built.whole, open_store(training.store), shard.manifest) if row.starts_apart else None
    report = WorkerReport(
        worker=worker,
        training=identity(training),
        process=process,
        model=plan.model_of(worker),
        rows=len(shard.numbers),
        window=shard.reader.fit.window,
        epochs=[],
        digests=[],
        environment=save.environment(training.threads),
        cut=built.cut,
        said=[
            *(words.before(training, plan, cutting.said(built.whole), devices) if group.rank == 0 else []),
            *shard.said(),
        ],
    )
    saved = Checkpoints(output, training, report.model, workers, worker, steps.sum_over_group)
    story = Epochs(training, plan, shard, built, steps, group, rounds, probes, events.tell)
    if (found := saved.resume()) is not None:
        before, shared, own = found
        report = replace(before, process=process, resumed=[*before.resumed, len(before.epochs)])
        story.restore(report, shared, own)
        if group.rank == 0:
            _say(training, f"{training.scenario}: goes on after epoch {len(before.epochs)}")
    elif probes:
        probes.take(0)
    for sentence in report.said:
        _say(training, sentence)
    for epoch in range(len(report.epochs), training.epochs):
        report = story.epoch(epoch, report)
        saved.save(epoch + 1, *story.state(), report)
        if group.rank == 0:
            _tell_epoch(training, plan, report)
    report = replace(report, said=list(dict.fromkeys([*report.said, *shard.said()])))
    objects = {}
    if group.rank == 0:
        objects = save.write_model(output, report.model, built.pull(), training)
        if row.merges_after_training:
            objects |= gathered.write(output, report.model, training, shard)
    if probes:
        key, data = keys.probes(report.model), probes.to_bytes()
        output.write(key, data)
        objects[key] = sha256(data)
    report = replace(
        report,
        objects=objects,
        probed=probes.steps if probes else [],
        peak_memory=peak_memory(),
        stage_processes=remote.names(output, plan.stages) if plan.stage_a_process else [],
    )
    output.write(keys.worker(worker), to_json(report))
    # A sum is done here before its last piece has reached the peer: nobody leaves before all are done.
    save.wait_for_reports(output, workers, training.finish_seconds)


def peak_memory() -> int:
    """The largest resident memory that this process has had, bytes."""
    found = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return found if sys.platform == "darwin" else found * 1024


def _say(training: Training, sentence: str) -> None:
    events.tell("said", scenario=training.scenario, message=sentence)


def _tell_epoch(training: Training, plan: plans.Plan, report: WorkerReport) -> None:
    last = report.epochs[-1]
    events.tell(
        "epoch",
        scenario=training.scenario,
        model=report.model,
        models=len(plan.groups),
        epoch=len(report.epochs),
        epochs=training.epochs,
        loss=last.loss,
        accuracy=last.accuracy,
        seconds=last.seconds,
        rows=last.rows,
    )
