"""Waiting for Python's global lock (GIL), from clocks alone.

A thread that waits for the lock does not run, though nothing it asked for is outstanding. So: of a step's time outside
fetches, copying and synchronising calls, what the training's thread did not run; without its waiting for a CPU; and at
most what other Python threads ran meanwhile, since somebody has to hold the lock. It is a lower bound where the thread
used CPU in its fetches, and too much where it slept while others computed. So nothing is said of steps in which others
ran for much less than the thread did not, nor of those where all of it fits into the time behind the loop and nobody
held the lock most of the step: there the loop sleeps.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from ...record.reader import Records
from ...record.schema import EventKind
from ..intervals import covered
from ..shares import NEARLY_ALL
from .stall_breakdown import Partition
from .training_thread import Lengths, OwnTime, rises
from .window import Window

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
