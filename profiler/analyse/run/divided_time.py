"""How one rank's time is divided, and what of that is known: all that a look at many ranks shows of each.

What the thread that trains did outside its fetches, and outside calls that copy or wait for the device.

Waiting for Python's global lock (GIL), from clocks alone. A thread that waits for the lock does not run, though
nothing it asked for is outstanding. So: of a step's time outside fetches, copying and synchronising calls, what the
training's thread did not run; without its waiting for a CPU; and at most what other Python threads ran meanwhile,
since somebody has to hold the lock. It is a lower bound where the thread used CPU in its fetches, and too much
where it slept while others computed. So nothing is said of steps in which others ran for much less than the thread
did not, nor of those where all of it fits into the time behind the loop and nobody held the lock most of the step:
there the loop sleeps.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from ...record.reader import Records
from ...record.schema import NOT_MEASURED, EventKind, PauseKind
from ..intervals import EMPTY, covered, union, union_of
from ..shares import MOSTLY, NEARLY_ALL
from .stall_breakdown import PARTS, UNTOLD, Partition, partition
from .window import Window, batch_size_of

LEAST_APART_S = 0.5
"""Seconds from a counter's first reading to its last, from which they say how it rose over the window."""

Lengths = npt.NDArray[np.float64]
_COPY = ("copy_begin_ns", "copy_end_ns")


@dataclass(frozen=True)
class OwnTime:
    """What the thread that trains did by itself in each step that was looked at, ns."""

    span: Lengths
    """From its fetch to the next, without fetches, copying and synchronising calls, what is outside the steps, and
    what another thread does for it."""
    cpu: Lengths
    """CPU time of the thread in the whole step; NaN where it was not measured, or the span is not known."""

    @property
    def off_cpu(self) -> Lengths:
        """How long the thread did not run, at least: what it ran in fetches and calls is counted against it."""
        return np.nan_to_num(np.maximum(0.0, self.span - self.cpu))

    def running(self, fetch_ns: Lengths | None = None) -> float | None:
        """Share of its own time in which it ran, 0..1; the median over the steps.

        Args:
            fetch_ns: time in which it may have used as much CPU for preparing batches.
        """
        known = ~np.isnan(self.cpu) & (self.span > 0)
        if not known.any():
            return None
        cpu = self.cpu if fetch_ns is None else np.maximum(0.0, self.cpu - fetch_ns)
        return float(np.median(np.minimum(1.0, cpu[known] / self.span[known])))


def own_time(window: Window, pauses: Records, events: Records, backward_elsewhere: bool = False) -> OwnTime:
    """What is left of each step for the thread's own work.

    Args:
        backward_elsewhere: backward passes run in a thread of autograd's, as they do on CUDA, and the one that called
            it waits off the CPU. Where one ended is not recorded: it is taken to last until the optimizer begins, or,
            of one that the optimizer calls itself, until that ends. Without either nothing is known of the step.
    """
    steps = window.steps
    calls = [(pauses["begin_ns"], pauses["end_ns"])]
    calls += [(steps[begin], steps[end]) for begin, end in (("fetch_begin_ns", "fetch_end_ns"), _COPY)]
    outside = events[events["what"] == EventKind.BOUNDARY]
    calls.append((outside["t_ns"], outside["end_ns"]))
    cpu = np.where(steps["cpu_ns"] == NOT_MEASURED, np.nan, steps["cpu_ns"].astype(np.float64))
    if backward_elsewhere:
        backward, optimizer, over = (steps[f"{n}_ns"] for n in ("backward_begin", "optimizer_begin", "optimizer_end"))
        until = np.where(optimizer >= backward, optimizer, over)
        calls.append((backward, until))
        cpu[(backward != NOT_MEASURED) & (until < backward)] = np.nan
    # One after another: together they are the largest arrays of an analysis.
    busy = EMPTY
    for begin, end in calls:
        busy = union_of(busy, union(begin, end))
    span = steps["step_end_ns"] - steps["fetch_begin_ns"]
    elsewhere = covered(busy, steps["fetch_begin_ns"], steps["step_end_ns"])
    return OwnTime((span - elsewhere).astype(np.float64), cpu)


def queued_ns(window: Window, host: Records) -> float | None:
    """Time that the training's thread waited for a CPU, in all steps; `None` where that was not measured."""
    in_steps = rises(host["t_ns"], host["main_thread_queue_ns"], window)
    return None if in_steps is None else float(in_steps.sum()) / window.looked_at


def rises(times: npt.NDArray[np.int64], values: npt.NDArray[np.int64], window: Window) -> Lengths | None:
    """How much a cumulative counter rose in each step, taken to rise evenly from one reading to the next.

    Before the first and after the last reading it is taken to rise as between those; `None` with fewer than two, or
    none worth it.
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


EXPLAINED = 0.6
"""Time that other threads ran in a step over the time that the training's did not, from which they may be the reason;
and over the whole step, from which they are even where the thread may have slept."""


@dataclass(frozen=True)
class Gil:
    """Waiting for Python's global lock, step by step."""

    others_busy: float
    """CPU that the other Python threads of the training's process used, in CPUs: the mean over the steps."""
    off_cpu_share: float
    """Share of the training's own time in which its thread did not run, 0..1. Own: see `training_thread.py`."""
    queue_known: bool
    """Whether the thread's waiting for a CPU was measured, and is left out."""
    waited: Lengths = field(repr=False, compare=False)
    """Waiting for the lock in each step, ns, whether the device idled or not."""
    others: Lengths = field(repr=False, compare=False)
    """What other Python threads ran in each step, ns."""


