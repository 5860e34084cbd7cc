"""What a recorded run says of the machine: CPUs, those that others leave, memory."""

from __future__ import annotations

import numpy as np

from ...record.reader import Records, measured
from ...record.run import Run, Writer
from ...record.schema import NOT_MEASURED, STEP
from ...record.tuning import LoaderSettings
from ..run.facts import Facts
from .workload import MachineLimits, Times

LEAST_CPUS = 0.05
"""CPUs that a training is taken to use while it works on its steps, at least."""
LEAST_THREADS = 2
"""Threads of a job that compete with other programs for CPUs, at least: the training's own and a worker's."""


def limits_of(facts: Facts, host: Records, settings: LoaderSettings, peers_cpus: float = 0.0) -> MachineLimits:
    """CPUs and memory that other settings may use, by what the sampler saw of the host.

    Args:
        peers_cpus: CPUs that other training processes of the job use, which need them as before.
    """
    available = median_of(host, "memory_available_bytes")
    shm_used, shm_size = median_of(host, "shm_used_bytes"), median_of(host, "shm_total_bytes")
    whole = median_of(host, "tree_pss_bytes")
    # Of the tree's memory no process's own part is told; the training's is no smaller than a worker's.
    processes = 1 + settings.num_workers
    return MachineLimits(
        cpus=_left_cpus(facts, settings, peers_cpus),
        memory_bytes=available,
        shm_bytes=None if shm_used is None or shm_size is None else max(0, shm_size - shm_used),
        worker_bytes=None if whole is None or not settings.num_workers else whole // processes,
    )


def peers_cpus(run: Run, facts: Facts, writer: Writer | None) -> float:
    """CPUs that the training threads of the job's other processes used in the window: they are of the job's tree, and
    yet leave less to this training.

    Args:
        writer: this one; `None`: the one that ran most steps.
    """
    window = facts.window
    others = {(file.header.rank, file.header.pid) for file in run.files(STEP)} - {writer or run.leading_writer()}
    used = 0.0
    for other in others:
        steps = run.records(STEP, other)
        within = (steps["step_end_ns"] > window.begin_ns) & (steps["step_end_ns"] <= window.end_ns)
        used += float(np.nansum(measured(steps["cpu_ns"][within])))
    return used / window.wall_ns


def main_cpus_of(facts: Facts, host: Records, host_ns: Times, otherwise_ns: float) -> float:
    """CPUs that the training process uses while it works on its steps. `otherwise_ns`: CPU time that it uses in a step
    for something else."""
    window = facts.window
    within = (host["t_ns"] >= window.begin_ns) & (host["t_ns"] <= window.end_ns)
    known = host[within & (host["main_cpu_ns"] != NOT_MEASURED)]
    own = float(host_ns.mean())
    if own <= 0:
        return 1.0
    if len(known) > 1 and known["t_ns"][-1] > known["t_ns"][0]:
        used = float(known["main_cpu_ns"][-1] - known["main_cpu_ns"][0]) / float(known["t_ns"][-1] - known["t_ns"][0])
        of_step = used * facts.window.wall_ns / facts.window.count
    else:
        ran = measured(window.steps["cpu_ns"])
        of_step = float(np.nanmedian(ran)) if not np.isnan(ran).all() else own + otherwise_ns
    return min(max((of_step - otherwise_ns) / own, LEAST_CPUS), _cpus(facts))


def _cpus(facts: Facts) -> float:
    """CPUs that the job may use, whether others use them or not."""
    return facts.sampled.cpu_budget or float(facts.machine_cpus or 1)


def _left_cpus(facts: Facts, settings: LoaderSettings, peers: float) -> float:
    """CPUs that others leave of those the job may use: what nobody used but this training, or a fair share for as many
    threads as it has."""
    threads = max(LEAST_THREADS, settings.num_workers + 1)

    def left(cpus: float, used: float) -> float:
        return max(cpus - used, cpus * threads / (threads + used))

    budget, foreign = left(_cpus(facts), peers), facts.foreign_cpus
    if foreign is None or facts.machine_cpus is None:
        return budget
    return min(budget, left(float(facts.machine_cpus), foreign + peers))


def median_of(records: Records, name: str) -> int | None:
    """The median of a field; `None` where it was not measured."""
    known = records[name][records[name] != NOT_MEASURED]
    return int(np.median(known)) if len(known) else None
