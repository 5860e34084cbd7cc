"""Where the wall time went: every nanosecond of the window blamed once.

On a device with a queue (CUDA, emulated) time is blamed on the device's clock. What the device computed is
compute, whatever the host did meanwhile; of a step that paused for a synchronising call or a copy, the pause is not.
What is left is idle, and is blamed on what kept the next computation away: time outside steps (boundary), a copy, the
loader, the host's copying call, a synchronising call, other host work, in this order.
A loader wait behind queued work is *hidden*: it cost the device nothing.

Where the processor is the device nothing is queued, and host stamps say it all. A forward pass between the optimizer
and the next fetch cannot be told from the rest of that stretch: all of it counts as compute.

Unsampled steps (let pass, or without device stamps) are taken to spend their time as the others do, apart from first
fetches of epochs and time outside steps, which are always sampled. On a device with a queue they last from the end of
a stamped step until the device had done all that was queued before the next one (`device_before_ns`).

Waits for Python's global lock (GIL) are told by clocks alone: a step's time outside fetches, copying and synchronising
calls in which the training's thread did not run, without its waiting for a CPU, and at most what other Python threads
ran meanwhile, since somebody has to hold the lock. It is a lower bound where the thread used CPU in its fetches, and
too much where it slept while others computed. So nothing is said of steps in which others ran for much less, nor of
those where all of it fits into the time behind the loop and nobody held the lock most of the step.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from ...record.reader import Records, measured
from ...record.schema import NAN, NOT_MEASURED, EventKind, PauseKind, StepFlag
from ..intervals import EMPTY, Intervals, clip, complement, covered, intersect, subtract, total, union, union_of
from ..shares import NEARLY_ALL
from .window import Lengths, Mask, Stamps, Window, flagged, last_told, lasting, one_of, under_way

GAP_NS = 100_000
"""Idle stretch of the device that counts as a gap, at least: shorter ones are launch latency."""
TOLERANCE_NS = 100_000
"""Time from queueing a mark to the device's reaching it, from which it was at work meanwhile."""
CLOCKS_APART_NS = 1_000_000
"""Time by which the device's stamps may differ from its own word about being done: a clock reading and, now and
then, the scheduler lie between."""
LEAST_APART_S = 0.5
"""Seconds from a counter's first reading to its last, from which they tell its rise."""
EXPLAINED = 0.6
"""Time that other threads ran in a step over the time that the training's did not, from which they may be the reason;
and over the whole step, from which they are even where the thread may have slept."""

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
    """Idle time between two stretches of one step's computation; part of copy, sync and host."""
    fetch_ns: int
    """All time the training spent fetching, hidden or not."""
    first_fetch_ns: int
    """Exposed part of epochs' first fetches: worker start, pipeline fill, sampler."""
    fill_ns: int
    """Pipeline fill: part of `first_fetch_ns` beyond as many other fetches, without the sampler."""
    garbage_ns: int
    """Part of the host's exposed time spent collecting garbage."""
    unseen_ns: int
    """Time of unsampled steps: shared out among the parts as the other steps' time is."""
    gaps_ns: npt.NDArray[np.int64] = field(repr=False, compare=False)
    """Lengths of the device's idle stretches of `GAP_NS` or more in the steps, in order of time."""
    unresolved_steps: int
    """Steps whose device stamps are missing for no known reason."""
    unmarked_waits: int
    """Waits for the device with host stamps only: idling within a step counts as computing there."""
    when: dict[str, Intervals] = field(repr=False, compare=False)
    """Part → when the device did that, in the steps that were looked at; `input`: idled behind a fetch."""
    sampling: Intervals = field(default_factory=lambda: EMPTY, repr=False, compare=False)
    """Stretches of `input` in which a sampler worked, in the training's thread."""
    gil_ns: int = 0
    """Part of the host's time in which the training waited for Python's global lock."""

    def condensed(self) -> Partition:
        """It with sums and gaps, and nothing of when they were."""
        return replace(self, when=dict.fromkeys(PARTS, EMPTY), sampling=EMPTY)

    def of_all_steps(self, part: str, seen: float) -> float:
        """Scale some of a part's seen time to all steps."""
        whole = total(self.when[part])
        return seen * float(getattr(self, f"{part}_ns")) / whole if whole else 0.0

    def share(self, part: str) -> float:
        """A part as a share of wall time, 0..1."""
        return float(getattr(self, f"{part}_ns")) / self.wall_ns if self.wall_ns else 0.0

    @property
    def stepping_share(self) -> float:
        """Share of wall time from begin to end of the steps' computation, pauses and all."""
        return (self.compute_ns + self.paused_ns) / self.wall_ns if self.wall_ns else 0.0

    @property
    def hidden_wait_ns(self) -> int:
        """Time spent fetching that cost the device nothing, since it had work."""
        return max(0, self.fetch_ns - self.input_ns)


