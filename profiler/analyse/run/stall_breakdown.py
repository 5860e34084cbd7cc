"""Where the wall time went: every nanosecond of the window blamed once.

On a device with a queue (CUDA, emulated) time is blamed on the device's clock. What the device computed is
compute, whatever the host did meanwhile; of a step that paused for a synchronising call or a copy, the pause is not.
What is left is idle, and is blamed on what kept the next computation away: time outside steps (boundary), a copy, the
loader, the host's copying call, a synchronising call, other host work, in this order.
A loader wait behind queued work is *hidden*: it cost the device nothing.

Where the processor is the device nothing is queued, and host stamps say it all.

A forward pass that runs between the optimizer and the next fetch is told from the rest of that stretch by nothing:
all of it counts as compute.

Steps that nobody looked at (`unsampled_steps.py`) are taken to spend their time as the others do; first fetches of
epochs and time outside steps, which are always looked at, are left out of that.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from ...record.reader import Records
from ...record.schema import NOT_MEASURED, EventKind, PauseKind, StepFlag
from ..intervals import EMPTY, Intervals, clip, complement, intersect, subtract, total, union, union_of
from .events import lasting, one_of, under_way
from .unsampled_steps import unseen_of
from .window import Window

GAP_NS = 100_000
"""Idle stretch of the device that counts as a gap, at least: shorter ones are launch latency."""

PARTS = ("compute", "input", "copy", "sync", "host", "boundary")
TOTAL = "total"
"""The term that the six parts sum to, where times of runs are compared part by part."""
TERMS = (*PARTS, TOTAL)
UNTOLD = "untold"
"""Time of which it is not known which of the parts it is, where no fetch was seen."""


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
    paused_ns: int
    """Idle time inside steps, between two stretches of the same step's computation; part of copy, sync and host."""
    fetch_ns: int
    """All time the training spent fetching, hidden or not."""
    first_fetch_ns: int
    """Exposed part of the first fetches of epochs: worker start, pipeline fill, what the sampler does then."""
    fill_ns: int
    """Part of `first_fetch_ns` beyond the exposed part of as many other fetches, the sampler's work left out of both:
    pipeline fill."""
    garbage_ns: int
    """Part of the host's exposed time spent collecting garbage."""
    unseen_ns: int
    """Time of steps that nobody looked at: shared out among the parts as the other steps' time is."""
    gaps_ns: npt.NDArray[np.int64] = field(repr=False, compare=False)
    """Lengths of the device's idle stretches of at least `GAP_NS` outside boundaries, in order of time."""
    unresolved_steps: int
    """Steps whose device stamps are missing for no known reason."""
    unmarked_waits: int
    """Waits for the device that have host stamps only: what the device idled in them counts as computing if it was
    in the midst of a step."""
    loading: Intervals = field(repr=False, compare=False)
    """When the device idled behind a fetch, where that was seen."""
    computing: Intervals = field(repr=False, compare=False)
    """When the device computed, where that was seen."""
    hosting: Intervals = field(repr=False, compare=False)
    """When the device idled behind other work of the host."""
    syncing: Intervals = field(repr=False, compare=False)
    """When the device idled behind a synchronising call."""
    outside: Intervals = field(repr=False, compare=False)
    """When the device idled outside the steps."""
    copying: Intervals = field(default_factory=lambda: EMPTY, repr=False, compare=False)
    """When the device idled behind a copy."""
    sampling: Intervals = field(default_factory=lambda: EMPTY, repr=False, compare=False)
    """Part of `loading` in which a sampler worked, in the training's thread."""
    gil_ns: int = 0
    """Part of the host's time in which the training waited for Python's global lock (`gil.py`)."""

    def condensed(self) -> Partition:
        """It with sums and gaps, and nothing of when they were."""
        return replace(
            self,
            loading=EMPTY,
            computing=EMPTY,
            hosting=EMPTY,
            syncing=EMPTY,
            outside=EMPTY,
            copying=EMPTY,
            sampling=EMPTY,
        )

    def of_all_steps(self, part: str, seen: float) -> float:
        """Some of a part's time that was seen (`computing`, `hosting`, `syncing`), with as large a share of the part's
        time in steps that nobody looked at."""
        intervals = {"compute": self.computing, "host": self.hosting, "sync": self.syncing}[part]
        whole = total(intervals)
        return seen * float(getattr(self, f"{part}_ns")) / whole if whole else 0.0

    def share(self, part: str) -> float:
        """A part as a share of wall time, 0..1."""
        return float(getattr(self, f"{part}_ns")) / self.wall_ns if self.wall_ns else 0.0

    @property
    def stepping_share(self) -> float:
        """Share of wall time between the begin and the end of the steps' computation, pauses and all."""
        return (self.compute_ns + self.paused_ns) / self.wall_ns if self.wall_ns else 0.0

    @property
    def hidden_wait_ns(self) -> int:
        """Time spent fetching that cost the device nothing, since it had work."""
        return max(0, self.fetch_ns - self.input_ns)