def gil_of(window: Window, own: OwnTime, events: Records, host: Records) -> Gil | None:
    """`None` where other Python threads were not measured, or there were none."""
    told = events[events["what"] == EventKind.PYTHON_THREADS]
    others = rises(told["t_ns"], told["value"], window)
    span = float((window.steps["step_end_ns"] - window.steps["fetch_begin_ns"]).sum())
    if others is None or span <= 0 or np.isnan(own.cpu).all():
        return None
    queued = rises(host["t_ns"], host["main_thread_queue_ns"], window)
    off = own.off_cpu if queued is None else np.maximum(0.0, own.off_cpu - queued)
    return Gil(
        others_busy=float(others.sum()) / span,
        off_cpu_share=float(off.sum()) / max(1.0, float(own.span.sum())),
        queue_known=queued is not None,
        waited=np.where(others >= EXPLAINED * off, np.minimum(off, others), 0.0),
        others=others,
    )


def with_gil(parts: Partition, gil: Gil | None, window: Window, asynchronous: bool) -> Partition:
    """The partition with the waits for the lock told apart.

    On a device with a queue they are part of what it idled behind the host. Where the processor is the device, what
    is more than the time behind the loop is taken from the computation: a training that waits does not compute.
    """
    if gil is None:
        return parts
    begin, end = window.steps["fetch_begin_ns"], window.steps["step_end_ns"]
    behind = covered(parts.hosting, begin, end).astype(np.float64)
    may_sleep = (behind >= NEARLY_ALL * gil.waited) & (gil.others < EXPLAINED * (end - begin))
    waited = np.where(may_sleep, 0.0, gil.waited)
    exposed = float(np.minimum(behind, waited).sum())
    if asynchronous:
        return replace(parts, gil_ns=min(parts.host_ns, round(parts.of_all_steps("host", exposed))))
    computing = covered(parts.computing, begin, end).astype(np.float64)
    of_computing = float(np.minimum(computing, np.maximum(0.0, waited - behind)).sum())
    moved = min(parts.compute_ns, round(parts.of_all_steps("compute", of_computing)))
    of_gap = round(parts.of_all_steps("host", exposed))
    host_ns = parts.host_ns + moved
    return replace(parts, compute_ns=parts.compute_ns - moved, host_ns=host_ns, gil_ns=min(host_ns, moved + of_gap))


@dataclass(frozen=True)
class DividedTime:
    """One rank's window, and where its time went."""

    window: Window
    parts: Partition
    device_kind: str
    batch_size: int | None
    samples: int
    unfed_share: float
    """Share of the steps whose fetch was not seen: what they waited for data counts as other time."""

    @property
    def samples_known(self) -> bool:
        """Whether the samples of most steps are known. Otherwise figures of samples are 0, and not to be shown."""
        return self.batch_size is not None

    @property
    def input_known(self) -> bool:
        """Whether the fetches of most steps were seen."""
        return self.unfed_share <= MOSTLY

    @property
    def told_apart(self) -> bool:
        """Whether computing is told from waiting for data: where no fetch is seen, by the copies of a device's queue
        only, which lead a step's computation."""
        return self.input_known or (
            self.device_kind != "cpu" and float(np.mean(self.window.steps["copy_bytes"] > 0)) > MOSTLY
        )

    @property
    def shares(self) -> dict[str, float]:
        """Parts of the wall time that are known, 0..1, and as `UNTOLD` what is not told apart."""
        shares = {part: self.parts.share(part) for part in PARTS}
        if self.told_apart:
            return {part: share for part, share in shares.items() if part != "input" or self.input_known}
        # Of the time outside the steps, validation without a loader is not seen either.
        known = {part: shares[part] for part in ("copy", "sync", "boundary") if part != "boundary" or shares[part] > 0}
        return known | {UNTOLD: 1 - sum(known.values())}

    @property
    def untold_share(self) -> float:
        """Of the wall time, 0..1: of which it is not known whether it is computing, waiting for data or evaluating."""
        return self.shares.get(UNTOLD, 0.0)

    @property
    def samples_per_s(self) -> float:
        return self.samples * 1e9 / self.parts.wall_ns


def divided_time(
    window: Window, events: Records, pauses: Records, host: Records, device_kind: str
) -> tuple[DividedTime, OwnTime, Gil | None]:
    """(the time divided, what the training's thread did by itself, what it waited for Python's global lock)"""
    queued = device_kind != "cpu"
    parts = partition(window, events, pauses, asynchronous=queued)
    own = own_time(window, pauses, events, backward_elsewhere=device_kind == "cuda")
    gil = gil_of(window, own, events, host)
    parts = with_gil(parts, gil, window, queued)
    unfed = float(np.mean(_unfed(window.steps, pauses)))
    return DividedTime(window, parts, device_kind, batch_size_of(window, events), window.samples, unfed), own, gil


def _unfed(steps: Records, pauses: Records) -> npt.NDArray[np.bool_]:
    """Which steps have neither a fetch at their begin nor one within."""
    within = np.isin(steps["step"], pauses["step"][pauses["what"] == PauseKind.FETCH])
    return np.asarray((steps["fetch_end_ns"] == NOT_MEASURED) & ~within)
