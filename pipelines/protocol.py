"""What every loader takes and gives: a dataset and settings in, an iterator of stamped batches out.

A loader never imports the profiler. It stamps its own work with `time.monotonic_ns()` so that whoever
consumes the batches can say where the time went, and it copies batches only through the `Copier` it was given.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
import torch

Image = npt.NDArray[Any]
"""What the net takes of one sample. A photograph is uint8 `[height, width, 3]` RGB until normalised, then float32
`[3, height, width]`; other data has any shape and type, the same for every sample once the stages are through."""

Targets = npt.NDArray[Any]
"""What the net is to say of one sample. The objects of a photograph: float32 `[objects, 5]` rows of (class, x_min,
y_min, x_max, y_max), corners as shares of width and height in 0..1; class 0 is background and never appears.
Otherwise anything without rows: a label `()`, labels of a sequence `[length]`."""


class Stage(Protocol):
    """One step of preparing a sample after decoding (see `stages.py`)."""

    def __call__(self, image: Image, targets: Targets, random: np.random.Generator) -> tuple[Image, Targets]: ...


class Dataset(Protocol):
    """Samples, wherever they lie, with their targets in memory. Worker processes get a copy by fork or pickle."""

    stages: Sequence[Stage]
    """What is done to each decoded sample, in order. The last stage leaves what the net takes."""

    def __len__(self) -> int: ...

    def read(self, index: int) -> bytes | memoryview:
        """A sample as it is stored. Raises DataError naming what cannot be read."""
        ...

    def decode(self, data: bytes | memoryview, index: int) -> Image:
        """What `read` gave, as an array that nobody writes to. Raises DataError naming what is broken."""
        ...

    def targets(self, index: int) -> Targets:
        """The targets of a sample as annotated, before any stage."""
        ...


@runtime_checkable
class PhotoFiles(Dataset, Protocol):
    """A dataset whose samples are JPEG files: what the loaders need that read or re-encode files themselves."""

    def read(self, index: int) -> bytes:
        """The whole file."""
        ...

    def path(self, index: int) -> Path:
        """The file of a sample."""
        ...


@runtime_checkable
class ArrayRows(Dataset, Protocol):
    """A dataset whose samples are rows of an array in memory: many can be had in one copy."""

    def gather(self, indices: Sequence[int]) -> tuple[Image, Targets]:
        """Samples as decoded, `[samples, …]`, and their targets, `[samples, …]`."""
        ...


@dataclass(frozen=True)
class Settings:
    """How a loader runs. A loader ignores what it does not have and says so in its docstring."""

    batch_size: int
    workers: int = 0
    """Worker processes, or threads for the threaded loaders."""
    prefetch: int = 2
    """Batches each worker may have ready ahead."""
    pin_memory: bool = False
    drop_last: bool = True
    shuffle: bool = True
    seed: int = 0
    """Order and augmentation are functions of (seed, epoch, index), the same in every loader that can."""
    rank: int = 0
    """Which of `ranks` processes that train together this one is; each takes its share of every epoch."""
    ranks: int = 1


@dataclass(frozen=True)
class Trace:
    """Where making one batch spent its time. Stamps are CLOCK_MONOTONIC ns, durations ns; `None` = not measured.

    For loaders that make the samples of a batch in several threads, durations are summed over threads.
    """

    worker: int
    """Which worker made it, from 0; 0 for single-threaded loaders."""
    begin_ns: int
    """When work on the batch began."""
    end_ns: int
    """When the batch was complete in the worker, before any hand-over."""
    read_ns: int | None = None
    """Waiting in file reads."""
    decode_ns: int | None = None
    transform_ns: int | None = None
    collate_ns: int | None = None
    cpu_ns: int | None = None
    """CPU time of the making thread(s)."""
    minor_faults: int | None = None
    """Page faults without I/O while making it (a cost of fresh buffers)."""
    read_bytes: int | None = None
    threads: int = 1
    """Threads that work on batches in this worker at a time."""


@dataclass
class Batch:
    """A batch as a training loop sees it."""

    inputs: torch.Tensor
    """`[samples, …]`, as the last stage left them; of photographs float32 `[samples, 3, size, size]`."""
    targets: torch.Tensor
    """`[samples, …]`; objects are float32 `[objects, 6]` rows of (position in batch, class, x_min, y_min, x_max,
    y_max)."""
    indices: tuple[int, ...]
    """Which samples of the dataset these are."""
    trace: Trace | None = None
    on_device: Callable[[torch.Tensor], torch.Tensor] | None = None
    """What makes of `inputs` what the last stage leaves; `None` where that is done. Called where the batch is delivered
    on the device, in the order of its computation."""
    copy: Any = None
    """Set by the `Copier` once the batch is on its way to the device; opaque to loaders."""

    @property
    def samples(self) -> int:
        return len(self.indices)

    @property
    def nbytes(self) -> int:
        return self.inputs.nbytes + self.targets.nbytes


class Copier(Protocol):
    """Moves batches to the device. Handed to a loader by whoever owns the device."""

    own_memory: bool
    """Whether the device has memory of its own: then fewer bytes on the way to it and arithmetic done there pay."""

    def pin(self, batch: Batch) -> Batch:
        """The batch in page-locked memory (really copied; call it off the training thread)."""
        ...

    def start(self, batch: Batch) -> Batch:
        """Start a copy on a side stream and return at once where the memory is pinned; sets `batch.copy`."""
        ...


@dataclass
class Queue:
    """How many finished batches wait for the training, for the live view and the diagnosis."""

    capacity: int
    ready: Callable[[], int] = field(default=lambda: 0)


class Pipeline(Protocol):
    """A loader. Made once per training, iterated once per epoch, closed at the end (also after an error)."""

    name: str
    queue: Queue | None
    """`None` for a loader that makes samples only when asked, or cannot tell how many are finished."""

    def __len__(self) -> int:
        """Batches per epoch."""
        ...

    def epoch(self, number: int) -> Iterator[Batch]:
        """The batches of epoch `number` (from 0), in order."""
        ...

    def close(self) -> None:
        """Stop workers and threads; safe to call twice."""
        ...


PipelineFactory = Callable[[Dataset, Settings, Copier], Pipeline]
