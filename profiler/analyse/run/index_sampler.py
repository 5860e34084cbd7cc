"""What a DataLoader's sampler took of the time in which the training waited for data.

It draws the indices of batches in the training's own thread, within the fetches, whatever the number of workers: the
first ones of an epoch when that begins, those of a later batch whenever one is handed over.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...record.reader import Records
from ...record.schema import NOT_MEASURED, EventKind, StepFlag
from ..intervals import covered, intersect, total, union
from ..shares import MOSTLY
from .events import lasting
from .stall_breakdown import Partition
from .window import Window


@dataclass(frozen=True)
class Sampling:
    """A sampler's work in the window. What took it less than 0.1 ms is not told, and not in it."""

    ns: int
    """Part of the exposed wait for data; in steps that nobody looked at as large a one as in the others."""
    first_ns: int
    """Part of it in the first fetches of epochs."""
    draw_ms: float | None
    """What it took for a batch after the first one of its epoch, exposed or not; the median. `None` where none was
    told."""
    drawn: float | None
    """Indices drawn at a time; the median. `None` where they were no lists."""
    iterators: int
    """Times that making its iterator was told."""
    each_ns: float = 0.0
    """What it took for a batch after the first one of its epoch, exposed or not; the mean of all of them."""

    def of_epochs(self, ns: float) -> bool:
        """Whether so much of it is mostly where epochs begin."""
        return self.first_ns >= MOSTLY * ns


def sampling_of(window: Window, events: Records, parts: Partition) -> Sampling | None:
    """`None` where no sampler's work was told."""
    told = lasting(events, EventKind.SAMPLER)
    told = told[(told["end_ns"] > window.begin_ns) & (told["t_ns"] < window.end_ns)]
    if len(told) == 0:
        return None
    first = window.steps[(window.steps["flags"] & StepFlag.FIRST_OF_EPOCH) != 0]
    # The fetch of a step without one is empty.
    firsts = union(first["fetch_begin_ns"], first["fetch_end_ns"])
    first_ns = total(intersect(parts.sampling, firsts))
    # First fetches are always seen.
    others_ns = total(parts.loading) - parts.first_fetch_ns
    grown = (parts.input_ns - parts.first_fetch_ns) / others_ns if others_ns > 0 else 1.0
    drew = told[told["value"] != 0]
    later = drew[covered(firsts, drew["t_ns"], drew["end_ns"]) == 0]
    took_ns = later["end_ns"] - later["t_ns"]
    counted = drew["value"][drew["value"] != NOT_MEASURED]
    return Sampling(
        ns=first_ns + round((total(parts.sampling) - first_ns) * grown),
        first_ns=first_ns,
        draw_ms=float(np.median(took_ns)) / 1e6 if len(later) else None,
        drawn=float(np.median(counted)) if len(counted) else None,
        iterators=int((told["value"] == 0).sum()),
        each_ns=float(took_ns.sum()) / max(1, len(window.steps) - len(first)),
    )
