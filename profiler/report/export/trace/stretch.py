"""The stretch of a run that a trace shows: the one asked for, all of it, or what is around the worst stall.

Viewers load a trace into memory, so a trace is bounded. What a stretch will take is estimated from how many records
lie in it; the writer's own limit holds in any case.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ....analyse.timeline.timeline import Timeline
from ....errors import WhyidleError
from ....record.reader import Records
from ....record.schema import NOT_MEASURED
from ..steps import Axis
from .events import Stamps

BYTES = {"step": 1400, "batch": 330, "pause": 260, "device": 900, "host": 900, "event": 130, "part": 110, "work": 140}
"""JSON that one record comes to, a little more than measured."""
FILLED = 0.8
"""Share of the limit that an estimate may fill."""
STALLS = ("input", "copy", "sync", "host")


@dataclass(frozen=True)
class Stretch:
    """In ns since the axis's zero."""

    low: int
    high: int
    why: str
    """Which stretch it is, in words."""


@dataclass(frozen=True)
class Extent:
    """A run on the axis: where it begins and ends, and when its records are due, with the bytes of one."""

    low: int
    high: int
    due: tuple[tuple[Stamps, int], ...]

    def bytes(self, low: int, high: int) -> int:
        """What a stretch would take."""
        return sum(
            each * int(np.searchsorted(at, high, side="left") - np.searchsorted(at, low, side="left"))
            for at, each in self.due
        )


def extent_of(timelines: Sequence[Timeline], axis: Axis, work: Sequence[Records]) -> Extent:
    """`work`: of each timeline, kernels and spans that will be shown."""
    due: list[tuple[Stamps, int]] = []
    low, high = 0, 1
    for number, timeline in enumerate(timelines):
        offset = axis.ns(number, 0)
        high = max(high, int(timeline.steps["step_end_ns"].max()) + offset, timeline.end_ns + offset)
        stamps = {
            "step": timeline.steps["fetch_begin_ns"],
            "batch": timeline.lanes.batches["begin_ns"],
            "pause": timeline.pauses["begin_ns"],
            "event": timeline.events["t_ns"],
            "work": work[number]["begin_ns"] if len(work[number]) else np.empty(0, dtype=np.int64),
        }
        if number == 0:
            stamps |= {"device": timeline.device["t_ns"], "host": timeline.host_samples["t_ns"]}
        due += [(_in_order(at[at != NOT_MEASURED]) + offset, BYTES[name]) for name, at in stamps.items()]
        due += [(spans[:, 0] + offset, BYTES["part"]) for spans in timeline.parts.values()]
    return Extent(low, high, tuple(due))


def _in_order(stamps: Stamps) -> Stamps:
    return stamps if (stamps[1:] >= stamps[:-1]).all() else np.sort(stamps)


def asked_for(extent: Extent, since_s: float | None, until_s: float | None) -> Stretch:
    """A stretch in seconds.

    Raises:
        WhyidleError: it is empty, or the run has nothing there.
    """
    low = extent.low if since_s is None else round(since_s * 1e9)
    high = extent.high if until_s is None else round(until_s * 1e9)
    length = f"the run's steps last from 0 to {extent.high / 1e9:.3f} s"
    if since_s is not None and until_s is not None and high <= low:
        raise WhyidleError(f"--from {since_s:g} --to {until_s:g} is an empty stretch: {length}.")
    if low >= extent.high or high <= extent.low:
        where = f"before {until_s:g} s" if since_s is None else f"from {since_s:g} s on"
        if since_s is not None and until_s is not None:
            where = f"from {since_s:g} to {until_s:g} s"
        raise WhyidleError(f"nothing was recorded {where}: {length}.")
    low, high = max(low, extent.low), min(high, extent.high)
    return Stretch(low, high, f"{_seconds(low, high)}, as asked for")


def of_steps(timelines: Sequence[Timeline], axis: Axis, first: int, last: int) -> Stretch:
    """Steps `first` to `last`, the last one included, of all ranks.

    Raises:
        WhyidleError: no rank recorded any of them.
    """
    lows, highs = [], []
    for number, timeline in enumerate(timelines):
        steps = timeline.steps[(timeline.steps["step"] >= first) & (timeline.steps["step"] <= last)]
        if len(steps):
            offset = axis.ns(number, 0)
            lows.append(int(steps["fetch_begin_ns"].min()) + offset)
            ends = [int(steps["step_end_ns"].max()), int(steps["device_end_ns"].max(initial=NOT_MEASURED))]
            highs.append(max(ends) + offset)
    if not lows:
        recorded = [int(number) for t in timelines for number in (t.steps["step"].min(), t.steps["step"].max())]
        raise WhyidleError(
            f"no step from {first} to {last} was recorded; there are steps {min(recorded)} to {max(recorded)}."
        )
    return Stretch(min(lows), max(highs), f"steps {first} to {last}, {_seconds(min(lows), max(highs))}, as asked for")


def telling(timelines: Sequence[Timeline], axis: Axis, extent: Extent, most_bytes: int) -> Stretch:
    """The whole run where that fits, else as much as fits around its worst stall."""
    room = int(most_bytes * FILLED)
    if extent.bytes(extent.low, extent.high) <= room:
        return Stretch(extent.low, extent.high, f"the whole run, {_seconds(extent.low, extent.high)}")
    centre, what = _worst(timelines, axis, extent)
    narrow, wide = 0, extent.high
    while wide - narrow > 1_000_000:
        half = (narrow + wide) // 2
        if extent.bytes(max(extent.low, centre - half), min(extent.high, centre + half)) <= room:
            narrow = half
        else:
            wide = half
    half = max(narrow, 1_000_000)
    low, high = max(extent.low, centre - half), min(extent.high, centre + half)
    return Stretch(low, high, f"{_seconds(low, high)} of {extent.high / 1e9:.1f} s, around {what}")


def _worst(timelines: Sequence[Timeline], axis: Axis, extent: Extent) -> tuple[int, str]:
    """The middle of the longest stall that lies in one piece, and what it is."""
    found: list[tuple[int, int, str]] = []
    for number, timeline in enumerate(timelines):
        for part in STALLS:
            spans = timeline.parts.get(part)
            if spans is None or len(spans) == 0:
                continue
            longest = spans[int(np.argmax(spans[:, 1] - spans[:, 0]))]
            length = int(longest[1] - longest[0])
            middle = axis.ns(number, int(longest[0]) + length // 2)
            whose = f" on rank {timeline.rank}" if len(timelines) > 1 else ""
            found.append((length, middle, f"the longest stall{whose}: {length / 1e6:.1f} ms of {part}"))
    if not found:
        return extent.high // 2, "the middle of the run, which has no stall"
    _, middle, what = max(found)
    return middle, f"{what}, at {middle / 1e9:.3f} s"


def _seconds(low: int, high: int) -> str:
    return f"{low / 1e9:.3f} to {high / 1e9:.3f} s"
