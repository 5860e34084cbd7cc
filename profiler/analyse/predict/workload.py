"""What the replay is fed with: what preparing batches and training on them cost, apart from any
setting."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ...record.tuning import LoaderSettings

Times = npt.NDArray[np.float64]
"""ns, one for each recorded batch or step."""


@dataclass(frozen=True)
class Workload:
    """What a recorded training costs, apart from its settings. Times in ns; arrays hold one value a
    recorded batch, or step, in the order of recording."""

    settings: LoaderSettings
    """The settings with which it was recorded."""
    batch_size: int
    """Samples in a batch, as recorded."""
    cpu_ns: Times
    """CPU part of making each batch."""
    wait_ns: Times
    """Part of making each batch that waited for neither CPU nor reads: sleeps, locks, network."""
    read_ns: Times
    """Part of making each batch that waited in reads of files."""
    host_ns: Times
    """What the training does of itself from one fetch's end to the next fetch's begin, waiting for
    the device left out; on the processor all of its step."""
    device_ns: Times | None = None
    """Work of each step on a device with a queue, its copy included; `None` where the processor is
    the device."""
    synchronous: bool = True
    """Whether the training waits for the device in each step, or nearly so."""
    handoff_ns: float = 0.0
    """What the training spends in a fetch whose batch lies ready."""
    handoff_known: bool = True
    """Whether `handoff_ns` was measured; not so where no worker prepared batches."""
    latency_ns: float = 0.0
    """From a batch's end in its worker until the training could take it."""
    drawing_ns: float = 0.0
    """What the sampler takes for the indices of a batch, in the training process, before the batch
    can be ordered."""
    delay_ns: float = 0.0
    """What that takes longer while the worker makes its next batch: the thread that sends waits for
    the worker's interpreter, or for a CPU."""
    sharing_ns: float = 0.0
    """CPU time that a worker process needs for a batch beyond `cpu_ns`, which is what the training
    process would need: memory that both see, pickling."""
    main_cpus: float = 1.0
    """CPUs that the training process uses while it works on a step."""
    start_ns: float = 0.0
    """From asking for an iterator until the first worker takes up a batch, for each of the loader's
    processes, the training's own one of them: workers are started one after the other, and before
    any gets work."""
    batches_per_epoch: int | None = None
    """Batches of `batch_size` in an epoch; `None` where that is not known."""
    batch_bytes: int | None = None
    """Bytes of a finished batch; `None` where that is not known."""
    contention: float = 0.0
    """Share by which each further busy worker slows every other one down, beyond the CPUs they
    share."""
    cpus: float = 1.0
    """CPUs that the job may use, affinity and quota counted."""
    storage_parallel: float | None = None
    """Readers at full speed at a time, beyond which reads slow each other; `None`: no limit
    seen."""
    memory_bytes: int | None = None
    """Memory that was still to be had beside the recorded workers; `None`: not known, as of the
    next two."""
    shm_bytes: int | None = None
    """Bytes of /dev/shm that were free beside the recorded workers."""
    worker_bytes: int | None = None
    """Memory that a worker takes of its own."""

    @property
    def making_ns(self) -> Times:
        """What making each batch takes where nothing else wants the CPU."""
        return self.cpu_ns + self.wait_ns + self.read_ns


@dataclass(frozen=True)
class Prediction:
    """What the replay says of one setting."""

    settings: LoaderSettings
    samples_per_s: float
    """The beginnings of epochs are counted where the length of an epoch is known."""
    low: float
    """Lower end of the 90 % interval of `samples_per_s`."""
    high: float
    """Upper end of that interval."""
    stall_share: float
    """Share of the wall time, 0..1, in which the device (or the training on the processor) waits
    for data."""
    binding: str
    """What binds it: see `Binding`."""
    infeasible: str | None = None
    """Why it cannot run here: what it would need, and what there is."""


class Binding:
    """What limits a training's rate; `BINDS` has each in words."""

    TRAINING = "training"
    WORKERS = "workers"
    CPU = "cpu"
    STORAGE = "storage"
    ORDER = "order"
    HANDOFF = "handoff"
    SAMPLER = "sampler"
    START = "start"
    SERIAL = "serial"


BINDS = {
    Binding.TRAINING: "the training itself",
    Binding.WORKERS: "still the workers",
    Binding.CPU: "the CPUs",
    Binding.STORAGE: "storage",
    Binding.ORDER: "slow batches that hold back finished ones",
    Binding.HANDOFF: "the hand-over of batches",
    Binding.SAMPLER: "drawing indices in the training process",
    Binding.START: "the beginnings of epochs",
    Binding.SERIAL: "preparing batches in the training process",
}
