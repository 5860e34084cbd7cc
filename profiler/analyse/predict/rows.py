"""What is replayed at once: one row for each setting and each draw of times."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Self

import numpy as np
import numpy.typing as npt

from .workload import Times

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class ByRow:
    """Arrays whose first axis is the row."""

    def at(self, chosen: slice | Ints) -> Self:
        """Of the chosen rows."""
        return type(self)(**{f.name: getattr(self, f.name)[chosen] for f in fields(self)})

    @classmethod
    def joined(cls, parts: Sequence[Self]) -> Self:
        """Of the rows of each, one after the other."""
        return cls(**{f.name: np.concatenate([getattr(part, f.name) for part in parts]) for f in fields(cls)})


@dataclass(frozen=True)
class ReplayRows(ByRow):
    """One value a row. Times in ns."""

    workers: Ints
    """At least 1: without workers nothing needs a replay, see `serial`."""
    outstanding: Ints
    """Batches ordered and not handed over, at most."""
    in_order: Flags
    threads: Times
    """Threads that work on a worker's batch together."""
    epoch: Ints
    """Batches in an epoch; 0: it never ends."""
    start: Times
    """Time from asking for an epoch's iterator until its batches are ordered."""
    making: Times
    """Factor by which preparing a batch takes longer than drawn."""
    step: Times
    """Factor by which the training's and the device's part of a step take longer than drawn."""
    handoff: Times
    """Time that the training spends to take over a batch that lies ready."""
    drawing: Times
    """Time that the training spends to draw a batch's indices, after it took one over and before it orders another."""
    sharing: Times
    """CPU time of a worker on a batch beyond what is drawn, the same for each batch."""
    latency: Times
    """Time from a batch's end in its worker until the training can take it."""
    delay: Times
    """What that takes longer while the worker makes its next batch."""
    cpus: Times
    """CPUs that workers and training share."""
    main_cpus: Times
    """CPUs that the training uses while it works on a step."""
    contention: Times
    """Share by which each further busy worker slows every other one, beyond the CPUs they share."""
    storage: Times
    """Readers at full speed at a time; infinite where nothing limits them."""
    synchronous: Flags
    draw: Ints
    """Which sequence of `DrawnTimes` its batches take their times from."""

    def __len__(self) -> int:
        return len(self.workers)


@dataclass(frozen=True)
class DrawnTimes:
    """Times of batches and steps in ns, [sequence, position]; fields as in `Workload`."""

    read: Times
    wait: Times
    cpu: Times
    host: Times
    device: Times | None
    """`None` where the processor is the device."""


@dataclass(frozen=True)
class Replayed(ByRow):
    """What came of each row. Times in ns; arrays of two axes are row x step."""

    ends: Times
    """When each step was done, from a cold start at 0; on the device where there is one."""
    stalls: Times
    """How long the device, or the training on the processor, waited for its data."""
    order: Ints
    """Batches as they were handed over."""
    lost_cpu: Times
    """Time in all steps that the training waited for workers with less than a CPU each, or lacked CPUs itself."""
    lost_storage: Times
    """Time in all steps that it waited for workers whose reads slowed each other."""
    lost_idle: Times
    """Time in all steps that it waited while workers had nothing to do: the queue was full of batches whose turn it was
    not yet."""
    lost_workers: Times
    """Time in all steps that it waited for workers at full speed."""
    lost_first: Times
    """Time that it waited for the first batches of epochs."""
