"""What the replay is fed with: what making batches and training on them cost, apart from any setting."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from ...record.tuning import LoaderSettings

Times = npt.NDArray[np.float64]
"""ns, one for each recorded batch or step."""


@dataclass(frozen=True)
class MachineLimits:
    """What settings must not exceed. `None`: not known."""

    cpus: float
    """That the job may use, affinity and quota counted."""
    memory_bytes: int | None = None
    """That could still be given when the recording had its workers."""
    shm_bytes: int | None = None
    """Free in /dev/shm then."""
    worker_bytes: int | None = None
    """Memory that a worker takes of its own."""
    storage_parallel: float | None = None
    """Readers at full speed at a time, beyond which reads slow each other; `None`: no limit seen."""


@dataclass(frozen=True)
class Workload:
    """Times in ns. Arrays hold one value a recorded batch, or step, in the order of recording."""

    settings: LoaderSettings
    """With which it was recorded."""
    batch_size: int
    """Samples in a batch, as recorded."""
    cpu_ns: Times
    """CPU part of making each batch."""
    wait_ns: Times
    """The rest of making it, in which it waited for neither CPU nor reads: sleeps, locks, network."""
    read_ns: Times
    """Waiting in reads of files."""
    collate_ns: Times
    """The part of `cpu_ns` that is putting samples together."""
    slowest_ns: Times
    """The slowest sample of each batch, of its making; NaN where that is not known."""
    host_ns: Times
    """What the training does of itself from one fetch's end to the next fetch's begin, waiting for the device left out;
    on the processor all of its step."""
    device_ns: Times | None = None
    """Work of each step on a device with a queue, its copy included; `None` where the processor is the device."""
    synchronous: bool = True
    """Whether the training waits for the device in each step, or nearly so."""
    handoff_ns: float = 0.0
    """What the training spends in a fetch whose batch lies ready."""
    handoff_known: bool = True
    """Whether that was measured; not so where no worker made batches."""
    latency_ns: float = 0.0
    """From a batch's end in its worker until the training could take it."""
    sharing_ns: float = 0.0
    """CPU time that a worker process needs for a batch beyond `cpu_ns`, which is what the training process would need:
    memory that both see, pickling."""
    main_cpus: float = 1.0
    """CPUs that the training process uses while it works on a step."""
    start_ns: float = 0.0
    """From asking for an iterator until the first worker takes up a batch."""
    start_per_worker_ns: float = 0.0
    """What each further worker adds to it: they are started one after the other."""
    batches_per_epoch: int | None = None
    """At `batch_size`; `None` where that is not known."""
    batch_bytes: int | None = None
    limits: MachineLimits = field(default_factory=lambda: MachineLimits(1.0))
    threads_per_worker: int = 1
    """Of a pool whose threads work on batches together."""
    contention: float = 0.0
    """By how much each further busy worker slows every other one down, beyond the CPUs they share."""
    scale: float = 1.0
    """Times by which making a batch is longer than recorded: fitted to trials."""

    @property
    def making_ns(self) -> Times:
        """What making each batch takes where nothing else wants the CPU."""
        return self.cpu_ns + self.wait_ns + self.read_ns


@dataclass(frozen=True)
class Prediction:
    """Of one setting."""

    settings: LoaderSettings
    samples_per_s: float
    """With the beginnings of epochs counted, where the length of an epoch is known."""
    low: float
    high: float
    """90 % interval."""
    stall_share: float
    """Of the wall time, in which the device (or the processor's training) waits for data, 0..1."""
    binding: str
    """What binds it: see `Binding`."""
    infeasible: str | None = None
    """Why it cannot run here: what it would need, and what there is."""


class Binding:
    TRAINING = "training"
    """The training itself: no loader would make it faster."""
    WORKERS = "workers"
    """Too few hands; CPU is left over."""
    CPU = "cpu"
    """The CPUs, or their contention."""
    STORAGE = "storage"
    """Reads slow each other."""
    ORDER = "order"
    """Slow batches hold back finished ones, or the queue is too short for them."""
    HANDOFF = "handoff"
    """Taking batches over in the training process."""
    START = "start"
    """Beginnings of epochs."""
    SERIAL = "serial"
    """Batches are made in the training process."""
