"""Datasets that make samples as a plan says, and what their workers do when they start."""

from __future__ import annotations

import hashlib
import math
import multiprocessing
import os
import random
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset, IterableDataset, get_worker_info

from .case import Data, Loader, Plan, PlannedReads, PlannedSampler

_NATIVE = bytes(32 * 1024)
"""Hashing this takes some tens of microseconds, in which the interpreter's lock is free."""
_BUSY = 32 * 1024 * 1024
"""Bytes that a busy thread hashes at a time: some tens of milliseconds without the interpreter's lock."""


class Samples(Dataset[Any]):
    """Samples that cost what the plan says."""

    def __init__(self, plan: Plan, seed: int, folder: Path) -> None:
        self.data, self.batch = plan.data, plan.loader.batch
        self._is_slow = plan.is_slow
        self._grown = plan.grown
        self._count = (plan.batches + plan.start.skip) * plan.loader.batch
        self._factors = _factors(plan.data, self._count, seed)
        reading = plan.data.reading
        self._reads_once = reading is not None and reading.once
        remembers = bool(plan.data.cold_ms) or self._reads_once
        self._seen = torch.zeros(self._count if remembers else 0, dtype=torch.uint8).share_memory_()  # type: ignore[no-untyped-call]
        self._shared = ServesOne(plan.data.shared) if plan.data.shared else None
        self._kept: list[bytes] = []
        self._files = Files(reading, folder, seed) if reading is not None else None
        self._widths = _widths(plan, seed)
        self._lengths = _lengths(plan.data, self._count, seed)
        self._sample = torch.linspace(0.0, 1.0, max(1, plan.data.floats, *self._widths, *self._lengths))

    def __len__(self) -> int:
        return self._count

    def remove(self) -> None:
        """The files they are read from."""
        if self._files is not None:
            self._files.remove()

    def __getitem__(self, index: int) -> Any:
        made = self.made(index)
        return None if random.Random(index).random() < self.data.left_out else made

    def made(self, index: int) -> torch.Tensor:
        data, factor = self.data, self._factors[index]
        wait = data.sleep_ms * factor + data.grows_ms * self._grown(index // self.batch)
        if index % self.batch == self.batch - 1 and self._is_slow(index // self.batch):
            wait += data.slow_ms
        seen = bool(len(self._seen)) and bool(self._seen[index])
        if data.cold_ms and not seen:
            wait += data.cold_ms
        if self._files is not None and not (self._reads_once and seen):
            self._files.read(index)
        if len(self._seen):
            self._seen[index] = 1
        if data.kept_mb and (not data.kept_most or len(self._kept) < data.kept_most):
            # Not zeros: of those no page is taken.
            self._kept.append(b"\1" * round(data.kept_mb * 2**20))
        if self._shared is None:
            sleep_ms(wait)
        else:
            self._shared.wait_ms(wait)
        burn_ms(data.burn_ms * factor)
        native_burn_ms(data.native_burn_ms * factor)
        return self._sample[: self._lengths[index] if self._lengths else self._width(index // self.batch)]

    def _width(self, batch: int) -> int:
        every = self.data.new_shape_every
        if self._widths:
            return self._widths[batch]
        return len(self._sample) if not every or batch % every != every - 1 else 16 + batch


class ServesOne:
    """Something that workers wait for which serves one of them at a time."""

    def __init__(self, what: str) -> None:
        self._what = what
        self.lock = multiprocessing.Lock()
        self._free = multiprocessing.RawValue("d", 0.0)
        """When it will have served all that was asked of it, in s of the monotonic clock."""

    def wait_ms(self, ms: float) -> None:
        if self._what == "lock":
            with self.lock:
                sleep_ms(ms)
            return
        with self.lock:
            self._free.value = served = max(self._free.value, time.monotonic()) + ms / 1e3
        time.sleep(max(0.0, served - time.monotonic()))


class Stream(IterableDataset[Any]):
    """The same samples from an iterable dataset, all of them from the first worker."""

    def __init__(self, samples: Samples) -> None:
        self._samples = samples

    def __iter__(self) -> Iterator[Any]:
        worker = get_worker_info()
        if worker is None or worker.id == 0:
            for index in range(len(self._samples)):
                yield self._samples[index]


class OneStream(IterableDataset[Any]):
    """Samples of an iterable dataset that all workers go through from its begin on. Each is another number."""

    def __init__(self, samples: Samples) -> None:
        self._samples, self._how = samples, samples.data.streamed

    def __iter__(self) -> Iterator[Any]:
        worker = get_worker_info()
        mine, workers = (0, 1) if worker is None else (worker.id, worker.num_workers)
        if self._how == "packed":
            yield from self._packed(range(mine, 2 * len(self._samples), workers))
            return
        for index in range(len(self._samples)):
            if self._how == "chosen" and index % workers != mine:
                continue
            sample = self._make(index)
            if self._how == "own" and index % workers != mine:
                continue
            yield sample

    def _packed(self, indices: range) -> Iterator[Any]:
        held: list[float] = []
        for index in indices:
            held.extend(self._make(index).tolist()[:8])
            if len(held) >= 16:
                yield torch.tensor(held)
                held.clear()

    def _make(self, index: int) -> torch.Tensor:
        return self._samples.made(index % len(self._samples)) + index


class Files:
    """Files that samples are read from, on the file system of the run folder."""

    COUNT = 4
    SIZE = 16 * 1024 * 1024

    def __init__(self, reading: PlannedReads, folder: Path, seed: int) -> None:
        self._reading = reading
        self._paths = [folder / f"data-{number}.bin" for number in range(self.COUNT)]
        content = np.random.default_rng(seed).bytes(1024 * 1024) * (self.SIZE // 1024 // 1024)
        for path in self._paths:
            path.write_bytes(content)
            with path.open("rb") as file:
                # Only what is on the disk can be dropped from memory; what a large write left there, only as a whole.
                os.fsync(file.fileno())
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)

    def read(self, index: int) -> None:
        reading = self._reading
        source = random.Random(index)
        end = time.monotonic() + reading.ms / 1e3
        with self._paths[index % self.COUNT].open("rb", buffering=0) as file:
            # What the kernel reads ahead would be there already.
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
            while True:
                place = source.randrange(self.SIZE - reading.bytes) // 4096 * 4096
                if reading.cold:
                    os.posix_fadvise(file.fileno(), place, reading.bytes, os.POSIX_FADV_DONTNEED)
                os.pread(file.fileno(), reading.bytes, place)
                if time.monotonic() >= end:
                    break
        if reading.bytes_per_s is not None:
            time.sleep(reading.bytes / reading.bytes_per_s)

    def remove(self) -> None:
        for path in self._paths:
            path.unlink(missing_ok=True)


def sleep_ms(ms: float) -> None:
    if ms > 0:
        time.sleep(ms / 1e3)


def burn_ms(ms: float) -> None:
    """Use the CPU for so long, whatever the wall clock says."""
    if ms > 0:
        end = time.thread_time_ns() + int(ms * 1e6)
        while time.thread_time_ns() < end:
            pass


def native_burn_ms(ms: float) -> None:
    """The same with the interpreter's lock free nearly all the time."""
    if ms > 0:
        end = time.thread_time_ns() + int(ms * 1e6)
        while time.thread_time_ns() < end:
            hashlib.sha256(_NATIVE)


def keep_busy() -> None:
    """What a thread of a pool that spins does."""
    content = bytes(_BUSY)
    while True:
        hashlib.sha256(content)


def start_worker(loader: Loader, _worker: int) -> None:
    """`worker_init_fn`"""
    torch.set_num_threads(1)
    if loader.cpus is not None:
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: loader.cpus])
    for _ in range(loader.threads):
        threading.Thread(target=keep_busy, daemon=True).start()
    sleep_ms(loader.start_ms)


class Unpickled:
    """Something that takes a while to unpickle."""

    def __init__(self, ms: float) -> None:
        self._ms = ms

    def __setstate__(self, state: dict[str, float]) -> None:
        self.__dict__.update(state)
        sleep_ms(self._ms)


def collate(data: Data, samples: list[Any]) -> Any:
    if data.left_out:
        # A batch of none is no batch: the first of them stays then.
        samples = [each for each in samples if each is not None] or [torch.zeros(max(1, data.floats))]
    batch = pad_sequence(samples, batch_first=True) if data.length_tail else torch.stack(samples)
    if data.unpickling_ms:
        return [batch, Unpickled(data.unpickling_ms)]
    if data.arrays:
        return [part.numpy() for part in batch.chunk(data.tensors, dim=1)]
    # Tensors of their own: parts of one share its memory and travel as one.
    return [part.clone() for part in batch.chunk(data.tensors, dim=1)] if data.tensors > 1 else [batch]


class PlannedBatches:
    """The indices of an epoch's batches in their order, from a batch sampler that takes its time. `stamp` is told of
    all that it does: begin and end."""

    def __init__(self, plan: Plan, stamp: Callable[[int, int], None]) -> None:
        self._planned = plan.loader.sampler or PlannedSampler()
        self._batch, self._batches = plan.loader.batch, plan.batches
        self._stamp = stamp

    def __len__(self) -> int:
        return self._batches

    def __iter__(self) -> Iterator[list[int]]:
        self._works(self._planned.epoch_ms, 0.0)
        return self._draw()

    def _draw(self) -> Iterator[list[int]]:
        for number in range(self._batches):
            self._works(self._planned.batch_ms, self._planned.batch_burn_ms)
            yield list(range(number * self._batch, (number + 1) * self._batch))

    def _works(self, wait_ms: float, cpu_ms: float) -> None:
        begin = time.monotonic_ns()
        sleep_ms(wait_ms)
        burn_ms(cpu_ms)
        self._stamp(begin, time.monotonic_ns())


def loader_of(
    plan: Plan, samples: Samples, stamp: Callable[[int, int], None] = lambda _begin, _end: None
) -> DataLoader[Any]:
    """The plan's loader. `stamp`: told when a planned sampler works."""
    settings = plan.loader
    several: dict[str, Any] = {}
    if settings.workers:
        several = {
            "prefetch_factor": settings.prefetch,
            "persistent_workers": settings.persistent,
            "multiprocessing_context": settings.start,
            "worker_init_fn": partial(start_worker, settings),
        }
        if not settings.in_order:
            several["in_order"] = False
    dataset: Dataset[Any] = Stream(samples) if plan.data.first_worker_only else samples
    if settings.sampler is not None:
        several["batch_sampler"] = PlannedBatches(plan, stamp)
    else:
        several["batch_size"] = settings.batch
    if plan.data.streamed:
        dataset = OneStream(samples)
    return DataLoader(
        dataset,
        num_workers=settings.workers,
        collate_fn=partial(collate, plan.data),
        **several,
    )


def _factors(data: Data, count: int, seed: int) -> list[float]:
    """What the times of each sample are multiplied by; 1 on average."""
    if not data.sigma:
        return [1.0] * count
    source = random.Random(seed)
    drawn = [source.lognormvariate(0.0, data.sigma) for _ in range(count)]
    mean = sum(drawn) / count
    return [factor / mean for factor in drawn]


def _widths(plan: Plan, seed: int) -> list[int]:
    """Of the samples of each batch, where batches differ in it; the net needs 16."""
    if plan.data.longer != 1:
        rises = (1 + (plan.data.longer - 1) * number / plan.batches for number in range(plan.batches))
        return [max(16, round(plan.data.floats * rise / 8) * 8) for rise in rises]
    if not plan.data.width_sigma:
        return []
    source = random.Random(seed)
    drawn = [plan.data.floats * source.lognormvariate(0.0, plan.data.width_sigma) for _ in range(plan.batches)]
    return [max(16, round(width / 8) * 8) for width in drawn]


def _lengths(data: Data, count: int, seed: int) -> list[int]:
    """Of each sample, where they differ in it."""
    if not data.length_tail:
        return []
    source = random.Random(seed)
    return [round(data.floats * source.paretovariate(data.length_tail)) for _ in range(count)]


class Waiting(Dataset[torch.Tensor]):
    """A validation's samples."""

    def __init__(self, count: int, sleep_ms: float) -> None:
        self._count, self._ms = count, sleep_ms

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> torch.Tensor:
        sleep_ms(self._ms)
        return torch.full((16,), math.sin(index))
