"""Every rank of a training that was recorded here, in short."""

from __future__ import annotations

import numpy as np

from ...record.schema import DEVICE, HOST
from ..run.facts import Facts
from .gathered import ProcessRecords, RunRecords
from .judged import facts_of_last
from .progress import steps_of
from .snapshot import RankView


def ranks_of(run: RunRecords) -> list[ProcessRecords]:
    """The process of each rank that ran most steps, by number; empty where there is only one rank."""
    most: dict[int, ProcessRecords] = {}
    for process in run.processes:
        if process.rank not in most or process.seen > most[process.rank].seen:
            most[process.rank] = process
    return [most[rank] for rank in sorted(most)] if len(most) > 1 else []


def rank_view(process: ProcessRecords, run: RunRecords, facts: Facts | None = None) -> RankView:
    """`facts`: of its last steps, where they are known already."""
    if facts is None:
        empty = np.empty(0, dtype=DEVICE.dtype), np.empty(0, dtype=HOST.dtype)
        facts = facts_of_last(process, *empty, run.info)
    steps = steps_of(process)
    if facts is None:
        return RankView(process.rank, process.host, steps)
    rate = facts.samples_per_s if facts.samples_known else None
    return RankView(process.rank, process.host, steps, rate, facts.shares)
