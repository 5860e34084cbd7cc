"""From files to one batch, with a stamp at every border: read, decode, transform, collate.

The stamps cost about 3 µs a sample (four clock reads, two of the thread's CPU clock, two `getrusage`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from resource import RUSAGE_THREAD, getrusage
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from .order import batches, count, randomness
from .protocol import Batch, Copier, Dataset, Image, Queue, Settings, Targets, Trace

Stack = Callable[[Sequence[Image]], torch.Tensor]
"""Joins inputs of one shape and type into one tensor with a leading batch dimension."""


class Meter:
    """What the calling thread spends from here on. Read it in the same thread."""

    def __init__(self) -> None:
        self._cpu_ns = time.thread_time_ns()
        self._faults = getrusage(RUSAGE_THREAD).ru_minflt

    def cpu_ns(self) -> int:
        return time.thread_time_ns() - self._cpu_ns

    def minor_faults(self) -> int:
        return getrusage(RUSAGE_THREAD).ru_minflt - self._faults


@dataclass(slots=True)
class Sample:
    """One prepared sample and what it cost, in ns of wall time unless said otherwise."""

    index: int
    image: Image
    targets: Targets
    begin_ns: int
    read_ns: int
    decode_ns: int
    transform_ns: int
    cpu_ns: int
    minor_faults: int
    read_bytes: int


def make_sample(dataset: Dataset, index: int, epoch: int, settings: Settings) -> Sample:
    """Reads, decodes and transforms one sample. Raises DataError naming what is missing or broken."""
    targets, random = dataset.targets(index), randomness(settings, epoch, index)
    meter, begin = Meter(), time.monotonic_ns()
    data = dataset.read(index)
    have_read = time.monotonic_ns()
    image = dataset.decode(data, index)
    decoded = time.monotonic_ns()
    for stage in dataset.stages:
        image, targets = stage(image, targets, random)
    return Sample(
        index=index,
        image=image,
        targets=targets,
        begin_ns=begin,
        read_ns=have_read - begin,
        decode_ns=decoded - have_read,
        transform_ns=time.monotonic_ns() - decoded,
        cpu_ns=meter.cpu_ns(),
        minor_faults=meter.minor_faults(),
        read_bytes=len(data),
    )


def stack(images: Sequence[Image]) -> torch.Tensor:
    """One fresh tensor, filled by this thread alone (`torch.stack` would spread over torch's thread pool)."""
    return torch.from_numpy(np.stack(images))


def pack(targets: Sequence[Targets]) -> npt.NDArray[Any]:
    """The targets of a batch: rows of objects one below the other, each with its position in the batch in front; of
    anything else a stack."""
    if targets[0].ndim < 2:
        return np.stack(targets)
    positions = np.repeat(np.arange(len(targets), dtype=np.float32), [len(rows) for rows in targets])
    return np.column_stack((positions, np.concatenate(targets))).astype(np.float32, copy=False)


def collate(samples: Sequence[Sample], worker: int, join: Stack = stack, threads: int = 1) -> Batch:
    """One batch out of prepared samples, in their order; its trace sums up theirs and adds the collating.

    `threads` prepared samples at a time, of this batch or of its neighbours.
    """
    meter, begin = Meter(), time.monotonic_ns()
    images = join([sample.image for sample in samples])
    targets = torch.from_numpy(pack([sample.targets for sample in samples]))
    trace = trace_of(samples, meter, begin, worker, threads)
    return Batch(images, targets, tuple(sample.index for sample in samples), trace)


def trace_of(samples: Sequence[Sample], meter: Meter, collating_ns: int, worker: int, threads: int = 1) -> Trace:
    """What a batch cost that is finished now: its samples, and what began at `collating_ns` and `meter`."""
    end = time.monotonic_ns()
    return Trace(
        worker=worker,
        begin_ns=min(sample.begin_ns for sample in samples),
        end_ns=end,
        read_ns=sum(sample.read_ns for sample in samples),
        decode_ns=sum(sample.decode_ns for sample in samples),
        transform_ns=sum(sample.transform_ns for sample in samples),
        collate_ns=end - collating_ns,
        cpu_ns=sum(sample.cpu_ns for sample in samples) + meter.cpu_ns(),
        minor_faults=sum(sample.minor_faults for sample in samples) + meter.minor_faults(),
        read_bytes=sum(sample.read_bytes for sample in samples),
        threads=threads,
    )


def make_batch(dataset: Dataset, indices: Sequence[int], epoch: int, settings: Settings, worker: int) -> Batch:
    """One batch made from start to end in the calling thread. Raises DataError naming a bad file."""
    return collate([make_sample(dataset, index, epoch, settings) for index in indices], worker)


class NaivePipeline:
    """The loader everybody writes first: each batch is made when asked for, in the training thread.

    No worker, no queue, no overlap: `DataLoader(num_workers=0)` without its bookkeeping.

    Ignores `workers`, `prefetch` and `pin_memory`.
    """

    name = "naive"
    queue: Queue | None = None

    def __init__(self, dataset: Dataset, settings: Settings, copier: Copier) -> None:
        self._dataset = dataset
        self._settings = settings

    def __len__(self) -> int:
        return count(len(self._dataset), self._settings)

    def epoch(self, number: int) -> Iterator[Batch]:
        for indices in batches(len(self._dataset), self._settings, number):
            yield make_batch(self._dataset, indices, number, self._settings, worker=0)

    def close(self) -> None:
        """Nothing runs between batches."""
