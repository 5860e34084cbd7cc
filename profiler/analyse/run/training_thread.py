"""What the thread that trains did outside its fetches, and outside calls that copy or wait for the device."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ...record.reader import Records
from ...record.schema import NOT_MEASURED, EventKind
from ..intervals import EMPTY, covered, union, union_of
from .window import Window

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
            fetch_ns: time in which it may have used as much CPU for making batches.
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
