"""Cuts spans of time out of a run's records, as if they had never been.

What lies within a span goes; what comes later moves forward by the span's length; a cumulative counter loses what it
rose by in the span. Durations stay: they belong to what is kept. So whatever is computed from the rest need not know.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt

from ...record.columns import Records, copied
from ...record.run import Run, Writer
from ...record.schema import DEVICE, EVENT, HOST, KINDS, MEMORY, NAN, NOT_MEASURED, PAUSE, STEP, EventKind, Kind
from ..intervals import Intervals
from ..shares import MOSTLY
from .outlier_steps import LOOKS_NS

Stamps = npt.NDArray[np.int64]


STAMPS = {
    kind.name: tuple(
        f.name
        for f in kind.fields
        if f.name in ("t_ns", "launch_ns") or f.name.endswith(("begin_ns", "end_ns", "before_ns"))
    )
    for kind in KINDS.values()
}
"""The fields that say when; all other times are durations."""
COUNTERS = {
    kind.name: tuple(f.name for f in kind.fields if f.meaning.startswith("cumulative")) for kind in (HOST, DEVICE)
}

COUNTING = (EventKind.PYTHON_THREADS, EventKind.ALLOCATOR_RETRIES)
"""Events that tell a cumulative counter."""


@dataclass(frozen=True)
class Cuts:
    """Spans to be cut out of one training process's records, with the steps that lie in them."""

    spans: Intervals
    steps: npt.NDArray[np.int64]
    """Numbers of those steps."""

    def __bool__(self) -> bool:
        return len(self.spans) + len(self.steps) > 0

    @cached_property
    def _gone(self) -> Stamps:
        """Time cut out before each span."""
        lengths = self.spans[:, 1] - self.spans[:, 0]
        return np.asarray(np.concatenate(([0], np.cumsum(lengths))), dtype=np.int64)

    def moved(self, stamps: Stamps) -> Stamps:
        """Stamps on the clock that stands still within the spans; what was not measured stays so."""
        place = np.searchsorted(self.spans[:, 0], stamps, side="right")
        last = np.maximum(place - 1, 0)
        beyond = self.spans[last, 1] if len(self.spans) else stamps
        gone = self._gone[place] - np.where(place > 0, np.maximum(0, beyond - stamps), 0)
        return np.where(stamps == NOT_MEASURED, stamps, stamps - gone)

    def within(self, begin: Stamps, end: Stamps) -> npt.NDArray[np.bool_]:
        """Which of these times lie within one span, its ends included."""
        place = np.searchsorted(self.spans[:, 0], begin, side="right")
        last = np.maximum(place - 1, 0)
        until = self.spans[last, 1] if len(self.spans) else begin
        return np.asarray((place > 0) & (end <= until))


@dataclass(frozen=True)
class CutRun(Run):
    """A run without the cuts of one of its training processes."""

    cuts: Cuts = field(kw_only=True)

    def records(self, kind: Kind, writer: Writer | None = None) -> Records:
        records = excised(kind, super().records(kind, writer), self.cuts)
        if kind is EVENT:
            records = np.concatenate((records, untold(super().records(STEP, writer), self.cuts)))
        return records


def excised(kind: Kind, records: Records, cuts: Cuts) -> Records:
    """Records of one kind without the cuts."""
    if not cuts or len(records) == 0:
        return records
    if kind is STEP:
        return _moved(kind, _steps(records, cuts), cuts)
    if kind is PAUSE:
        return _moved(kind, records[~np.isin(records["step"], cuts.steps)], cuts)
    if kind is EVENT:
        return _events(records, cuts)
    if kind in (HOST, MEMORY, DEVICE):
        return _samples(kind, records, cuts)
    if "begin_ns" in STAMPS[kind.name]:
        return _moved(kind, records[~cuts.within(records["begin_ns"], records["end_ns"])], cuts)
    return records


def untold(steps: Records, cuts: Cuts) -> Records:
    """Events that tell of steps let pass before the last steps of a run, if those are cut."""
    kept = ~np.isin(steps["step"], cuts.steps)
    after = steps[int(np.flatnonzero(kept)[-1]) + 1 :] if kept.any() else steps[:0]
    told = np.zeros(2, dtype=EVENT.dtype)
    told["what"] = EventKind.SKIPPED_STEPS, EventKind.SKIPPED_SAMPLES
    told["value"] = after["skipped"].sum(), after["skipped_samples"].sum()
    told["end_ns"] = NOT_MEASURED
    if not told["value"][0]:
        return told[:0]
    first = after[after["skipped"] > 0][0]
    told["t_ns"] = first["fetch_begin_ns"] if first["skipped_end_ns"] == NOT_MEASURED else first["skipped_end_ns"]
    return _moved(EVENT, told, cuts)


