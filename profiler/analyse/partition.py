"""Where the wall time went: every nanosecond of the window blamed once.

On a device with a queue (CUDA, emulated) time is blamed on the device's clock. What the device computed is
compute, whatever the host did meanwhile. What is left is idle, and is blamed on what kept the next computation
away: time outside steps (boundary), a copy, the loader, the host's copying call, a synchronising call, other host
work, in this order.
A loader wait behind queued work is *hidden*: it cost the device nothing.

Where the processor is the device nothing is queued, and host stamps say it all.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from ..record.reader import Records
from ..record.schema import NOT_MEASURED, EventKind, StepFlag
from .intervals import EMPTY, Intervals, clip, complement, intersect, subtract, total, union
from .window import Window

GAP_NS = 100_000
"""Shorter stretches are launch latency, not gaps anyone would see."""

PARTS = ("compute", "input", "copy", "sync", "host", "boundary")


@dataclass(frozen=True)
class Partition:
    """Wall time of the window in ns; the parts sum to `wall_ns` exactly."""

    wall_ns: int
    compute_ns: int
    input_ns: int
    copy_ns: int
    sync_ns: int
    host_ns: int
    boundary_ns: int
    fetch_ns: int
    """All time the training spent fetching, hidden or not."""
    first_fetch_ns: int
    """Exposed part of the first fetches of epochs: worker start and pipeline fill."""
    fill_ns: int
    """What of that goes beyond the exposed part of as many other fetches: pipeline fill."""
    garbage_ns: int
    """Part of the host's exposed time spent collecting garbage."""
    gaps_ns: tuple[int, ...]
    """Lengths of the device's idle stretches of at least `GAP_NS` outside boundaries, in order of time."""
    unresolved_steps: int
    """Steps whose device stamps are missing; their compute is counted as idle time of the host."""
    loading: Intervals = field(repr=False, compare=False)
    """When the device idled behind a fetch."""

    def share(self, part: str) -> float:
        """A part as a share of wall time, 0..1."""
        return float(getattr(self, f"{part}_ns")) / self.wall_ns if self.wall_ns else 0.0

    @property
    def hidden_wait_ns(self) -> int:
        """Fetching that cost the device nothing."""
        return max(0, self.fetch_ns - self.input_ns)


def partition(window: Window, events: Records, asynchronous: bool) -> Partition:
    """Blame the window's time. `asynchronous`: the device has a queue and stamps of its own."""
    steps = window.steps
    begin, end = window.begin_ns, window.end_ns
    fetches = _spans(steps, "fetch_begin_ns", "fetch_end_ns")
    boundaries = _events(events, EventKind.BOUNDARY)
    copies = _spans(window.all_steps, "device_copy_begin_ns", "device_copy_end_ns") if asynchronous else EMPTY
    collecting = _events(events, EventKind.GARBAGE)
    computing = computing_of(window, asynchronous)
    if not asynchronous:
        # A processor that collects garbage computes nothing.
        computing = subtract(computing, collecting)
    idle = complement(computing, begin, end)
    outside = intersect(idle, boundaries)
    idle = subtract(idle, outside)
    copying, left = _take(idle, copies)
    loading, left = _take(left, fetches)
    calling, left = _take(left, _spans(steps, "copy_begin_ns", "copy_end_ns") if asynchronous else EMPTY)
    syncing, left = _take(left, _syncs(steps) if asynchronous else EMPTY)
    first = steps[(steps["flags"] & StepFlag.FIRST_OF_EPOCH) != 0]
    first_fetch_ns = total(intersect(loading, _spans(first, "fetch_begin_ns", "fetch_end_ns")))
    return Partition(
        wall_ns=end - begin,
        compute_ns=total(computing),
        input_ns=total(loading),
        copy_ns=total(copying) + total(calling),
        sync_ns=total(syncing),
        host_ns=total(left),
        boundary_ns=total(outside),
        fetch_ns=total(clip(fetches, begin, end)),
        first_fetch_ns=first_fetch_ns,
        fill_ns=_fill(first_fetch_ns, total(loading), len(first), len(steps)),
        garbage_ns=total(intersect(left, collecting)),
        gaps_ns=tuple(int(n) for n in idle[:, 1] - idle[:, 0] if n >= GAP_NS),
        unresolved_steps=int((steps["device_end_ns"] == NOT_MEASURED).sum()) if asynchronous else 0,
        loading=loading,
    )


def _fill(first_fetch_ns: int, input_ns: int, first: int, steps: int) -> int:
    """What the first fetches of epochs cost the device beyond what as many other fetches do."""
    others = steps - first
    usual = (input_ns - first_fetch_ns) / others if others else 0.0
    return max(0, round(first_fetch_ns - first * usual))


def computing_of(window: Window, asynchronous: bool) -> Intervals:
    """When the device computed steps, within the window."""
    stamps = ("device_begin_ns", "device_end_ns") if asynchronous else ("fetch_end_ns", "optimizer_end_ns")
    return clip(_spans(window.all_steps, *stamps), window.begin_ns, window.end_ns)


def busy_strip(window: Window, asynchronous: bool, bin_ns: int, bins: int) -> list[float]:
    """Share of each bin in which the device computed, in percent: a stretch from the middle of the window.

    Finer than any utilisation counter: this is what it averages over. Shorter where the window is.
    """
    bins = min(bins, window.wall_ns // bin_ns)
    begin = window.begin_ns + (window.wall_ns - bins * bin_ns) // 2
    computing = computing_of(window, asynchronous)
    edges = begin + bin_ns * np.arange(bins + 1, dtype=np.int64)
    return [100 * total(clip(computing, int(a), int(a) + bin_ns)) / bin_ns for a in edges[:-1]]


def _take(idle: Intervals, reason: Intervals) -> tuple[Intervals, Intervals]:
    """The part of the idle time this reason explains, and what is left of it."""
    taken = intersect(idle, reason)
    return taken, subtract(idle, taken)


def _spans(records: Records, begin: str, end: str) -> Intervals:
    """The union of spans between two stamps, of records that have both."""
    known = (records[begin] != NOT_MEASURED) & (records[end] != NOT_MEASURED)
    return union(records[begin][known], records[end][known])


def _syncs(steps: Records) -> Intervals:
    """The synchronising calls: each step keeps the begin of its last one and the time of all."""
    known = steps["sync_begin_ns"] != NOT_MEASURED
    begin = steps["sync_begin_ns"][known]
    return union(begin, begin + steps["sync_ns"][known])


def _events(events: Records, what: int) -> Intervals:
    """When events of a kind that lasts were under way."""
    which = events[(events["what"] == what) & (events["end_ns"] != NOT_MEASURED)]
    return union(which["t_ns"], which["end_ns"])
