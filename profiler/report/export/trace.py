"""A stretch of a run as trace events, which Perfetto and chrome://tracing show as tracks.

Times are µs with three digits after the point (the Trace Event Format's JSON), so that nanoseconds are kept. Complete
events ("X") of one track never overlap: what does gets a track of its own beside it. Viewers load a trace into memory,
so a trace is bounded: it shows the stretch asked for, all of the run, or what is around the worst stall. What a stretch
will take is estimated from how many records lie in it; the writer's own limit holds in any case.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from heapq import merge
from operator import itemgetter
from pathlib import Path
from types import MappingProxyType
from typing import Any, TextIO

import numpy as np
import numpy.typing as npt

from ...analyse.intervals import clip
from ...analyse.ranks.membership import RankProcess, ranks_of
from ...analyse.run.analysis import Analysis
from ...analyse.timeline.timeline import Timeline, rate
from ...errors import WhyidleError
from ...record.files import plain
from ...record.reader import Records, measured, with_column
from ...record.run import Run
from ...record.schema import NOT_MEASURED, PAUSE, SPAN, EventKind, PauseKind, SpanKind
from ...record.stacks import read_names
from .steps import Axis, axis_of

Event = dict[str, Any]
Stamps = npt.NDArray[np.int64]
"""ns since the zero of the trace."""
Values = npt.NDArray[np.float64]


# Events, and tracks that make them when asked for.


EventSource = Iterator[tuple[int, list[Event]]]
"""Events in order of time, made when they are written: when they are due, and those that belong together."""


@dataclass
class Tracks:
    """Processes and threads of a trace, each said once. Numbers are made up; the names tell the real ones."""

    metadata: list[Event] = field(default_factory=list)
    sources: list[EventSource] = field(default_factory=list)
    next_flow: int = 1
    """A number that no flow has yet."""
    _numbers: int = 0

    def track(self, name: str, pid: int | None = None) -> int:
        """Begin a process, or a track of the process `pid`; returns its number."""
        self._numbers += 1
        number, what = self._numbers, "process" if pid is None else "thread"
        head = {"ph": "M", "pid": number if pid is None else pid, "tid": 0 if pid is None else number, "ts": 0}
        self.metadata.append({**head, "name": f"{what}_name", "args": {"name": str(plain(name))}})
        self.metadata.append({**head, "name": f"{what}_sort_index", "args": {"sort_index": number}})
        return number


def complete(
    pid: int, tid: int, begin_ns: int, end_ns: int, name: str, told: Iterable[tuple[str, Any]] = (), kind: str = ""
) -> Event:
    """Make a slice. Of what is `told` of it, what was not measured is left out; texts cannot act on a terminal."""
    event: Event = {"ph": "X", "pid": pid, "tid": tid, "ts": begin_ns / 1000, "dur": (end_ns - begin_ns) / 1000}
    event["name"] = str(plain(name))
    if kind:
        event["cat"] = kind
    if args := {name: plain(value) for name, value in told if value is not None}:
        event["args"] = args
    return event


def lanes_of(begin: Stamps, end: Stamps) -> Stamps:
    """Give for each slice the first lane on which nothing overlaps it, in order of their begins."""
    lanes = np.zeros(len(begin), dtype=np.int64)
    order = np.lexsort((end, begin))
    if (begin[order][1:] >= end[order][:-1]).all():
        return lanes
    free: list[int] = []
    for place in order.tolist():
        starts, ends = int(begin[place]), int(end[place])
        lane = next((n for n, until in enumerate(free) if until <= starts), len(free))
        free[lane : lane + 1] = [ends]
        lanes[place] = lane
    return lanes


# Which stretch of a run is shown.

BYTES = 350
"""JSON that a record comes to, a step with all that belongs to it taken together."""
FILLED = 0.7
"""Share of the limit that an estimate may fill: a part of a run may hold more records than the rest."""
STALLS = ("input", "copy", "sync", "host")
LEAST_NS = 2_000_000
"""Length of a stretch around a stall, at least."""


@dataclass(frozen=True)
class Stretch:
    """In ns since the axis's zero."""

    low: int
    high: int
    why: str
    """Which stretch it is, in words."""


