"""One training process over time: its parts, its steps, its makers of batches, and what the sampler saw."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
import numpy.typing as npt

from ...record.reader import RecordFile, Records
from ...record.run import Run, Writer
from ...record.schema import BATCH, DEVICE, EVENT, HOST, PAUSE, STEP
from ..intervals import Intervals, complement, union_of
from ..ranks.membership import ranks_of, wall_ns
from ..run.analysis import Analysis
from ..run.facts import Facts
from ..run.loader_stats import first_later_end, joined, of_training
from ..run.stall_breakdown import UNTOLD
from ..run.window import Window

Stamps = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Lanes:
    """The batches of the loaders that train, in the order they were begun. All arrays are as long as `batches`."""

    batches: Records
    """BATCH records, with the step that consumed each (`worker_records.of_training`)."""
    blocked_begin_ns: Stamps
    blocked_end_ns: Stamps
    """Head of line: the training waited for this batch while a later one lay finished; equal where it never did."""

    @property
    def workers(self) -> list[int]:
        """Numbers of the makers, ascending."""
        return [int(worker) for worker in np.unique(self.batches["worker"])]


def lanes_of(batches: Records, window: Window) -> Lanes:
    """`batches`: as `worker_records.of_training` gives them."""
    batches = batches[np.argsort(batches["begin_ns"], kind="stable")]
    begin, end = batches["end_ns"].copy(), batches["end_ns"].copy()
    steps = window.all_steps
    place, batch = joined(steps, batches)
    asked = steps["fetch_begin_ns"][place]
    later = first_later_end(batches)[batch]
    held = np.maximum(asked, later)
    finished = batches["end_ns"][batch]
    begin[batch] = np.minimum(held, finished)
    return Lanes(batches, begin, end)


@dataclass(frozen=True)
class Timeline:
    """All stamps are CLOCK_MONOTONIC ns."""

    rank: int
    host: str
    facts: Facts
    parts: dict[str, Intervals]
    """See `part_spans`."""
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
        """All steps that the hooks looked at, the warm-up included."""
        return self.facts.window.all_steps


def ranks_with_steps(analysis: Analysis) -> list[int]:
    """Of several ranks those that ran steps, by number; empty of a single one."""
    return [part.rank for part in analysis.ranks if part.analysis.facts is not None]


def timelines(analysis: Analysis, runs: Sequence[Run], only: Collection[int] | None = None) -> list[Timeline]:
    """One for each rank that ran steps, by number. `runs`: those that were analysed; `only`: of several ranks those
    that are wanted."""
    if not analysis.ranks:
        if analysis.facts is None:
            return []
        run = runs[0]
        return [_timeline(run, _busiest(run), analysis.facts, 0, "", wall_ns(run.info.get("clock")))]
    by_rank = {part.rank: part.analysis for part in analysis.ranks if only is None or part.rank in only}
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


def part_spans(facts: Facts) -> dict[str, Intervals]:
    """Part → the stretches of the window that are blamed on it; they overlap nowhere.

    Steps that nobody looked at are in none of them: of them only sums are known. Where computing is not told from
    waiting for data, what is neither copy, sync nor boundary is `UNTOLD`.
    """
    parts = facts.parts
    known = {"copy": parts.copying, "sync": parts.syncing, "boundary": parts.outside}
    if facts.told_apart:
        known = {"compute": parts.computing, "input": parts.loading, **known, "host": parts.hosting}
        return {part: spans for part, spans in known.items() if part != "input" or facts.input_known}
    told = reduce(union_of, known.values())
    return known | {UNTOLD: complement(told, facts.window.begin_ns, facts.window.end_ns)}
