"""Settings put into the terms of the replay.

Sequences of batches and steps drawn from the recorded ones. How settings are meant by each loader: what works on
batches, and how many may be under way. The same training with another batch size, made of the samples of the
recorded batches.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ...record.tuning import LoaderSettings
from .rows import DrawnTimes, Ints, ReplayRows
from .workload import Times, Workload

Line = tuple[float, float]
"""alpha, beta in ns of T(B) = alpha + beta B, the time of a step."""


def with_batch_size(workload: Workload, size: int, rng: np.random.Generator, step: Line | None = None) -> Workload:
    """Workload of batches of `size` samples.

    Samples lie one after the other as they were made, each batch's slowest at a random place among its own, the rest of
    its making spread evenly over the others; another size cuts that line elsewhere. Putting samples together, bytes,
    drawing and the hand-off grow with the size, and so does the step, unless `step` says how: without it a step's fixed
    part counts as growing too, so that larger batches look no better for the device than they may be. Where the slowest
    sample is not known, smaller batches come out too even.
    """
    if size == workload.batch_size:
        return workload
    old, times = workload.batch_size, size / workload.batch_size
    making = workload.cpu_ns - workload.collate_ns + workload.wait_ns + workload.read_ns
    slowest = np.where(np.isnan(workload.slowest_ns), making / old, np.minimum(workload.slowest_ns, making))
    slowest = np.maximum(slowest, making / old)
    share = np.divide(slowest, making, out=np.zeros_like(making), where=making > 0)
    passes = max(1, int(np.ceil(times)))
    made = [workload.cpu_ns - workload.collate_ns, workload.wait_ns, workload.read_ns]
    cpu, wait, read = _cut([np.tile(part, passes) for part in made], np.tile(share, passes), old, size, rng)
    collate = np.full(len(cpu), workload.collate_ns.mean() * times)
    grows = times if step is None else (step[0] + step[1] * size) / (step[0] + step[1] * old)
    epoch = workload.batches_per_epoch
    return replace(
        workload,
        batch_size=size,
        cpu_ns=cpu + collate,
        wait_ns=wait,
        read_ns=read,
        collate_ns=collate,
        slowest_ns=np.full(len(cpu), np.nan),
        host_ns=workload.host_ns * grows,
        device_ns=None if workload.device_ns is None else workload.device_ns * grows,
        handoff_ns=workload.handoff_ns * times,
        drawing_ns=workload.drawing_ns * times,
        sharing_ns=workload.sharing_ns * times,
        latency_ns=workload.latency_ns,
        delay_ns=workload.delay_ns * times,
        batches_per_epoch=None if epoch is None else max(1, round(epoch / times)),
        batch_bytes=None if workload.batch_bytes is None else round(workload.batch_bytes * times),
    )


def _cut(parts: list[Times], share: Times, old: int, size: int, rng: np.random.Generator) -> list[Times]:
    """Each part of the samples' line, cut into batches of `size` from a random sample on; the line's end is joined to
    its begin, and what is left over is left out."""
    recorded = len(share)
    shift = int(rng.integers(old * recorded))
    count = max(1, recorded * old // size)
    edges = np.arange(count + 1) * float(size)
    at = (np.arange(recorded) * old + rng.integers(old, size=recorded) + 0.5 - shift) % (recorded * old)
    into = np.minimum(np.searchsorted(edges, at, side="right") - 1, count)
    made = []
    for part in parts:
        whole = np.concatenate([[0.0], np.cumsum(part * (1 - share))])
        rounds, within = np.divmod(edges + shift, recorded * old)
        even = rounds * whole[-1] + np.interp(within, np.arange(recorded + 1) * float(old), whole)
        slow = np.bincount(into, weights=part * share, minlength=count + 1)[:count]
        made.append(np.diff(even) + slow)
    return made


_POOLS = {"threads", "dali-cpu", "dali-gpu"}
"""Loaders whose `num_workers` threads prepare the samples of one batch together."""
_AHEAD = {"prefetch": 3}
"""Batches that a loader takes from its workers before the training asks: two pinned and one on its way."""


@dataclass(frozen=True)
class Hands:
    """What prepares the batches of a loader."""

    workers: int
    """Workers that prepare a batch each; 0: the training process makes them."""
    threads: int
    """Threads of each worker, which work on its batch together."""
    outstanding: int
    """Batches ordered and not handed over, at most."""


def hands(settings: LoaderSettings, threads_per_worker: int) -> Hands:
    """What prepares batches under these settings of their loader."""
    if settings.pipeline == "caffe":
        return Hands(1, 1, 3)  # its own threads and buffers, whatever is asked for; reads ahead are not counted
    if settings.pipeline == "naive" or settings.num_workers == 0:
        return Hands(0, 1, 0)
    prefetch = settings.prefetch_factor or 1
    if settings.pipeline in _POOLS:
        return Hands(1, settings.num_workers, prefetch + 1)
    return Hands(
        settings.num_workers, max(1, threads_per_worker), settings.outstanding + _AHEAD.get(settings.pipeline or "", 0)
    )


def in_processes(settings: LoaderSettings) -> bool:
    """Whether batches come from other processes, through shared memory."""
    return settings.pipeline not in {*_POOLS, "naive", "caffe"}


def draw(workload: Workload, sequences: int, length: int, rng: np.random.Generator) -> DrawnTimes:
    """So many sequences of so many batches, with their steps.

    Stretches of the recording in random order, over all sequences each as often as any other: what follows one another
    stays together, as slow batches often come in a row, and sequences differ as recordings of their length would, while
    all of them together have the tail that was recorded. What is left of a difference in the mean is scaled away.
    """
    recorded = len(workload.cpu_ns)
    batches = _stretches(recorded, sequences * length, rng)
    steps = batches if len(workload.host_ns) == recorded else _stretches(len(workload.host_ns), len(batches), rng)

    def of(times: Times, chosen: Ints) -> Times:
        drawn = times[chosen % len(times)]
        mean = drawn.mean()
        drawn = drawn * (times.mean() / mean) if mean > 0 else drawn
        return drawn.reshape(sequences, length)

    return DrawnTimes(
        of(workload.read_ns, batches),
        of(workload.wait_ns, batches),
        of(workload.cpu_ns, batches),
        of(workload.host_ns, steps),
        None if workload.device_ns is None else of(workload.device_ns, steps),
    )


def _stretches(recorded: int, length: int, rng: np.random.Generator) -> Ints:
    """So many places in the recording: stretches of it in random order, each place about as often as any other."""
    long = int(np.clip(round(2 * recorded ** (1 / 3)), 1, recorded))
    starts = np.arange(0, recorded, long)
    rounds = -(-length // recorded)
    every = np.concatenate([starts + rng.integers(recorded) for _ in range(rounds)])
    return (rng.permutation(every)[:, None] + np.arange(long)).ravel()[:length] % recorded


def together(draws: list[DrawnTimes]) -> DrawnTimes:
    """The draws of several workloads as one: their sequences, one workload's after the other's."""
    devices = [each.device for each in draws if each.device is not None]
    return DrawnTimes(
        np.concatenate([each.read for each in draws]),
        np.concatenate([each.wait for each in draws]),
        np.concatenate([each.cpu for each in draws]),
        np.concatenate([each.host for each in draws]),
        np.concatenate(devices) if devices else None,
    )


@dataclass(frozen=True)
class ReplayCase:
    """One setting in the terms of the replay."""

    settings: LoaderSettings
    hands: Hands
    workload: int
    """Place of its workload among those of all batch sizes."""

    @property
    def key(self) -> tuple[object, ...]:
        """What the replay tells settings apart by."""
        of = self.settings
        return self.hands, of.in_order, of.persistent_workers, of.pipeline, self.workload


def prepare(
    workload: Workload,
    settings: Sequence[LoaderSettings],
    steps: int,
    sequences: int,
    rng: np.random.Generator,
    step: Line | None = None,
) -> tuple[list[ReplayCase], list[Workload], list[DrawnTimes]]:
    """(cases in the order of the settings, a workload for each batch size among them, its draws)."""
    sizes = sorted({s.batch_size or workload.batch_size for s in settings})
    workloads = [with_batch_size(workload, size, rng, step) for size in sizes]
    cases = [
        ReplayCase(s, hands(s, workload.threads_per_worker), sizes.index(s.batch_size or workload.batch_size))
        for s in settings
    ]
    return cases, workloads, [draw(each, sequences, steps, rng) for each in workloads]


def rows_of(workloads: Sequence[Workload], cases: Sequence[ReplayCase], sequences: int) -> ReplayRows:
    """The replay's rows, one for each case, for the first sequence of its workload."""
    loads = [workloads[case.workload] for case in cases]

    def each(values: Iterable[float]) -> Times:
        return np.array(list(values), dtype=np.float64)

    def of(name: str) -> Times:
        return each(getattr(load, name) for load in loads)

    workers = np.array([case.hands.workers for case in cases])
    processes = np.array([in_processes(case.settings) for case in cases])
    return ReplayRows(
        workers=workers,
        outstanding=np.array([case.hands.outstanding for case in cases]),
        in_order=np.array([case.settings.in_order for case in cases]),
        threads=each(case.hands.threads for case in cases),
        epoch=np.array([load.batches_per_epoch or 0 for load in loads]),
        start=of("start_ns") * (workers + 1) * [not case.settings.persistent_workers for case in cases],
        making=of("scale"),
        step=np.ones(len(cases)),
        handoff=of("handoff_ns"),
        drawing=of("drawing_ns"),
        sharing=of("sharing_ns") * processes,
        latency=of("latency_ns"),
        delay=of("delay_ns") * processes,
        cpus=each(load.limits.cpus for load in loads),
        main_cpus=of("main_cpus"),
        contention=of("contention"),
        storage=each(load.limits.storage_parallel or np.inf for load in loads),
        synchronous=np.array([load.synchronous for load in loads]),
        draw=np.array([case.workload * sequences for case in cases]),
    )
