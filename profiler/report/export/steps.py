"""The main table: a row for each step, with what it cost and what the device waited for.

One axis of time for all that is exported of a run: seconds since its first step began, and wall-clock time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt

from ...analyse.intervals import clip, covered
from ...analyse.ranks.membership import SAME_CLOCK_NS
from ...analyse.run.loader_stats import joined
from ...analyse.run.stall_breakdown import PARTS, UNTOLD
from ...analyse.run.window import spans_of
from ...analyse.timeline.timeline import Timeline
from ...record.reader import Records
from ...record.schema import NOT_MEASURED, StepFlag
from .table import Chunk, Column, Table, Values


@dataclass(frozen=True)
class Axis:
    offsets: tuple[int, ...]
    """For each rank, what is added to its stamps to make them ns since the zero: the start of the first step of any
    rank. What is between clocks of different hosts their wall clocks tell, to milliseconds."""
    wall_ns: int | None
    """Unix time of the zero, ns; `None`: not known."""
    aligned_by_wall_clock: bool
    """Some ranks are of another host, so that they are aligned no better than wall clocks of hosts are."""


def axis_of(timelines: Sequence[Timeline]) -> Axis:
    """Lay ranks beside each other. `timelines`: at least one."""
    first = timelines[0]
    shifts = []
    for timeline in timelines:
        known = timeline.wall_ns is not None and first.wall_ns is not None
        apart = (timeline.wall_ns or 0) - (first.wall_ns or 0) if known else 0
        # Hosts of one name that started at different times are different hosts.
        shifts.append(0 if timeline.host == first.host and abs(apart) < SAME_CLOCK_NS else apart)
    zero = min(int(t.steps["fetch_begin_ns"][0]) + shift for t, shift in zip(timelines, shifts, strict=True))
    wall = None if first.wall_ns is None else zero + first.wall_ns
    return Axis(tuple(shift - zero for shift in shifts), wall, any(shifts))


Stamps = npt.NDArray[np.int64]
ROWS = 1 << 14
"""Rows of a chunk."""
MS = 1e6
S = 1e9
NAN = float("nan")

_IDLE = {
    "compute": "the device computed",
    "input": "the device waited for a fetch",
    "copy": "the device waited for a copy",
    "sync": "the device waited for a synchronising call",
    "host": "the device waited for other work of the host",
    "boundary": "the device waited for work outside the steps",
    UNTOLD: "computing or waiting for data; this run does not tell which",
}

COLUMNS = (
    Column("rank", "int", "", "rank of the training process"),
    Column("device_kind", "text", "", "cuda, cpu or emulated; an emulated device's figures are computed, not measured"),
    Column("step", "int", "", "number of the step within the process, from 0"),
    Column("epoch", "int", "", "number of the epoch, from 0"),
    Column("warmup", "int", "", "1: a step of the warm-up, which no figure of a report counts"),
    Column("first_of_epoch", "int", "", "1: the first step of an epoch"),
    Column("begin_s", "float", "s", "start of the fetch, since the first step of the run"),
    Column("end_s", "float", "s", "last event of the step on the host, since the first step of the run"),
    Column("begin_unix_s", "float", "s", "begin_s as Unix time, precise to about 0.2 µs"),
    Column("samples", "int", "", "samples in the batch"),
    Column("step_ms", "float", "ms", "from begin_s to end_s, on the host"),
    Column("fetch_ms", "float", "ms", "waiting for the batch on the host, exposed or not"),
    Column("blamed_ms", "float", "ms", "time that the parts below sum to; see docs/exports.md"),
    *(Column(f"{part}_ms", "float", "ms", f"of blamed_ms: {_IDLE[part]}") for part in (*PARTS, UNTOLD)),
    Column("unseen_ms", "float", "ms", "of blamed_ms: in steps that were not recorded, so in no other part"),
    Column("queue_ready", "int", "", "finished batches waiting when the fetch began"),
    Column("queue_capacity", "int", "", "most finished batches that the loader can hold"),
    Column("copy_bytes", "int", "bytes", "bytes of the batch copied to the device"),
    Column("copy_call_ms", "float", "ms", "the host's call that copies the batch"),
    Column("device_copy_ms", "float", "ms", "the copy, device clock"),
    Column("device_step_ms", "float", "ms", "from the first to the last computation of the step, device clock"),
    Column("forward_to_backward_ms", "float", "ms", "host: from the start of the forward to that of the backward pass"),
    Column("backward_ms", "float", "ms", "host: from the start of the backward pass to the optimizer"),
    Column("optimizer_ms", "float", "ms", "host: the optimizer"),
    Column("sync_call_ms", "float", "ms", "host: in calls that waited for the device"),
    Column("gc_ms", "float", "ms", "Python garbage collection"),
    Column("cpu_ms", "float", "ms", "CPU time of the training thread"),
    Column("overhead_ms", "float", "ms", "in whyidle's own code"),
    Column("memory_bytes", "int", "bytes", "device memory in use at the end of the step"),
    Column("skipped", "int", "", "steps just before this one that were not recorded, to stay cheap"),
    Column("skipped_samples", "int", "", "samples in those"),
    Column("worker", "int", "", "worker that prepared the batch, from 0; empty: the training process, or not timed"),
    Column("making_ms", "float", "ms", "time to prepare the batch"),
    Column("read_ms", "float", "ms", "of making_ms, summed over threads: waiting in file reads"),
    Column("decode_ms", "float", "ms", "of making_ms, summed over threads: decoding"),
    Column("transform_ms", "float", "ms", "of making_ms, summed over threads: transforms"),
    Column("collate_ms", "float", "ms", "of making_ms, summed over threads: collating"),
    Column("blocked_ms", "float", "ms", "wait for this batch while a later one was finished"),
)


_AS_RECORDED: tuple[str, ...] = ("step", "epoch", "samples", "queue_ready", "queue_capacity", "copy_bytes")
_AS_RECORDED += ("memory_bytes", "skipped", "skipped_samples")
_BETWEEN = {
    "step_ms": ("fetch_begin_ns", "step_end_ns"),
    "fetch_ms": ("fetch_begin_ns", "fetch_end_ns"),
    "copy_call_ms": ("copy_begin_ns", "copy_end_ns"),
    "device_copy_ms": ("device_copy_begin_ns", "device_copy_end_ns"),
    "device_step_ms": ("device_begin_ns", "device_end_ns"),
    "forward_to_backward_ms": ("forward_begin_ns", "backward_begin_ns"),
    "backward_ms": ("backward_begin_ns", "optimizer_begin_ns"),
    "optimizer_ms": ("optimizer_begin_ns", "optimizer_end_ns"),
}
_SPENT = {"sync_call_ms": "sync_ns", "gc_ms": "gc_ns", "cpu_ms": "cpu_ns", "overhead_ms": "overhead_ns"}
_OF_BATCH = {f"{what}_ms": f"{what}_ns" for what in ("read", "decode", "transform", "collate")}
"""Column → the stamps of a record that it is the time between, or the field that holds its time in ns."""


def steps_table(timelines: Sequence[Timeline], about: Mapping[str, str]) -> Table:
    """Make the table of steps. `timelines`: at least one."""
    return Table("steps", COLUMNS, partial(_chunks, tuple(timelines), axis_of(timelines)), about)


def _chunks(timelines: Sequence[Timeline], axis: Axis) -> Iterator[Chunk]:
    for offset, timeline in zip(axis.offsets, timelines, strict=True):
        window = timeline.facts.window
        # The stretch of each step that the parts share out; empty before the window, and where it is not known.
        before = np.zeros(len(timeline.steps) - len(window.steps), dtype=np.int64)
        begin, end = spans_of(window)
        begin = np.concatenate((before, np.maximum(begin, window.begin_ns)))
        end = np.concatenate((before, np.minimum(end, window.end_ns)))
        # The place of each step's batch in the lanes; -1 where that is not known.
        places = np.full(len(timeline.steps), -1, dtype=np.int64)
        step, batch = joined(timeline.steps, timeline.batches)
        places[step] = batch
        for first in range(0, len(timeline.steps), ROWS):
            rows = slice(first, first + ROWS)
            yield {
                **_of_step(timeline, offset, axis.wall_ns, rows),
                **_blamed(timeline, begin[rows], end[rows]),
                **_of_batch(timeline, places[rows]),
            }


def _of_step(timeline: Timeline, offset: int, wall_ns: int | None, rows: slice) -> dict[str, Values]:
    steps = timeline.steps[rows]
    begin, end, count = steps["fetch_begin_ns"] + offset, steps["step_end_ns"], len(steps)
    warmup = np.arange(rows.start, rows.start + count) < timeline.facts.window.warmup_steps
    return {
        "rank": np.full(count, timeline.rank, dtype=np.int64),
        "device_kind": [timeline.facts.device_kind] * count,
        **{name: steps[name] for name in _AS_RECORDED},
        "warmup": warmup.astype(np.int64),
        "first_of_epoch": ((steps["flags"] & StepFlag.FIRST_OF_EPOCH) != 0).astype(np.int64),
        "begin_s": begin / S,
        "end_s": np.where(end == NOT_MEASURED, NAN, (end + offset) / S),
        "begin_unix_s": np.full(count, NAN) if wall_ns is None else (begin + wall_ns) / S,
        **{name: _between(steps, *stamps) for name, stamps in _BETWEEN.items()},
        **{name: _ms(steps[field]) for name, field in _SPENT.items()},
    }


def _blamed(timeline: Timeline, begin: Stamps, end: Stamps) -> dict[str, npt.NDArray[np.float64]]:
    """The lengths of these stretches, and how the parts share them out; NaN where they are not known."""
    known = end > begin
    left = np.where(known, end - begin, 0)
    columns = {"blamed_ms": np.where(known, left / MS, NAN)}
    first, last = (int(begin[known].min()), int(end[known].max())) if known.any() else (0, 0)
    for part in (*PARTS, UNTOLD):
        columns[f"{part}_ms"] = np.full(len(begin), NAN)
        if part in timeline.parts:
            ns = covered(clip(timeline.parts[part], first, last), begin, end)
            columns[f"{part}_ms"] = np.where(known, ns / MS, NAN)
            left = left - ns
    columns["unseen_ms"] = np.where(known, left / MS, NAN)
    return columns


def _of_batch(timeline: Timeline, places: Stamps) -> dict[str, Values]:
    known = places >= 0
    if not known.any():
        nothing = np.full(len(places), NAN)
        names = ("making_ms", *_OF_BATCH, "blocked_ms")
        return {"worker": np.full(len(places), NOT_MEASURED), **dict.fromkeys(names, nothing)}
    at = np.where(known, places, 0)
    batches = timeline.batches[at]
    return {
        "worker": np.where(known & (not timeline.facts.made_in_training), batches["worker"], NOT_MEASURED),
        "making_ms": np.where(known, _between(batches, "begin_ns", "end_ns"), NAN),
        **{name: np.where(known, _ms(batches[field]), NAN) for name, field in _OF_BATCH.items()},
        "blocked_ms": np.where(known, (batches["end_ns"] - timeline.blocked_ns[at]) / MS, NAN),
    }


def _ms(ns: Stamps) -> npt.NDArray[np.float64]:
    return np.where(ns == NOT_MEASURED, NAN, ns / MS)


def _between(records: Records, begin: str, end: str) -> npt.NDArray[np.float64]:
    """ms between two stamps; NaN where one is missing."""
    known = (records[begin] != NOT_MEASURED) & (records[end] != NOT_MEASURED)
    apart = np.where(known, records[end], 0) - np.where(known, records[begin], 0)
    return np.where(known, apart / MS, NAN)