def partition(window: Window, events: Records, pauses: Records) -> Partition:
    """Blame the window's time."""
    steps, begin, end = window.steps, window.begin_ns, window.end_ns
    fetches = union_of(_spans(steps, "fetch_begin_ns", "fetch_end_ns"), _called(pauses, PauseKind.FETCH))
    fetches = clip(fetches, begin, end)
    first = steps[window.firsts]
    firsts = clip(_spans(first, "fetch_begin_ns", "fetch_end_ns"), begin, end)
    collecting = under_way(lasting(events, EventKind.GARBAGE))
    boundaries = under_way(lasting(events, EventKind.BOUNDARY))
    unseen, surely_computing, unresolved = unseen_of(window)
    # What is not needed any longer is let go of: these are the largest arrays of an analysis.
    if window.queued:
        stepping = clip(_spans(window.all_steps, "device_begin_ns", "device_end_ns"), begin, end)
        computing = subtract(stepping, _pausing(window.all_steps, pauses))
        paused = total(stepping) - total(computing)
        computing = union_of(computing, surely_computing)
    else:
        stepping = clip(_host_computing(window.all_steps), begin, end)
        computing = subtract(stepping, _called(pauses, PauseKind.FETCH))
        paused = total(stepping) - total(computing)
        # A processor that validates or collects garbage does not compute the step.
        computing = subtract(computing, union_of(collecting, boundaries))
    del stepping

    left = complement(computing, begin, end)
    outside, left = _take(left, union_of(boundaries, _between_steps(window)))
    unseen, left = _take(left, unseen)
    gaps_ns = left[:, 1] - left[:, 0]
    gaps_ns = gaps_ns[gaps_ns >= GAP_NS]
    copying = calling = syncing = EMPTY
    if window.queued:
        # When queued copies ran. Of a copy that the host waits for, the host's call says it all.
        pinned = window.all_steps[flagged(window.all_steps, StepFlag.PINNED)]
        further = _of(pauses, PauseKind.QUEUED_COPY, PauseKind.COPY_AHEAD)
        copies = _spans(pinned, "device_copy_begin_ns", "device_copy_end_ns")
        copying, left = _take(left, union_of(copies, _spans(further, "device_begin_ns", "device_end_ns")))
        del pinned, copies
    loading, left = _take(left, fetches)
    if window.queued:
        calls = _called(pauses, PauseKind.COPY, PauseKind.QUEUED_COPY, PauseKind.COPY_AHEAD)
        calling, left = _take(left, union_of(_spans(steps, "copy_begin_ns", "copy_end_ns"), calls))
        syncing, left = _take(left, _called(pauses, PauseKind.SYNC))

    first_fetch_ns = total(intersect(loading, firsts))
    sampling = intersect(loading, under_way(lasting(events, EventKind.SAMPLER)))
    when = {"compute": computing, "input": loading, "copy": union_of(copying, calling)}
    when |= {"sync": syncing, "host": left, "boundary": outside}
    seen = {part: total(spans) for part, spans in when.items()}
    ordinary = seen | {"boundary": 0, "input": seen["input"] - first_fetch_ns}
    shared_out = _share_out(total(unseen), ordinary)
    grow = 1 + total(unseen) / max(1, sum(ordinary.values()))
    # What first fetches of epochs cost beyond what as many others do.
    waiting = subtract(loading, sampling)
    first_ns, others = total(intersect(waiting, firsts)), len(steps) - len(first)
    usual = (total(waiting) - first_ns) / others if others else 0.0
    return Partition(
        wall_ns=end - begin,
        **{f"{name}_ns": seen[name] + shared_out[name] for name in PARTS},
        paused_ns=round(paused * grow),
        fetch_ns=total(firsts) + round((total(fetches) - total(firsts)) * grow),
        first_fetch_ns=first_fetch_ns,
        fill_ns=max(0, round(first_ns - len(first) * usual)),
        garbage_ns=round(total(intersect(left, collecting)) * grow),
        unseen_ns=total(unseen),
        gaps_ns=gaps_ns,
        unresolved_steps=unresolved,
        unmarked_waits=int(((pauses["what"] == PauseKind.SYNC) & (pauses["device_end_ns"] == NOT_MEASURED)).sum()),
        when=when,
        sampling=sampling,
    )


