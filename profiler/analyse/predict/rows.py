"""What is replayed at once: one row for each setting and each draw of times."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from .workload import Times

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class ReplayRows:
    """One value a row. Times in ns."""

    workers: Ints
    """At least 1: without workers nothing needs a replay, see `serial`."""
    outstanding: Ints
    """Batches ordered and not handed over, at most."""
    in_order: Flags
    threads: Times
    """That work on a worker's batch together."""
    epoch: Ints
    """Batches in it; 0: it never ends."""
    start: Times
    """From asking for an epoch's iterator until its batches are ordered."""
    making: Times
    """Times by which making a batch is longer than drawn."""
    step: Times
    """Times by which the training's and the device's part of a step is."""
    handoff: Times
    sharing: Times
    """CPU time of a worker on a batch, whatever batch it is."""
    latency: Times
    cpus: Times
    main_cpus: Times
    contention: Times
    storage: Times
    """Readers at full speed at a time; infinite where nothing limits them."""
    synchronous: Flags
    draw: Ints
    """Which sequence of `DrawnTimes` its batches take their times from."""

    def __len__(self) -> int:
        return len(self.workers)

    def at(self, chosen: npt.NDArray[Any]) -> Self:
        """Those rows."""
        return type(self)(**{f.name: getattr(self, f.name)[chosen] for f in fields(self)})


@dataclass(frozen=True)
class DrawnTimes:
    """Times of batches and steps: sequence x position."""

    read: Times
    wait: Times
    cpu: Times
    host: Times
    device: Times | None


@dataclass(frozen=True)
class Replayed:
    """What came of each row. Times in ns; arrays of two axes are row x step."""

    ends: Times
    """When each step was done, from a cold start at 0; on the device where there is one."""
    stalls: Times
    """How long the device, or the training on the processor, waited for its data."""
    order: Ints
    """Batches as they were handed over."""
    lost_cpu: Times
    """In all steps: waiting for workers that had less than a CPU each, and the training's own want of it."""
    lost_storage: Times
    """Waiting for workers whose reads slowed each other."""
    lost_idle: Times
    """Waiting while workers had nothing to do: the queue was full of batches whose turn it was not yet."""
    lost_workers: Times
    """Waiting for workers at full speed."""
    lost_first: Times
    """Waiting for the first batch of an epoch."""
