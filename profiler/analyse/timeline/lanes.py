"""Who made which batch, when, and which of them held up others that were finished."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ...record.reader import Records
from ..run.window import Window
from ..run.worker_records import first_later_end

Stamps = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Lanes:
    """The batches of the loaders that train, in the order they were begun. All arrays are as long as `batches`."""

    batches: Records
    """BATCH records, with the step that consumed each (`making.of_training`)."""
    blocked_begin_ns: Stamps
    blocked_end_ns: Stamps
    """Head of line: the training waited for this batch while a later one lay finished; equal where it never did."""

    @property
    def workers(self) -> list[int]:
        """Numbers of the makers, ascending."""
        return [int(worker) for worker in np.unique(self.batches["worker"])]


def lanes_of(batches: Records, window: Window) -> Lanes:
    """`batches`: as `making.of_training` gives them."""
    batches = batches[np.argsort(batches["begin_ns"], kind="stable")]
    begin, end = batches["end_ns"].copy(), batches["end_ns"].copy()
    steps = window.all_steps
    _, place, batch = np.intersect1d(steps["step"], batches["step"], return_indices=True)
    asked = steps["fetch_begin_ns"][place]
    later = first_later_end(batches)[batch]
    held = np.maximum(asked, later)
    finished = batches["end_ns"][batch]
    begin[batch] = np.minimum(held, finished)
    return Lanes(batches, begin, end)