def _share_out(amount: int, parts: dict[str, int]) -> dict[str, int]:
    """Share out `amount` in the parts' proportions, to the ns; to the host if they are empty."""
    whole = sum(parts.values())
    if whole == 0:
        return dict.fromkeys(parts, 0) | {"host": amount}
    shares = {name: amount * part // whole for name, part in parts.items()}
    largest = max(parts, key=lambda name: parts[name])
    shares[largest] += amount - sum(shares.values())
    return shares


def _host_computing(steps: Records) -> Intervals:
    """From the begin to the end of the steps' computation, where the processor is the device."""
    # The forward pass is not told apart everywhere, the fetch is not seen everywhere.
    spans = union_of(_spans(steps, "forward_begin_ns", "step_end_ns"), _spans(steps, "fetch_end_ns", "step_end_ns"))
    # What a training does with a batch before it calls its model is the host's.
    seen = steps[flagged(steps, StepFlag.FORWARD_SEEN)]
    spans = subtract(spans, _spans(seen, "fetch_end_ns", "forward_begin_ns"))
    # What follows the optimizer is the host's, unless the next forward pass does; without an optimizer step the
    # computation lasts to the end.
    ends = steps[~flagged(steps, StepFlag.FORWARD_AFTER)]
    return subtract(spans, _spans(ends, "optimizer_end_ns", "step_end_ns"))


def _pausing(steps: Records, pauses: Records) -> Intervals:
    """When a device with a queue did not compute, though in the midst of a step."""
    by_step = "device_copy_begin_ns", "device_copy_end_ns"
    ahead = flagged(steps, StepFlag.COPIED_AHEAD)
    holding_up = pauses[~one_of(pauses["what"], (PauseKind.COPY_AHEAD, PauseKind.STREAM_WAIT))]
    held = union_of(_spans(steps[~ahead], *by_step), _spans(holding_up, "device_begin_ns", "device_end_ns"))
    # When the computing stream waited for another one, on which a copy ran: waits for what else streams do are part of
    # the computation.
    waits = _spans(_of(pauses, PauseKind.STREAM_WAIT), "device_begin_ns", "device_end_ns")
    further = _spans(_of(pauses, PauseKind.COPY_AHEAD), "device_begin_ns", "device_end_ns")
    return union_of(held, intersect(waits, union_of(_spans(steps[ahead], *by_step), further)))


def _between_steps(window: Window) -> Intervals:
    """Time of the host between the last step of an epoch and the first fetch of the next."""
    steps = window.all_steps
    begin, end = steps["fetch_begin_ns"], steps["step_end_ns"]
    let_pass = steps["skipped"][1:] > 0
    let_pass_end = np.where(steps["skipped_end_ns"] != NOT_MEASURED, steps["skipped_end_ns"], begin)[1:]
    inside = union(np.concatenate((begin, end[:-1][let_pass])), np.concatenate((end, let_pass_end[let_pass])))
    # After the last step nothing is known to be outside but what events say.
    outside = complement(inside, window.begin_ns, min(window.end_ns, int(end.max())))
    # The device may still work on what was queued there when the next step begins.
    before = steps["device_before_ns"][1:]
    dropped = flagged(steps, StepFlag.MARKS_DROPPED)[:-1]
    late = (before != NOT_MEASURED) & (np.diff(steps["step"]) == 1) & ~dropped
    last_seen = np.maximum(end, steps["device_end_ns"])[:-1]
    return union_of(outside, union(last_seen[late], before[late]))


def busy_strip(window: Window, computing: Intervals, bin_ns: int, bins: int) -> list[float]:
    """Share of each bin in which the device computed, in percent: the middle of the window.

    Finer than any utilisation counter: this is what it averages over.
    """
    bins = min(bins, window.wall_ns // bin_ns)
    begin = window.begin_ns + (window.wall_ns - bins * bin_ns) // 2
    edges = begin + bin_ns * np.arange(bins + 1, dtype=np.int64)
    return [100 * busy / bin_ns for busy in covered(computing, edges[:-1], edges[1:]).tolist()]


def _called(pauses: Records, *what: int) -> Intervals:
    """When the host was in calls of these kinds."""
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


def unseen_of(window: Window) -> tuple[Intervals, Intervals, int]:
    """(stretches nobody looked at, those of them in which the device surely computed, steps without stamps).

    The second: where steps got no marks because the device was many steps behind, it had work all the while.
    """
    steps = window.all_steps
    unresolved = 0
    if window.queued:
        end, before = steps["device_end_ns"], steps["device_before_ns"]
        dropped = flagged(steps, StepFlag.MARKS_DROPPED)
        # A step that computed nothing has nothing to stamp: of it all is known.
        told = (end != NOT_MEASURED) | flagged(steps, StepFlag.COMPUTED_NOTHING)
        unresolved = int((~told & ~dropped)[len(steps) - len(window.steps) :].sum())
        kept = np.flatnonzero(end != NOT_MEASURED)
        if len(kept) == 0:
            return EMPTY, EMPTY, unresolved
        begin = np.where(before != NOT_MEASURED, before, steps["device_begin_ns"])
    else:
        end, told, kept = steps["step_end_ns"], np.ones(len(steps), dtype=bool), np.arange(len(steps))
        begin = np.where(steps["skipped_end_ns"] != NOT_MEASURED, steps["skipped_end_ns"], steps["fetch_begin_ns"])
    last = int(kept[-1])
    if len(kept) == len(steps) and not steps["skipped"].any():
        after = clip(np.array([[end[last], window.end_ns]]), window.begin_ns, window.end_ns)
        return after if window.skipped_after else EMPTY, EMPTY, unresolved
    one, other = kept[:-1], kept[1:]
    missing, passed = _so_far(~told), _so_far(steps["skipped"])
    apart = (missing[other] > missing[one + 1]) | (passed[other + 1] > passed[one + 1])
    spans = [(end[one][apart], begin[other][apart])]
    if missing[kept[0]] > 0:
        spans.append((np.array([window.begin_ns]), begin[kept[:1]]))
    if missing[-1] > missing[last + 1] or window.skipped_after:
        spans.append((end[kept[-1:]], np.array([window.end_ns])))
    unseen = clip(union(*map(np.concatenate, zip(*spans, strict=True))), window.begin_ns, window.end_ns)
    if not window.queued:
        return unseen, EMPTY, unresolved
    # All steps between two were dropped because the device was far behind, and it still was when the later one began.
    marked = _so_far(~dropped)
    behind = (other - one > 1) & (marked[other] == marked[one + 1]) & (passed[other + 1] == passed[one + 1])
    behind &= before[other] - steps["fetch_begin_ns"][other] > TOLERANCE_NS
    computing = union(end[one][behind], begin[other][behind])
    if window.device_done_ns is not None and last < len(steps) - 1 and dropped[last + 1 :].all():
        computing = union_of(computing, np.array([[end[last], window.device_done_ns]]))
    return unseen, clip(computing, window.begin_ns, window.end_ns), unresolved


def _so_far(amounts: npt.NDArray[np.int64] | Mask) -> Stamps:
    """The sum of all before each of them, and of all."""
    return np.concatenate(([0], np.cumsum(amounts)))


def disagreeing(window: Window) -> int:
    """How many steps of the window contradict, by their device stamps, what the device itself said around the fetch.

    Drained means that the step before had ended; not drained, that it had not. Both are told without any clock, so
    they check the alignment of the device's clock to the host's.
    """
    # The step before the window's first tells of that one, too.
    steps = window.all_steps[-len(window.steps) - 1 :]
    follows = np.flatnonzero(np.diff(steps["step"]) == 1)
    ended, after = steps["device_end_ns"][follows], steps[follows + 1]
    usable = (ended != NOT_MEASURED) & flagged(after, StepFlag.DRAINED_KNOWN)
    ended, after = ended[usable], after[usable]
    wrong = np.zeros(len(after), dtype=bool)
    for flag, asked in ((StepFlag.DRAINED_AT_ENTRY, "fetch_begin_ns"), (StepFlag.DRAINED_AT_EXIT, "fetch_end_ns")):
        drained, late = flagged(after, flag), ended - after[asked]
        contradicts = (drained & (late > CLOCKS_APART_NS)) | (~drained & (late < -CLOCKS_APART_NS))
        wrong |= (after[asked] != NOT_MEASURED) & contradicts
    return int(wrong.sum())


def running_of(span: Lengths, cpu: Lengths, fetch_ns: Lengths | Stamps | None = None) -> float:
    """Share of its own time (see `own_time`) in which the training's thread ran, 0..1; the median over the steps. NaN
    where that was not measured.

    `fetch_ns`: time in which it may have used as much CPU for preparing batches.
    """
    known = ~np.isnan(cpu) & (span > 0)
    if not known.any():
        return NAN
    cpu = cpu if fetch_ns is None else np.maximum(0.0, cpu - fetch_ns)
    return float(np.median(np.minimum(1.0, cpu[known] / span[known])))


def own_time(
    window: Window, pauses: Records, events: Records, backward_elsewhere: bool = False
) -> tuple[Lengths, Lengths]:
    """Find (what is left of each step for the training thread's own work, its CPU time in the whole step), ns.

    Left out are fetches, copying and synchronising calls, time outside the steps, and what another thread does for it.
    The CPU time is NaN where it was not measured, or the time left is not known.

    Args:
        backward_elsewhere: backward passes run in a thread of autograd's, as they do on CUDA, and the one that called
            it waits off the CPU. Where one ended is not recorded: it is taken to last until the optimizer begins, or,
            of one that the optimizer calls itself, until that ends. Without either nothing is known of the step.
    """
    steps = window.steps
    outside = events[events["what"] == EventKind.BOUNDARY]
    calls = [
        (pauses["begin_ns"], pauses["end_ns"]),
        (steps["fetch_begin_ns"], steps["fetch_end_ns"]),
        (steps["copy_begin_ns"], steps["copy_end_ns"]),
        (outside["t_ns"], outside["end_ns"]),
    ]
    lost = np.False_
    if backward_elsewhere:
        backward, optimizer, over = (steps[f"{n}_ns"] for n in ("backward_begin", "optimizer_begin", "optimizer_end"))
        until = np.where(optimizer >= backward, optimizer, over)
        calls.append((backward, until))
        lost = (backward != NOT_MEASURED) & (until < backward)
    # One after another: together they are the largest arrays of an analysis.
    busy = EMPTY
    while calls:
        busy = union_of(busy, union(*calls.pop(0)))
    own = covered(busy, steps["fetch_begin_ns"], steps["step_end_ns"])
    del busy
    own = steps["step_end_ns"] - steps["fetch_begin_ns"] - own
    return own.astype(np.float64), np.where(lost, np.nan, measured(steps["cpu_ns"]))


def rises(times: Stamps, values: Stamps, window: Window) -> Lengths | None:
    """Tell how much a cumulative counter rose in each step, evenly between readings, and at the mean rate beyond them.

    `None` with fewer than two readings, or too near each other.
    """
    known = values != NOT_MEASURED
    times, values = times[known], values[known]
    order = np.argsort(times, kind="stable")
    # Relative to the first reading: a counter may be larger than a float holds to the unit.
    since = (times[order] - window.begin_ns).astype(np.float64)
    height = np.maximum.accumulate(values[order] - values[order[:1]]).astype(np.float64)
    if len(since) < 2 or since[-1] - since[0] < LEAST_APART_S * 1e9:
        return None
    rate = height[-1] / (since[-1] - since[0])
    first, last = min(0.0, since[0]), max(float(window.wall_ns), since[-1])
    since, height = (
        np.concatenate(([first], since, [last])),
        np.concatenate(([-rate * (since[0] - first)], height, [height[-1] + rate * (last - since[-1])])),
    )
    begin, end = (window.steps[name] - window.begin_ns for name in ("fetch_begin_ns", "step_end_ns"))
    return np.asarray(np.interp(end, since, height) - np.interp(begin, since, height))


@dataclass(frozen=True)
class Gil:
    """Waiting for Python's global lock, step by step."""

    others_busy: float
    """CPU time of the process's other Python threads, in CPUs: the mean over the steps."""
    off_cpu_share: float
    """Share of the thread's own time (see `own_time`) in which it did not run, 0..1."""
    queue_known: bool
    """Whether the thread's waiting for a CPU was measured, and is left out."""
    waited: Lengths = field(repr=False, compare=False)
    """Waiting for the lock in each step, ns, whether the device idled or not."""
    others: Lengths = field(repr=False, compare=False)
    """What other Python threads ran in each step, ns."""


def gil_of(window: Window, own: Lengths, cpu: Lengths, events: Records, host: Records) -> Gil | None:
    """`None` where other Python threads were not measured, or there were none."""
    told = events[events["what"] == EventKind.PYTHON_THREADS]
    others = rises(told["t_ns"], told["value"], window)
    span = float((window.steps["step_end_ns"] - window.steps["fetch_begin_ns"]).sum())
    if others is None or span <= 0 or np.isnan(cpu).all():
        return None
    queued = rises(host["t_ns"], host["main_thread_queue_ns"], window)
    # How long the thread did not run, at least: what it ran in fetches and calls is counted against it.
    off = np.nan_to_num(np.maximum(0.0, own - cpu))
    off = off if queued is None else np.maximum(0.0, off - queued)
    return Gil(
        others_busy=float(others.sum()) / span,
        off_cpu_share=float(off.sum()) / max(1.0, float(own.sum())),
        queue_known=queued is not None,
        waited=np.where(others >= EXPLAINED * off, np.minimum(off, others), 0.0),
        others=others,
    )


def _with_gil(parts: Partition, gil: Gil, window: Window) -> Partition:
    """Tell the waits for the lock apart.

    On a device with a queue they are part of what it idled behind the host. Where the processor is the device, what
    is more than the time behind the loop is taken from the computation: a training that waits does not compute.
    """
    begin, end = window.steps["fetch_begin_ns"], window.steps["step_end_ns"]
    behind = covered(parts.when["host"], begin, end).astype(np.float64)
    may_sleep = (behind >= NEARLY_ALL * gil.waited) & (gil.others < EXPLAINED * (end - begin))
    waited = np.where(may_sleep, 0.0, gil.waited)
    of_gap = round(parts.of_all_steps("host", float(np.minimum(behind, waited).sum())))
    if window.queued:
        return replace(parts, gil_ns=min(parts.host_ns, of_gap))
    computing = covered(parts.when["compute"], begin, end).astype(np.float64)
    of_computing = float(np.minimum(computing, np.maximum(0.0, waited - behind)).sum())
    moved = min(parts.compute_ns, round(parts.of_all_steps("compute", of_computing)))
    host_ns = parts.host_ns + moved
    return replace(parts, compute_ns=parts.compute_ns - moved, host_ns=host_ns, gil_ns=min(host_ns, moved + of_gap))


def divided_time(
    window: Window, events: Records, pauses: Records, host: Records, device_kind: str
) -> tuple[Partition, Gil | None, float]:
    """(the time divided; waits for the GIL; share of its own time in which the thread ran, 0..1, NaN: not measured)"""
    steps, parts = window.steps, partition(window, events, pauses)
    own, cpu = own_time(window, pauses, events, backward_elsewhere=device_kind == "cuda")
    gil = gil_of(window, own, cpu, events, host)
    making = None
    if not last_told(events, EventKind.LOADER_WORKERS):
        # The thread may have prepared the batches itself.
        making = np.where(steps["fetch_end_ns"] == NOT_MEASURED, 0, steps["fetch_end_ns"] - steps["fetch_begin_ns"])
    return parts if gil is None else _with_gil(parts, gil, window), gil, running_of(own, cpu, making)
