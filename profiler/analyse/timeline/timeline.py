"""One training process over time: its parts, its steps, its makers of batches, and what the sampler saw."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ...record.reader import RecordFile, Records
from ...record.run import Run, Writer
from ...record.schema import BATCH, DEVICE, EVENT, HOST, PAUSE, STEP
from ..intervals import Intervals
from ..ranks.membership import ranks_of, wall_ns
from ..run.analysis import Analysis
from ..run.facts import Facts
from ..run.headroom import told_apart
from ..run.worker_records import of_training
from .lanes import Lanes, lanes_of
from .spans import part_spans


@dataclass(frozen=True)
class Timeline:
    """All stamps are CLOCK_MONOTONIC ns. Of a run with headroom stretches, these are cut out, as in all its figures."""

    rank: int
    host: str
    facts: Facts
    parts: dict[str, Intervals]
    """See `spans.part_spans`."""
    lanes: Lanes
    pauses: Records
    events: Records
    device: Records
    """All that the sampler saw, of all devices; it may have begun before the window and ended after it."""
    host_samples: Records
    wall_ns: int | None
    """Unix time minus CLOCK_MONOTONIC, ns; `None`: not known."""

    @property
    def begin_ns(self) -> int:
        return self.facts.window.begin_ns

    @property
    def end_ns(self) -> int:
        return self.facts.window.end_ns

    @property
    def steps(self) -> Records:
        """With the warm-up."""
        return self.facts.window.all_steps


def timelines(analysis: Analysis, runs: Sequence[Run]) -> list[Timeline]:
    """One for each rank that ran steps, by number. `runs`: those that were analysed."""
    if not analysis.ranks:
        if analysis.facts is None:
            return []
        run = runs[0]
        return [_timeline(run, _busiest(run), analysis.facts, 0, "", wall_ns(run.info.get("clock")))]
    by_rank = {part.rank: part.analysis for part in analysis.ranks}
    found = []
    for rank in ranks_of(runs):
        facts = by_rank[rank.rank].facts if rank.rank in by_rank else None
        if facts is not None:
            found.append(_timeline(rank.run, rank.writer, facts, rank.rank, rank.host, rank.wall_ns))
    return found


def _busiest(run: Run) -> Writer:
    """The process whose figures an analysis gives: the one that ran most steps."""
    header = max(run.files(STEP), key=RecordFile.count).header
    return header.rank, header.pid


def _timeline(run: Run, writer: Writer, facts: Facts, rank: int, host: str, wall: int | None) -> Timeline:
    run = told_apart(run, writer)[0]
    window = facts.window
    return Timeline(
        rank=rank,
        host=host,
        facts=facts,
        parts=part_spans(facts),
        lanes=lanes_of(of_training(run.records(BATCH, writer), window.all_steps), window),
        pauses=run.records(PAUSE, writer),
        events=run.records(EVENT, writer),
        device=_sorted(run.records(DEVICE)),
        host_samples=_sorted(run.records(HOST)),
        wall_ns=wall,
    )


def _sorted(records: Records) -> Records:
    in_order: Records = records[np.argsort(records["t_ns"], kind="stable")]
    return in_order