def _moved(kind: Kind, records: Records, cuts: Cuts) -> Records:
    records = copied(records)
    for name in STAMPS[kind.name]:
        records[name] = cuts.moved(records[name])
    return records


def _steps(records: Records, cuts: Cuts) -> Records:
    """The steps that are kept; steps let pass before one that is cut are told by the next that is kept."""
    records = copied(records)
    cut = np.isin(records["step"], cuts.steps)
    for number in np.flatnonzero(cut & (records["skipped"] > 0)):
        after = np.flatnonzero(~cut[number:])
        if len(after):
            row, heir = records[number], records[number + after[0] : number + after[0] + 1]
            heir["skipped"] += row["skipped"]
            heir["skipped_samples"] += row["skipped_samples"]
            ended = row["skipped_end_ns"]
            heir["skipped_end_ns"] = row["fetch_begin_ns"] if ended == NOT_MEASURED else ended
    kept: Records = records[~cut]
    return kept


def _events(records: Records, cuts: Cuts) -> Records:
    records = copied(records)
    for what in COUNTING:
        mine = np.flatnonzero(records["what"] == what)
        if len(mine) == 0:
            continue
        mine = mine[np.argsort(records["t_ns"][mine], kind="stable")]
        times, values = records["t_ns"][mine], records["value"][mine]
        if what == EventKind.ALLOCATOR_RETRIES:
            # Told only when there were some, and soon after that: until then they were as many as before, at first 0.
            until = np.maximum(times - LOOKS_NS, np.concatenate((times[:1] - LOOKS_NS, times[:-1])))
            times = np.stack((until, times), axis=1).ravel()
            values = np.stack((np.concatenate(([0], values[:-1])), values), axis=1).ravel()
        risen = _rise_within(times, values, cuts)
        records["value"][mine] -= risen[1::2] if len(risen) > len(mine) else risen
    moved = _moved(EVENT, records, cuts)
    lasted = records["end_ns"] > records["t_ns"]
    # As samples do, what tells a counter goes with the cut that it lies in.
    told = np.isin(records["what"], COUNTING) & (_overlap(records["t_ns"], records["t_ns"] + 1, cuts) > 0)
    kept: Records = moved[~told & (~lasted | (moved["end_ns"] > moved["t_ns"]))]
    return kept


def _samples(kind: Kind, records: Records, cuts: Cuts) -> Records:
    """Samples outside the cuts, and their counters without what they rose by within."""
    records = copied(records)
    devices = records["device"] if kind is DEVICE else np.zeros(len(records), dtype=np.int64)
    for number in np.unique(devices):
        mine = np.flatnonzero(devices == number)
        for name in COUNTERS.get(kind.name, ()):
            known = mine[records[name][mine] != NOT_MEASURED]
            if len(known) > 1:
                records[name][known] -= _rise_within(records["t_ns"][known], records[name][known], cuts)
    times = records["t_ns"]
    if kind is not DEVICE:
        # Percentages are of the time since the sample before.
        since = np.concatenate((times[:1], times[:-1]))
        touched = _overlap(since, times, cuts) > 0
        for field in kind.fields:
            if field.type == "f8":
                records[field.name][touched] = NAN
        gone = _overlap(times, times + 1, cuts) > 0
    else:
        window = np.where(records["window_ns"] > 0, records["window_ns"], 1)
        gone = _overlap(times - window, times, cuts) > MOSTLY * window
    return _moved(kind, records[~gone], cuts)


def _overlap(begin: Stamps, end: Stamps, cuts: Cuts) -> Stamps:
    """How much of each of these times is cut."""
    return np.asarray((end - begin) - (cuts.moved(end) - cuts.moved(begin)), dtype=np.int64)


def _rise_within(times: Stamps, values: Stamps, cuts: Cuts) -> Stamps:
    """What a counter had risen by within the spans so far, at each of its samples."""
    # Relative to the first sample: a counter may be larger than a float holds to the unit.
    height = values - values[0]
    at = [np.interp(cuts.spans[:, edge] - times[0], times - times[0], height) for edge in (0, 1)]
    rises = np.concatenate(([0], np.cumsum(np.maximum(0, np.round(at[1] - at[0]))))).astype(np.int64)
    # A sample within a span goes; which part of the span's rise it loses is all the same.
    return np.asarray(rises[np.searchsorted(cuts.spans[:, 1], times, side="right")], dtype=np.int64)
