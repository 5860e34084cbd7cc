"""Waiting for Python's global lock (GIL), from clocks alone.

A thread that waits for the lock does not run, though nothing it asked for is outstanding. So: of a step's time outside
fetches, copying and synchronising calls, what the training's thread did not run; without its waiting for a CPU; and at
most what other Python threads ran meanwhile, since somebody has to hold the lock. It is a lower bound where the thread
used CPU in its fetches, and too much where it slept while others computed.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from ..record.reader import Records
from ..record.schema import EventKind
from .intervals import covered
from .partition import Partition
from .training_thread import Lengths, OwnTime, rises
from .window import Window


@dataclass(frozen=True)
class Gil:
    others_busy: float
    """CPU that the other Python threads of the training's process used, in CPUs: the mean over the steps."""
    off_cpu_share: float
    """Share of the training's own time in which its thread did not run, 0..1. Own: see `training_thread.py`."""
    queue_known: bool
    """Whether its waiting for a CPU is left out."""
    waited: Lengths = field(repr=False, compare=False)
    """Waiting for the lock in each step, ns, whether the device idled or not."""


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
        waited=np.minimum(off, others),
    )


def with_gil(parts: Partition, gil: Gil | None, window: Window, asynchronous: bool) -> Partition:
    """The partition with the waits for the lock told apart.

    On a device with a queue they are part of what it idled behind the host. Where the processor is the device, those
    in the midst of the computation are taken from it: a training that waits does not compute.
    """
    if gil is None:
        return parts
    begin, end = window.steps["fetch_begin_ns"], window.steps["step_end_ns"]
    behind = covered(parts.hosting, begin, end).astype(np.float64)
    if asynchronous:
        exposed = float(np.minimum(behind, gil.waited).sum())
        return replace(parts, gil_ns=min(parts.host_ns, round(parts.of_all_steps("host", exposed))))
    computing = covered(parts.computing, begin, end).astype(np.float64)
    own = behind + computing
    waited = np.minimum(own, gil.waited)
    of_computing = np.divide(waited * computing, own, out=np.zeros(len(own)), where=own > 0)
    moved = min(parts.compute_ns, round(parts.of_all_steps("compute", float(of_computing.sum()))))
    others = round(parts.of_all_steps("host", float((waited - of_computing).sum())))
    host_ns = parts.host_ns + moved
    return replace(parts, compute_ns=parts.compute_ns - moved, host_ns=host_ns, gil_ns=min(host_ns, moved + others))