def partition(window: Window, events: Records, pauses: Records, asynchronous: bool) -> Partition:
    """Blame the window's time. `asynchronous`: the device has a queue and stamps of its own."""
    steps = window.steps
    begin, end = window.begin_ns, window.end_ns
    further = _host_spans(pauses, PauseKind.FETCH)
    fetches = clip(union_of(_spans(steps, "fetch_begin_ns", "fetch_end_ns"), further), begin, end)
    first = steps[(steps["flags"] & StepFlag.FIRST_OF_EPOCH) != 0]
    firsts = clip(_spans(first, "fetch_begin_ns", "fetch_end_ns"), begin, end)
    collecting = under_way(lasting(events, EventKind.GARBAGE))
    unseen, surely_computing, unresolved = unseen_of(window, asynchronous)
    stepping = _stepping(window, asynchronous)
    computing = _computing(window, stepping, pauses, asynchronous)
    paused = total(stepping) - total(computing)
    boundaries = under_way(lasting(events, EventKind.BOUNDARY))
    if asynchronous:
        computing = union_of(computing, surely_computing)
    else:
        # A processor that validates or collects garbage does not compute the step.
        computing = subtract(computing, union_of(collecting, boundaries))

    idle = complement(computing, begin, end)
    outside = intersect(idle, union_of(boundaries, _between_steps(window)))
    idle = subtract(idle, outside)
    unseen = intersect(idle, unseen)
    idle = subtract(idle, unseen)

    idle_ns = idle[:, 1] - idle[:, 0]

    copying, left = _take(idle, _copies(window, pauses) if asynchronous else EMPTY)
    loading, left = _take(left, fetches)
    calling, left = _take(left, _copying_calls(steps, pauses) if asynchronous else EMPTY)
    syncing, left = _take(left, _host_spans(pauses, PauseKind.SYNC) if asynchronous else EMPTY)
    first_fetch_ns = total(intersect(loading, firsts))
    sampling = intersect(loading, under_way(lasting(events, EventKind.SAMPLER)))
    waiting = subtract(loading, sampling)
    seen = {
        "compute": total(computing),
        "input": total(loading),
        "copy": total(copying) + total(calling),
        "sync": total(syncing),
        "host": total(left),
        "boundary": total(outside),
    }
    ordinary = seen | {"boundary": 0, "input": seen["input"] - first_fetch_ns}
    shared_out = _share_out(total(unseen), ordinary)
    grow = 1 + total(unseen) / max(1, sum(ordinary.values()))
    parts = {name: seen[name] + shared_out[name] for name in PARTS}
    return Partition(
        wall_ns=end - begin,
        compute_ns=parts["compute"],
        input_ns=parts["input"],
        copy_ns=parts["copy"],
        sync_ns=parts["sync"],
        host_ns=parts["host"],
        boundary_ns=parts["boundary"],
        paused_ns=round(paused * grow),
        fetch_ns=total(firsts) + round((total(fetches) - total(firsts)) * grow),
        first_fetch_ns=first_fetch_ns,
        fill_ns=_fill(total(intersect(waiting, firsts)), total(waiting), len(first), len(steps)),
        garbage_ns=round(total(intersect(left, collecting)) * grow),
        unseen_ns=total(unseen),
        gaps_ns=idle_ns[idle_ns >= GAP_NS],
        unresolved_steps=unresolved,
        unmarked_waits=int(((pauses["what"] == PauseKind.SYNC) & (pauses["device_end_ns"] == NOT_MEASURED)).sum()),
        loading=loading,
        computing=computing,
        hosting=left,
        syncing=syncing,
        outside=outside,
        copying=union_of(copying, calling),
        sampling=sampling,
    )


