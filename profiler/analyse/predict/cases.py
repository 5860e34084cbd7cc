"""Settings put into the terms of the replay."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from ...record.tuning import LoaderSettings
from .draws import draw
from .pools import Hands, hands, in_processes
from .rows import DrawnTimes, ReplayRows
from .sizes import Line, with_batch_size
from .workload import Times, Workload


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
