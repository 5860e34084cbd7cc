"""Rates, stalls and what binds, from replayed steps."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from .rows import Ints, Replayed, ReplayRows
from .workload import Binding, Times

LEAST_LOST = 0.05
"""Share of the wall time that has to be lost to the loader before anything of it is called the limit."""
CPUS_CONTENDED = 0.2
"""Of the time lost while workers are busy, the share lost because they have less than a CPU each, from which the CPUs
bind and not the number of workers."""


def ns_per_batch(ends: Times, outstanding: Ints, workers: Ints, epoch: Ints) -> Times:
    """Time that a batch takes in each row. Where epochs are longer than what was replayed, the beginning of one and the
    steady rest are put together by the length of an epoch; 0: it never ends, and only the rest counts."""
    steps = ends.shape[1]
    row = np.arange(len(ends))
    settled = np.clip(outstanding, min(32, steps // 4), steps // 2)
    # Workers that make batches equally fast hand them over in bursts of one each: whole bursts.
    settled = np.minimum(settled + (steps - settled) % np.maximum(workers, 1), steps - 1)
    steady = (ends[:, -1] - ends[row, settled - 1]) / (steps - settled)
    whole = np.where(epoch > 0, steps // np.maximum(epoch, 1) * epoch, 0)
    within = ends[row, np.maximum(whole, 1) - 1] / np.maximum(whole, 1)
    beyond = (ends[:, -1] + (epoch - steps) * steady) / np.maximum(epoch, 1)
    taken: Times = np.where(epoch == 0, steady, np.where(whole > 0, within, beyond))
    return taken


def binding(rows: ReplayRows, replayed: Replayed) -> list[str]:
    """What limits each row, as `Binding` has it: what most of the time beyond the training's own was lost to; while it
    waits, by what the workers are at."""
    steps = replayed.ends.shape[1]
    begins = np.where(rows.epoch > 0, np.minimum(1.0, steps / np.maximum(rows.epoch, 1)), 0.0)
    loading = Binding.CPU, Binding.STORAGE, Binding.ORDER, Binding.WORKERS, Binding.START
    names = (*loading, Binding.HANDOFF, Binding.SAMPLER)
    # Workers that slow each other leave no CPU to further ones.
    full = replayed.lost_cpu > CPUS_CONTENDED * (replayed.lost_cpu + replayed.lost_workers)
    lost: npt.NDArray[np.float64] = np.stack(
        [
            replayed.lost_cpu + full * replayed.lost_workers,
            replayed.lost_storage,
            replayed.lost_idle,
            ~full * replayed.lost_workers,
            replayed.lost_first * begins,
            steps * rows.handoff,
            steps * rows.drawing,
        ]
    )
    stalled = replayed.stalls.sum(axis=1) - replayed.lost_first * (1 - begins)
    least = LEAST_LOST * replayed.ends[:, -1]
    waits = stalled > least
    slowed = replayed.lost_cpu > least
    most = lost.argmax(axis=0)
    return [
        names[m] if w else Binding.CPU if s else Binding.TRAINING for m, w, s in zip(most, waits, slowed, strict=True)
    ]