def _share_out(amount: int, parts: dict[str, int]) -> dict[str, int]:
    """`amount` in the proportions of the parts, to the nanosecond; all to the host where they are empty."""
    whole = sum(parts.values())
    if whole == 0:
        return dict.fromkeys(parts, 0) | {"host": amount}
    shares = {name: amount * part // whole for name, part in parts.items()}
    largest = max(parts, key=lambda name: parts[name])
    shares[largest] += amount - sum(shares.values())
    return shares


def _fill(first_fetch_ns: int, input_ns: int, first: int, steps: int) -> int:
    """What the first fetches of epochs cost the device beyond what as many other fetches do."""
    others = steps - first
    usual = (input_ns - first_fetch_ns) / others if others else 0.0
    return max(0, round(first_fetch_ns - first * usual))


def _stepping(window: Window, asynchronous: bool) -> Intervals:
    """From the begin to the end of the steps' computation, within the window."""
    stamps = ("device_begin_ns", "device_end_ns") if asynchronous else ("forward_begin_ns", "step_end_ns")
    spans = _spans(window.all_steps, *stamps)
    if not asynchronous:
        # The forward pass is not told apart everywhere, the fetch is not seen everywhere.
        spans = union_of(spans, _spans(window.all_steps, "fetch_end_ns", "step_end_ns"))
        # What a training does with a batch before it calls its model is the host's.
        seen = window.all_steps[(window.all_steps["flags"] & StepFlag.FORWARD_SEEN) != 0]
        spans = subtract(spans, _spans(seen, "fetch_end_ns", "forward_begin_ns"))
        # What follows the optimizer is the host's, unless the next forward pass does; without an optimizer step the
        # computation lasts to the end.
        ends = (window.all_steps["flags"] & StepFlag.FORWARD_AFTER) == 0
        after = _spans(window.all_steps[ends], "optimizer_end_ns", "step_end_ns")
        spans = subtract(spans, after)
    return clip(spans, window.begin_ns, window.end_ns)


def _computing(window: Window, stepping: Intervals, pauses: Records, asynchronous: bool) -> Intervals:
    """The steps' computation without the pauses in its midst."""
    if not asynchronous:
        return subtract(stepping, _host_spans(pauses, PauseKind.FETCH))
    steps = window.all_steps
    copied = steps[(steps["flags"] & StepFlag.COPIED_AHEAD) == 0]
    copies = _spans(copied, "device_copy_begin_ns", "device_copy_end_ns")
    holding_up = pauses[~one_of(pauses["what"], (PauseKind.COPY_AHEAD, PauseKind.STREAM_WAIT))]
    held = union_of(copies, _spans(holding_up, "device_begin_ns", "device_end_ns"))
    return subtract(stepping, union_of(held, _waits_for_copies(steps, pauses)))


def _waits_for_copies(steps: Records, pauses: Records) -> Intervals:
    """When the computing stream waited for another one, on which a copy ran: waits for what else streams do are part of
    the computation."""
    waits = _spans(_of(pauses, PauseKind.STREAM_WAIT), "device_begin_ns", "device_end_ns")
    ahead = steps[(steps["flags"] & StepFlag.COPIED_AHEAD) != 0]
    copies = _spans(ahead, "device_copy_begin_ns", "device_copy_end_ns")
    further = _spans(_of(pauses, PauseKind.COPY_AHEAD), "device_begin_ns", "device_end_ns")
    return intersect(waits, union_of(copies, further))


def busy_strip(window: Window, computing: Intervals, bin_ns: int, bins: int) -> list[float]:
    """Share of each bin in which the device computed, in percent: a stretch from the middle of the window.

    Finer than any utilisation counter: this is what it averages over. Shorter where the window is.
    """
    bins = min(bins, window.wall_ns // bin_ns)
    begin = window.begin_ns + (window.wall_ns - bins * bin_ns) // 2
    edges = begin + bin_ns * np.arange(bins + 1, dtype=np.int64)
    return [100 * total(clip(computing, int(a), int(a) + bin_ns)) / bin_ns for a in edges[:-1]]


def _between_steps(window: Window) -> Intervals:
    """Time of the host that belongs to no step: between the last fetch of an epoch and the first of the next."""
    steps = window.all_steps
    begin, end = steps["fetch_begin_ns"], steps["step_end_ns"]
    let_pass = steps["skipped"][1:] > 0
    let_pass_end = np.where(steps["skipped_end_ns"] != NOT_MEASURED, steps["skipped_end_ns"], begin)[1:]
    inside = union(np.concatenate((begin, end[:-1][let_pass])), np.concatenate((end, let_pass_end[let_pass])))
    # After the last step nothing is known to be outside but what events say.
    outside = complement(inside, window.begin_ns, min(window.end_ns, int(end.max())))
    # The device may still work on what was queued there when the next step begins.
    before = steps["device_before_ns"][1:]
    dropped = (steps["flags"][:-1] & StepFlag.MARKS_DROPPED) != 0
    late = (before != NOT_MEASURED) & (np.diff(steps["step"]) == 1) & ~dropped
    last_seen = np.maximum(end, steps["device_end_ns"])[:-1]
    return union_of(outside, union(last_seen[late], before[late]))


def _copies(window: Window, pauses: Records) -> Intervals:
    """When queued copies ran, on the device's clock. Of a copy that the host waits for, the host's call says it all."""
    queued = window.all_steps[(window.all_steps["flags"] & StepFlag.PINNED) != 0]
    copies = _spans(queued, "device_copy_begin_ns", "device_copy_end_ns")
    further = _of(pauses, PauseKind.QUEUED_COPY, PauseKind.COPY_AHEAD)
    return union_of(copies, _spans(further, "device_begin_ns", "device_end_ns"))


def _copying_calls(steps: Records, pauses: Records) -> Intervals:
    """When the host was in a call that copies."""
    return union_of(
        _spans(steps, "copy_begin_ns", "copy_end_ns"),
        _host_spans(pauses, PauseKind.COPY, PauseKind.QUEUED_COPY, PauseKind.COPY_AHEAD),
    )


def _host_spans(pauses: Records, *what: int) -> Intervals:
    return _spans(_of(pauses, *what), "begin_ns", "end_ns")


def _of(pauses: Records, *what: int) -> Records:
    which: Records = pauses[one_of(pauses["what"], what)]
    return which


def _take(idle: Intervals, reason: Intervals) -> tuple[Intervals, Intervals]:
    """The part of the idle time this reason explains, and what is left of it."""
    taken = intersect(idle, reason)
    return taken, subtract(idle, taken)


def _spans(records: Records, begin: str, end: str) -> Intervals:
    """The union of spans between two stamps, of records that have both."""
    return union(records[begin], records[end])
