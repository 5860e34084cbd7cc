"""Settings put into the terms of the replay."""

from __future__ import annotations

from collections.abc import Sequence
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

    def each(values: list[float]) -> Times:
        return np.array(values, dtype=np.float64)

    return ReplayRows(
        workers=np.array([case.hands.workers for case in cases]),
        outstanding=np.array([case.hands.outstanding for case in cases]),
        in_order=np.array([case.settings.in_order for case in cases]),
        threads=each([case.hands.threads for case in cases]),
        epoch=np.array([load.batches_per_epoch or 0 for load in loads]),
        start=each(
            [
                0.0 if case.settings.persistent_workers else load.start_ns * (case.hands.workers + 1)
                for load, case in zip(loads, cases, strict=True)
            ]
        ),
        making=each([load.scale for load in loads]),
        step=np.ones(len(cases)),
        handoff=each([load.handoff_ns for load in loads]),
        drawing=each([load.drawing_ns for load in loads]),
        sharing=each(
            [load.sharing_ns if in_processes(case.settings) else 0.0 for load, case in zip(loads, cases, strict=True)]
        ),
        latency=each([load.latency_ns for load in loads]),
        delay=each(
            [load.delay_ns if in_processes(case.settings) else 0.0 for load, case in zip(loads, cases, strict=True)]
        ),
        cpus=each([load.limits.cpus for load in loads]),
        main_cpus=each([load.main_cpus for load in loads]),
        contention=each([load.contention for load in loads]),
        storage=each([load.limits.storage_parallel or np.inf for load in loads]),
        synchronous=np.array([load.synchronous for load in loads]),
        draw=np.array([case.workload * sequences for case in cases]),
    )
