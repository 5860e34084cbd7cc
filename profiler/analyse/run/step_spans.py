"""Which stretch of time belongs to which step, to compare steps with each other."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ...record.schema import NOT_MEASURED
from ..intervals import Intervals, covered
from .window import Window

Stamps = npt.NDArray[np.int64]


def spans_of(window: Window, asynchronous: bool) -> tuple[Stamps, Stamps]:
    """Begin and end of each step of the window; empty where they are not known.

    On a device with a queue a step lasts from the end of the computation before it to the end of its own: with what the
    device idled before it could compute. Elsewhere from its fetch to the next.
    """
    steps = window.steps
    if not asynchronous:
        return steps["fetch_begin_ns"], steps["step_end_ns"]
    ends = window.all_steps["device_end_ns"]
    known = np.where(ends == NOT_MEASURED, window.begin_ns, ends)
    before = np.maximum.accumulate(np.concatenate(([window.begin_ns], known)))[-len(steps) - 1 : -1]
    end = steps["device_end_ns"]
    # Steps that were let pass lie before this one: only its own computation is known to be its.
    alone = (steps["skipped"] > 0) & (steps["device_begin_ns"] != NOT_MEASURED)
    begin = np.where(alone, steps["device_begin_ns"], before)
    return np.where(end == NOT_MEASURED, 0, begin), np.where(end == NOT_MEASURED, 0, end)


def per_step(window: Window, intervals: Intervals, asynchronous: bool) -> npt.NDArray[np.float64]:
    """How much of each step's span the set covers, ns."""
    return covered(intervals, *spans_of(window, asynchronous)).astype(np.float64)