@dataclass(frozen=True)
class RankTrace:
    """What the trace shows of one rank."""

    timeline: Timeline
    offset_ns: int
    """To be added to the rank's stamps."""
    process: RankProcess
    spans: Records


@dataclass(frozen=True)
class RunTrace:
    """All that a trace can show, on an axis of time from 0 on; a stretch of it is written."""

    ranks: tuple[RankTrace, ...]
    axis: Axis
    high: int
    """Where the run ends on the axis, ns."""
    bytes: int
    """Size of a trace of all of it, estimated from how many records there are."""
    analysis: Analysis


def trace_of(shown: Sequence[Timeline], analysis: Analysis, runs: Sequence[Run]) -> RunTrace:
    """Gather what a trace can show. `shown`: the timelines, at least one, of the runs that were analysed."""
    processes = {process.rank: process for process in ranks_of(runs)}
    # One that is alone is rank 0 of its timeline, whatever its launcher called it.
    alone = next(iter(processes.values()))
    axis, ranks, high, count = axis_of(shown), list[RankTrace](), 1, len(shown[0].device) + len(shown[0].host_samples)
    for offset, timeline in zip(axis.offsets, shown, strict=True):
        process = processes.get(timeline.rank, alone)
        spans = process.run.records(SPAN, process.writer)
        ranks.append(RankTrace(timeline, offset, process, spans))
        high = max(high, int(timeline.steps["step_end_ns"].max()) + offset, timeline.end_ns + offset)
        records = (timeline.steps, timeline.batches, timeline.pauses, timeline.events, spans)
        count += sum(map(len, (*records, *timeline.parts.values())))
    return RunTrace(tuple(ranks), axis, high, count * BYTES, analysis)


def stretch_of(
    trace: RunTrace, steps: tuple[int, int] | None, since_s: float | None, until_s: float | None, most_bytes: int
) -> Stretch:
    """Choose the stretch that was asked for: by the first and last step, or by seconds (`None`:
    from the begin, to the end). Without either choose as much as fits into so many bytes.

    Raises:
        WhyidleError: it is empty, or the run has nothing there.
    """
    if steps is not None:
        return _of_steps(trace, *steps)
    if since_s is None and until_s is None:
        return _telling(trace, most_bytes)
    low = 0 if since_s is None else round(since_s * 1e9)
    high = trace.high if until_s is None else round(until_s * 1e9)
    low, high = max(low, 0), min(high, trace.high)
    if high <= low:
        asked = " ".join(f"--{name} {s:g}" for name, s in (("from", since_s), ("to", until_s)) if s is not None)
        raise WhyidleError(f"{asked}: nothing lies there; the run's steps last from 0 to {trace.high / 1e9:.3f} s.")
    return Stretch(low, high, f"{_seconds(low, high)}, as asked for")


def _of_steps(trace: RunTrace, first: int, last: int) -> Stretch:
    """Choose steps `first` to `last`, the last one included, of all ranks."""
    lows, highs, recorded = [], [], []
    for rank in trace.ranks:
        numbers = rank.timeline.steps["step"]
        recorded += [int(numbers.min()), int(numbers.max())]
        steps = rank.timeline.steps[(numbers >= first) & (numbers <= last)]
        if len(steps):
            lows.append(int(steps["fetch_begin_ns"].min()) + rank.offset_ns)
            ends = (int(steps[name].max(initial=NOT_MEASURED)) for name in ("step_end_ns", "device_end_ns"))
            highs.append(max(ends) + rank.offset_ns)
    if not lows:
        raise WhyidleError(
            f"no step from {first} to {last} was recorded; there are steps {min(recorded)} to {max(recorded)}."
        )
    return Stretch(min(lows), max(highs), f"steps {first} to {last}, {_seconds(min(lows), max(highs))}, as asked for")


