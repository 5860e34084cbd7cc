"""What making each recorded batch took, without the waiting that other settings would not have."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...record.reader import Records, measured
from .workload import Times

MOST_SCALED = 3.0
"""Factor by which batches that were not recorded are taken to differ from those that were, at most: more is an error of
the record."""


@dataclass(frozen=True)
class Making:
    """What making each recorded batch took, ns; fields as in `Workload`."""

    cpu_ns: Times
    wait_ns: Times
    read_ns: Times
    collate_ns: Times
    slowest_ns: Times
    threads: int
    """Threads that work on batches together."""


def making_of(batches: Records, crowded: bool = False) -> Making:
    """What making each batch took, waiting for a CPU left out: how long that is depends on the setting.

    Args:
        crowded: other programs use the machine's CPUs, so that waiting of a kind that is not known is for those.

    A CPU second is taken as it was counted, although CPUs that share a core, a cache or a clock slow each other.
    """
    order = np.argsort(batches["begin_ns"], kind="stable")
    batches = batches[order]
    threads = int(max(1, batches["threads"].max()))
    wall = (batches["end_ns"] - batches["begin_ns"]).astype(np.float64)
    stages = {name: measured(batches[f"{name}_ns"]) for name in ("read", "decode", "transform", "collate")}
    told_apart = ~np.isnan(stages["decode"])
    if threads > 1:
        # Its threads let samples wait in between: only stages are work.
        wall = np.nansum(np.stack(list(stages.values())), axis=0)
    read = np.nan_to_num(stages["read"])
    queued = measured(batches["run_queue_ns"])
    thread_cpu, process_cpu = measured(batches["cpu_ns"]), measured(batches["process_cpu_ns"])
    # Other threads of the process compute while this one waits for them.
    cpu = np.fmax(thread_cpu, process_cpu)
    cpu = np.where(np.isnan(cpu), np.maximum(0, wall - read), cpu)
    running = np.maximum(0.0, wall - np.nan_to_num(queued))
    read = np.minimum(read, running)
    cpu = np.minimum(cpu, running - read)
    # Where waiting for a CPU was not counted, decoding and transforming are known to wait for nothing else.
    wait = np.where(np.isnan(queued) & (told_apart | crowded), 0.0, running - read - cpu)
    made = cpu + wait + read
    slowest = measured(batches["slowest_ns"])
    slowest = np.minimum(slowest, made)
    collate = np.minimum(np.nan_to_num(stages["collate"]), cpu)
    scale = _of_all(batches, wall) if threads == 1 else 1.0
    return Making(cpu * scale, wait * scale, read * scale, collate * scale, slowest * scale, threads)


def _of_all(batches: Records, wall: Times) -> float:
    """The mean of all batches over that of the recorded ones: looking at a batch makes it longer, and which are left
    out is not drawn by lot."""
    skipped = np.maximum(0, batches["skipped"])
    left_out = float(np.maximum(0, batches["skipped_ns"])[skipped > 0].sum())
    number = int(skipped.sum())
    if not number or not wall.sum():
        return 1.0
    scale = (left_out + float(wall.sum())) / (number + len(wall)) / float(wall.mean())
    return min(max(scale, 1 / MOST_SCALED), MOST_SCALED)
