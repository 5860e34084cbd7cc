"""Every rank of a training that was recorded here, in short."""

from __future__ import annotations

from ..run.divided_time import DividedTime
from .gathered import ProcessRecords, RunRecords
from .judged import time_of_last
from .progress import steps_of
from .snapshot import RankView


def ranks_of(run: RunRecords) -> list[ProcessRecords]:
    """The process of each rank that ran most steps, by number; empty where there is only one rank."""
    most: dict[int, ProcessRecords] = {}
    for process in run.processes:
        if process.rank not in most or process.seen > most[process.rank].seen:
            most[process.rank] = process
    return [most[rank] for rank in sorted(most)] if len(most) > 1 else []


def rank_view(process: ProcessRecords, run: RunRecords, divided: DividedTime | None = None) -> RankView:
    """`divided`: the time of its last steps, where that is known already."""
    if divided is None:
        divided = time_of_last(process, run.info)
    steps = steps_of(process)
    if divided is None:
        return RankView(process.rank, process.host, steps)
    rate = divided.samples_per_s if divided.samples_known else None
    return RankView(process.rank, process.host, steps, rate, divided.shares)