def _telling(trace: RunTrace, most_bytes: int) -> Stretch:
    """Choose the whole run where that fits, else as much as fits around its worst stall: the longest in one piece."""
    room = most_bytes * FILLED
    if trace.bytes <= room:
        return Stretch(0, trace.high, f"the whole run, {_seconds(0, trace.high)}")
    found: list[tuple[int, int, str]] = []
    for rank in trace.ranks:
        for part, spans in rank.timeline.parts.items():
            if part in STALLS and len(spans):
                begin, end = spans[int(np.argmax(spans[:, 1] - spans[:, 0]))].tolist()
                whose = f" on rank {rank.timeline.rank}" if len(trace.ranks) > 1 else ""
                what = f"the longest stall{whose}: {(end - begin) / 1e6:.1f} ms of {part}"
                found.append((end - begin, begin + (end - begin) // 2 + rank.offset_ns, what))
    _, centre, what = max(found, default=(0, trace.high // 2, ""))
    what = f"{what}, at {centre / 1e9:.3f} s" if found else "the middle of the run, which has no stall"
    half = max(LEAST_NS, int(trace.high * room / trace.bytes)) // 2
    low, high = max(0, centre - half), min(trace.high, centre + half)
    return Stretch(low, high, f"{_seconds(low, high)} of {trace.high / 1e9:.1f} s, around {what}")


def _seconds(low: int, high: int) -> str:
    return f"{low / 1e9:.3f} to {high / 1e9:.3f} s"


# Which processes and tracks a trace has, and what it says of itself.


def tracks_of(trace: RunTrace, stretch: Stretch) -> Tracks:
    """Make every track of the stretch. What the sampler of a host saw is shown once."""
    tracks, several = Tracks(), len(trace.ranks) > 1
    hosts: dict[Path, _Scene] = {}
    for rank in trace.ranks:
        scene = _Scene(tracks, rank, stretch)
        scene.add(several)
        hosts.setdefault(rank.process.run.folder, scene)
    for scene in hosts.values():
        scene.add_samples(several)
    return tracks


def about(trace: RunTrace, stretch: Stretch) -> dict[str, Any]:
    """Describe the file within it."""
    info, axis = trace.analysis.info, trace.axis
    told: dict[str, Any] = {
        "made_by": f"whyidle {info.get('whyidle') or ''}".strip(),
        "run": trace.ranks[0].process.run.folder.name,
        "shown": stretch.why,
        "from_s": stretch.low / 1e9,
        "to_s": stretch.high / 1e9,
        "zero": "the start of the first step",
        "verdict": trace.analysis.verdict.title,
        "device": (info.get("device") or {}).get("title"),
        "stand_in_data": (info.get("dataset") or {}).get("stand_in"),
    }
    if axis.wall_ns is not None:
        utc = datetime.fromtimestamp(axis.wall_ns / 1e9, UTC).isoformat(timespec="microseconds")
        told |= {"zero_unix_ns": str(axis.wall_ns), "zero_utc": utc}
    if axis.aligned_by_wall_clock:
        told["hosts"] = "aligned by their wall clocks, which agree to milliseconds at best"
    if any(rank.timeline.facts.device_kind == "emulated" for rank in trace.ranks):
        told["emulated"] = "the device is emulated: its times are computed, not measured"
    return {name: plain(value) for name, value in told.items() if value is not None}


# Tracks of a rank.

SPAN_NS = ("begin_ns", "end_ns")
_COPY_OF_BATCH = -1
_CALLS = {
    _COPY_OF_BATCH: "copy of the batch",
    PauseKind.SYNC: "wait for the device",
    PauseKind.COPY: "copy to the device",
    PauseKind.QUEUED_COPY: "queued copy to the device",
    PauseKind.STREAM_WAIT: "wait queued in a stream",
    PauseKind.COPY_AHEAD: "copy ahead to the device",
    PauseKind.FETCH: "further fetch",
}
_OUTSIDE = {
    EventKind.BOUNDARY: "outside the steps",
    EventKind.EVALUATION: "evaluation",
    EventKind.SAVE: "checkpoint",
    EventKind.COMPILE: "torch's compiler",
}
_INSTANTS = {
    EventKind.EPOCH_BEGIN: "epoch {} begins",
    EventKind.TRAINING_BEGIN: "training begins",
    EventKind.TRAINING_END: "training ends",
    EventKind.ALLOCATOR_RETRIES: "the allocator freed its caches",
    EventKind.WORKER_DIED: "a worker died",
}
_PARTS = {"compute": "compute", "boundary": "idle: outside the steps", "untold": "computing or waiting, not told apart"}
_SPANS = {SpanKind.COMPUTE: "compute", SpanKind.COPY: "copy"}
_PHASES = (
    ("fetch", "fetch_begin_ns", ("fetch_end_ns",)),
    ("forward", "forward_begin_ns", ("backward_begin_ns", "optimizer_begin_ns", "step_end_ns")),
    ("backward", "backward_begin_ns", ("optimizer_begin_ns", "step_end_ns")),
    ("optimizer", "optimizer_begin_ns", ("optimizer_end_ns",)),
)
"""Phase of a step, its begin, and where it ends: the first of these stamps that is known."""
_OF_STEP = {
    **{name: (name, 1) for name in ("epoch", "samples", "queue_ready", "queue_capacity", "copy_bytes")},
    "skipped_before": ("skipped", 1),
    **{f"{name}_ms": (f"{name}_ns", 1e6) for name in ("sync", "gc", "cpu", "overhead")},
}
_OF_BATCH = {
    "samples": ("samples", 1),
    "bytes": ("batch_bytes", 1),
    "read_bytes": ("read_bytes", 1),
    "threads": ("threads", 1),
    "slowest_sample": ("slowest_index", 1),
    "skipped_before": ("skipped", 1),
    **{f"{name}_ms": (f"{name}_ns", 1e6) for name in ("read", "decode", "transform", "collate", "cpu")},
    "waited_for_cpu_ms": ("run_queue_ns", 1e6),
    "idle_before_ms": ("idle_ns", 1e6),
    "slowest_sample_ms": ("slowest_ns", 1e6),
    "slowest_file": ("slowest_name", 0),
}
Fields = Mapping[str, tuple[str, float]]
"""What a slice says: name → field of its record, and what to divide it by; 0: it is the number of a name."""
Counter = tuple[str, str, str, float, bool]
"""Name, unit, field of the sample, what to divide it by; and whether the field is a sum that rises,
shown as its rate a second."""
DEVICE_COUNTERS: tuple[Counter, ...] = (
    ("utilisation", "%", "utilisation_pct", 1.0, False),
    ("SM active", "%", "sm_active_pct", 1.0, False),
    ("tensor cores active", "%", "tensor_active_pct", 1.0, False),
    ("memory bandwidth", "%", "dram_active_pct", 1.0, False),
    ("memory in use", "GiB", "memory_used_bytes", 1 << 30, False),
    ("power", "W", "power_mw", 1e3, False),
    ("SM clock", "MHz", "sm_clock_mhz", 1.0, False),
    ("temperature", "degrees C", "temperature_c", 1.0, False),
    ("PCIe to device", "MB/s", "pcie_rx_bytes", 1e6, True),
    ("PCIe from device", "MB/s", "pcie_tx_bytes", 1e6, True),
)
HOST_COUNTERS: tuple[Counter, ...] = (
    ("machine CPU", "%", "machine_busy_pct", 1.0, False),
    ("steal", "%", "steal_pct", 1.0, False),
    ("waiting for I/O", "%", "machine_iowait_pct", 1.0, False),
    ("CPUs allowed", "CPUs", "cpus", 1e3, False),
    ("memory of the training", "GiB", "tree_pss_bytes", 1 << 30, False),
    ("shared memory in use", "GiB", "shm_used_bytes", 1 << 30, False),
    ("CPUs the training uses", "CPUs", "tree_cpu_ns", 1e9, True),
    ("threads waiting for a CPU", "threads", "run_queue_ns", 1e9, True),
    ("read from storage", "MB/s", "read_storage_bytes", 1e6, True),
)
BLOCK = 4096


def _in_order(records: Records, at_ns: Stamps) -> Iterator[tuple[int, Any]]:
    """Give place and record by these times, many read at once: records are kept by column."""
    order = np.argsort(at_ns, kind="stable")
    for first in range(0, len(order), BLOCK):
        places = order[first : first + BLOCK]
        yield from zip(places.tolist(), np.asarray(records[places]), strict=True)


class _Scene:
    """What of one rank lies within the exported stretch, on the trace's axis of time."""

    def __init__(self, tracks: Tracks, rank: RankTrace, stretch: Stretch) -> None:
        self.tracks, self.rank, self.timeline = tracks, rank, rank.timeline
        self.offset_ns, self.low, self.high = rank.offset_ns, stretch.low, stretch.high
        self.names = read_names(rank.process.run.folder)
        begin = self.timeline.steps["fetch_begin_ns"] + self.offset_ns
        self.steps: Records = self.timeline.steps[(begin >= self.low) & (begin < self.high)]
        """Those that begin within the stretch."""

    def add(self, several: bool) -> None:
        """Add all tracks of the rank. `several`: whether others are beside it."""
        rank, tracks, kind = self.rank, self.tracks, self.timeline.facts.device_kind
        who = f"rank {self.timeline.rank}: " if several else ""
        title = str((rank.process.info.get("device") or {}).get("title") or kind)
        host = tracks.track(f"{who}training (process {rank.process.writer[1]})")
        steps = tracks.track("steps", host)
        self._steps(host, steps)
        self._on_host(host)
        self._instants(host, steps)
        ready = measured(self.steps["queue_ready"])
        self._counter(host, self.steps["fetch_begin_ns"], ready, "finished batches waiting", "batches")
        self._on_device(host if kind == "cpu" else tracks.track(f"{who}device ({title})"))
        if len(self.timeline.batches):
            self._flows(host, steps, self._loader(tracks.track(f"{who}loader")))

    def add_samples(self, several: bool) -> None:
        """Add what the sampler of the rank's host saw."""
        timeline = self.timeline
        of_host = f" of {timeline.host}" if several and timeline.host else ""
        emulated = "emulated " if timeline.facts.device_kind == "emulated" else ""
        whose = (
            (f"{emulated}devices", timeline.device, DEVICE_COUNTERS),
            ("host", timeline.host_samples, HOST_COUNTERS),
        )
        for name, samples, counters in whose:
            if len(samples) == 0:
                continue
            pid = self.tracks.track(f"{name}{of_host}, by the sampler")
            of_device = counters is DEVICE_COUNTERS
            for number in np.unique(samples["device"]).tolist() if of_device else [0]:
                mine = samples[samples["device"] == number] if of_device else samples
                for name, unit, field_, scale, rises in counters:
                    shown = f"device {number}: {name}" if of_device else name
                    self._counter(pid, mine["t_ns"], measured(mine[field_]), shown, unit, scale, rises)

    def _told(self, record: Any, fields: Fields) -> Iterator[tuple[str, Any]]:
        """Give what was measured of these fields."""
        for shown, (name, scale) in fields.items():
            if (value := int(record[name])) != NOT_MEASURED:
                yield shown, value if scale == 1 else value / scale if scale else self.names.get(value)

    def shifted(self, stamps: Stamps) -> Stamps:
        """Put measured stamps on the trace's axis, whose zero nothing is before."""
        moved: Stamps = np.maximum(0, np.where(stamps == NOT_MEASURED, 0, stamps) + self.offset_ns)
        return moved

    def covers(self, begin: Stamps, end: Stamps) -> npt.NDArray[np.bool_]:
        """Tell which recorded stretches reach into the exported one; both stamps must be known.

        What was over before the trace's zero reaches into nothing: `shifted` would put it at the zero.
        """
        known = (begin != NOT_MEASURED) & (end != NOT_MEASURED) & (end >= begin)
        return np.asarray(known & (begin + self.offset_ns < self.high) & (end + self.offset_ns >= self.low))

    def _slices(
        self,
        pid: int,
        title: str,
        records: Records,
        stamps: tuple[str, str],
        label: Callable[[Any], str],
        fields: Fields = MappingProxyType({}),
        inside: npt.NDArray[np.bool_] | None = None,
    ) -> tuple[Stamps, Stamps, Stamps]:
        """Add complete events: on one track, or on as many as it takes that none overlap.

        Args:
            stamps: fields between whose stamps a slice lies.
            label, fields: the slice's name and what else it says, of its record.
            inside: which records are shown; `None`: those that reach into the stretch.

        Returns:
            The track, the begin and the end of each slice.
        """
        if inside is None:
            inside = self.covers(*(records[each] for each in stamps))
        records = records[inside]
        begin, end = (self.shifted(records[each]) for each in stamps)
        lanes = lanes_of(begin, end)
        names = (title if n == 0 else f"{title} ({n + 1})" for n in range(int(lanes.max(initial=-1)) + 1))
        threads = np.array([self.tracks.track(each, pid) for each in names], dtype=np.int64)[lanes]

        def events() -> EventSource:
            for i, record in _in_order(records, begin):
                low, high, told = int(begin[i]), int(end[i]), self._told(record, fields)
                yield low, [complete(pid, int(threads[i]), low, high, label(record), told)]

        self.tracks.sources.append(events())
        return threads, begin, end

    def _counter(
        self, pid: int, at: Stamps, values: Values, name: str, unit: str, scale: float = 1.0, rises: bool = False
    ) -> None:
        """Add a counter; see `Counter`. What was not measured (NaN) makes no event: viewers go on
        showing the value before."""
        if rises:
            # At the earlier of two readings. A counter that fell was reset: between those nothing is known.
            at, values = at[~np.isnan(values)][:-1], 1e9 * rate(at, values)[1]
        moved = at + self.offset_ns
        shown = np.isfinite(values) & (moved >= max(0, self.low)) & (moved < self.high)
        moved, values = moved[shown], values[shown] / scale

        def events() -> EventSource:
            for i in np.argsort(moved, kind="stable").tolist():
                told, at_ns = {unit: round(float(values[i]), 6)}, int(moved[i])
                yield at_ns, [{"ph": "C", "pid": pid, "tid": 0, "ts": at_ns / 1000, "name": name, "args": told}]

        self.tracks.sources.append(events())

    def _on_host(self, pid: int) -> None:
        """Add calls of the training thread that wait for the device or copy to it; then what lasts:
        garbage collections, evaluations and the like, the program's own phases."""
        steps, pauses, events = self.steps, self.timeline.pauses, self.timeline.events
        copied = steps[(steps["copy_begin_ns"] != NOT_MEASURED) & (steps["copy_end_ns"] != NOT_MEASURED)]
        calls = np.zeros(len(copied), PAUSE.dtype)
        calls["what"] = _COPY_OF_BATCH
        fields = {"begin_ns": "copy_begin_ns", "end_ns": "copy_end_ns", "step": "step", "amount_bytes": "copy_bytes"}
        for name, of_step in fields.items():
            calls[name] = copied[of_step]
        calls = np.concatenate((calls, np.asarray(pauses[self.covers(pauses["begin_ns"], pauses["end_ns"])])))
        told = {"step": ("step", 1), "bytes": ("amount_bytes", 1)}
        self._slices(pid, "calls that wait or copy", calls, SPAN_NS, lambda c: _CALLS.get(int(c["what"]), "call"), told)
        unnamed = "phase without a name"
        lasting: tuple[tuple[str, Collection[int], Callable[[Any], str]], ...] = (
            ("garbage collection", (EventKind.GARBAGE,), lambda _: "garbage collection"),
            ("outside the steps", _OUTSIDE, lambda event: _OUTSIDE[int(event["what"])]),
            ("phases of the program", (EventKind.PHASE,), lambda e: self.names.get(int(e["value"]), unnamed)),
        )
        for title, kinds, label in lasting:
            self._slices(pid, title, events[np.isin(events["what"], list(kinds))], ("t_ns", "end_ns"), label)

    def _on_device(self, pid: int) -> None:
        """Add where the time went, each recorded instant in one part; the steps' computation and
        copies, from start to end on the device's clock; and what an emulated device's engines
        really did, the truth to compare all else with."""
        timeline, device = self.timeline, ("device_begin_ns", "device_end_ns")
        on_processor = timeline.facts.device_kind == "cpu"
        low, high = max(0, self.low) - self.offset_ns, self.high - self.offset_ns
        shown = [clip(spans, low, high) for spans in timeline.parts.values()]
        parts = np.zeros(sum(map(len, shown)), [("begin_ns", "i8"), ("end_ns", "i8"), ("part", "i8")])
        if shown:
            parts["begin_ns"], parts["end_ns"] = np.concatenate(shown).T
            parts["part"] = np.repeat(np.arange(len(shown)), [len(spans) for spans in shown])
        idle = "waiting" if on_processor else "idle"
        names = [_PARTS.get(part, f"{idle}: {part}") for part in timeline.parts]
        self._slices(pid, "where the time went", parts, SPAN_NS, lambda stretch: names[stretch["part"]])
        copy = ("device_copy_begin_ns", "device_copy_end_ns")
        at_work: list[tuple[str, Records, tuple[str, str], str, Fields]] = [
            ("steps on the device", timeline.steps, device, "compute", {}),
            ("copies of batches", timeline.steps, copy, "copy", {"bytes": ("copy_bytes", 1)}),
            ("pauses within steps", timeline.pauses, device, "pause", {}),
        ]
        for title, records, stamps, name, amount in [] if on_processor else at_work:
            label = partial("{0}: step {1[step]}".format, name)
            self._slices(pid, title, records, stamps, label, {"step": ("step", 1), **amount})
        work = self.rank.spans
        work = work[self.covers(work["begin_ns"], work["end_ns"])]
        for stream in np.unique(work["stream"]).tolist():
            mine, title = work[work["stream"] == stream], f"emulated engines, stream {stream}"
            self._slices(pid, title, mine, SPAN_NS, lambda span: _SPANS.get(int(span["what"]), "work"))

    def _steps(self, pid: int, tid: int) -> None:
        """Add a slice a step, and in it those of its phases that were seen."""
        steps = self.steps
        begin, end = self.shifted(steps["fetch_begin_ns"]), self.shifted(steps["step_end_ns"])
        # A step ends before the next begins, whatever its stamps say.
        following = np.append(begin[1:], np.iinfo(np.int64).max)
        end = np.minimum(np.maximum(end, begin), np.maximum(following, begin)) if len(steps) else end

        def events() -> EventSource:
            for i, step in _in_order(steps, begin):
                cursor, over, told = int(begin[i]), int(end[i]), self._told(step, _OF_STEP)
                made = [complete(pid, tid, cursor, over, f"step {int(step['step'])}", told, "step")]
                for name, starts, stops in _PHASES:
                    stop = next((int(step[each]) for each in stops if step[each] != NOT_MEASURED), None)
                    if step[starts] == NOT_MEASURED or stop is None:
                        continue
                    low, high = max(int(step[starts]) + self.offset_ns, cursor), min(stop + self.offset_ns, over)
                    if high >= low:
                        made.append(complete(pid, tid, low, high, name, kind="phase"))
                        cursor = high
                yield int(begin[i]), made

        self.tracks.sources.append(events())

    def _instants(self, pid: int, tid: int) -> None:
        events = self.timeline.events
        told = events[np.isin(events["what"], list(_INSTANTS))][["t_ns", "what", "value"]].tolist()
        stamped = [(at, _INSTANTS[what].format(value)) for at, what, value in told]
        stamped.append((self.timeline.begin_ns, "the warm-up ends: reports count from here"))
        shifted = ((max(0, stamp + self.offset_ns), name) for stamp, name in stamped)
        moments = sorted((moment for moment in shifted if self.low <= moment[0] < self.high), key=itemgetter(0))
        head = {"ph": "i", "s": "p", "pid": pid, "tid": tid}
        self.tracks.sources.append((at, [head | {"ts": at / 1000, "name": str(plain(name))}]) for at, name in moments)

    def _loader(self, pid: int) -> dict[int, tuple[int, int, int, int]]:
        """Add a track for each worker, with the time of each batch, and which batches held up
        others. By number of the step: process, track, begin and end of its batch's slice."""
        every, made = self.timeline.batches, dict[int, tuple[int, int, int, int]]()
        begin, end = every["begin_ns"], every["end_ns"]
        # A batch may be ready long before the step that takes it. Nothing is before the trace's zero.
        inside = self.covers(begin, end) | np.isin(every["step"], self.steps["step"])
        batches = every[inside & (begin != NOT_MEASURED) & (end >= begin) & (end + self.offset_ns >= 0)]

        def label(batch: Any) -> str:
            return "batch" if batch["step"] == NOT_MEASURED else f"batch of step {int(batch['step'])}"

        for worker in np.unique(batches["worker"]).tolist():
            mine, title = batches[batches["worker"] == worker], f"worker {worker}"
            if self.timeline.facts.made_in_training:
                title = "batches prepared in the training process"
            elif worker == NOT_MEASURED:
                title = "loader"
            drawn = self._slices(pid, title, mine, SPAN_NS, label, _OF_BATCH, np.ones(len(mine), dtype=bool))
            rows = zip(mine["step"].tolist(), *(each.tolist() for each in drawn), strict=True)
            made |= {step: (pid, tid, low, high) for step, tid, low, high in rows if step != NOT_MEASURED}
        held = with_column(every, "begin_ns", self.timeline.blocked_ns)
        held = held[held["end_ns"] > held["begin_ns"]]
        holds = "the batch of step {0[step]} holds up later ones".format
        self._slices(pid, "head-of-line blocks", held, SPAN_NS, holds, {"worker": ("worker", 1)})
        return made

    def _flows(self, pid: int, tid: int, made: Mapping[int, tuple[int, int, int, int]]) -> None:
        """Arrows from the worker's slice of a batch to the fetch that handed it over.

        Where the training waited for the batch, the flow ends in a slice of its own within the fetch: the hand-over,
        from the finished batch to the training. Viewers draw arrows from the slice that began first.
        """
        steps = self.steps
        steps = steps[(steps["fetch_end_ns"] != NOT_MEASURED) & np.isin(steps["step"], list(made))]
        begins, ends = self.shifted(steps["fetch_begin_ns"]), self.shifted(steps["fetch_end_ns"])
        ends = np.maximum(begins, ends - 1)
        number = self.tracks.next_flow
        self.tracks.next_flow += len(steps)

        def events() -> EventSource:
            for i, step in _in_order(steps, ends):
                from_pid, from_tid, begin, end = made[int(step["step"])]
                leaves, arrives = max(begin, end - 1), int(ends[i])
                # Clocks are one; stamps of two processes may still be taken in the wrong order.
                if leaves > arrives:
                    continue
                waited = max(end, int(begins[i])) == end
                handed = [complete(pid, tid, end, arrives + 1, "hand-over", kind="phase")] if waited else []
                told = {"cat": "batch", "name": "batch", "id": number + i}
                leaving = {"ph": "s", "pid": from_pid, "tid": from_tid, "ts": leaves / 1000, **told}
                arriving = {"ph": "f", "bp": "e", "pid": pid, "tid": tid, "ts": arrives / 1000, **told}
                yield arrives, [*handed, leaving, arriving]

        self.tracks.sources.append(events())


# Writing it, in order of time, never more than was asked for.

MOST_EVENTS = 1_000_000
"""Of more, viewers get slow."""


@dataclass(frozen=True)
class Written:
    events: int
    bytes: int
    """Before any compression."""
    cut_ns: int | None
    """Where it was cut because it became too large; `None` where it is whole."""


def write_trace(tracks: Tracks, about: dict[str, Any], most_bytes: int, file: TextIO) -> Written:
    """Write a trace. `about`: what the file says of itself. One that is cut has whole events and
    whole flows all the same."""
    room = most_bytes - len(_json(about)) - 400
    written = file.write('{"displayTimeUnit":"ms","traceEvents":[\n')
    written += file.write(",\n".join(map(_json, tracks.metadata)))
    events = len(tracks.metadata)
    cut: int | None = None
    # Of events of the same instant, the first source decides.
    for at_ns, made in merge(*tracks.sources, key=itemgetter(0)):
        lines = [f",\n{_json(event)}" for event in made]
        text = "".join(lines)
        if written + len(text) > room or events + len(lines) > MOST_EVENTS:
            cut = at_ns
            break
        written += file.write(text)
        events += len(lines)
    if cut is not None:
        about = about | {"cut": f"at {cut / 1e9:.3f} s: the rest would make the file too large"}
    written += file.write('\n],"otherData":' + _json(about) + "}\n")
    return Written(events, written, cut)


def _json(value: Any) -> str:
    """In ASCII, so that its length in characters is that in bytes."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False)
