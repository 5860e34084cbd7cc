"""torch's DataLoader with worker processes, used the ordinary way."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch.utils.data import DataLoader, default_collate, get_worker_info
from torch.utils.data import Dataset as TorchDataset

from whyidle.errors import WhyidleError

from .assemble import Sample, collate, make_sample
from .background import Background
from .order import batches, count
from .protocol import Batch, Copier, Dataset, Image, Queue, Settings

_PINNED = 2
"""Batches in page-locked memory: one to hand out, one in the making."""


class WorkersPipeline:
    """A map-style dataset, a batch sampler and a collate function in persistent worker processes.

    At least one worker is started. With `pin_memory` a thread of this process moves the batches into page-locked
    memory through the copier, as the DataLoader's own pinning thread would. Batches travel through shared memory
    with torch's default strategy (file descriptors), two tensors each. Where the start method is not fork (the
    default from Python 3.14), the dataset must be picklable.
    """

    name = "workers"

    def __init__(self, dataset: Dataset, settings: Settings, copier: Copier) -> None:
        workers, prefetch = max(1, settings.workers), max(1, settings.prefetch)
        self._copier = copier
        self._pin = settings.pin_memory
        self._sampler = EpochBatches(len(dataset), settings)
        self._loader: DataLoader[Any] = DataLoader(
            **self._makers(dataset, settings),
            num_workers=workers,
            prefetch_factor=prefetch,
            persistent_workers=True,
        )
        self._iterator: Any = None
        self._pinned: Background[Batch] | None = None
        self.queue: Queue | None = Queue(workers * prefetch + (_PINNED if self._pin else 0), self._ready)

    def __len__(self) -> int:
        return len(self._sampler)

    def epoch(self, number: int) -> Iterator[Batch]:
        """Sets the workers to work at once, so that what they do before the first `next` is not lost."""
        self._stop_pinning()
        self._sampler.epoch = number
        self._iterator = iter(self._loader)  # starts the workers, in later epochs wakes them
        made: Iterator[Batch] = (self._received(each) for each in self._iterator)
        if self._pin:
            pinned = (self._copier.pin(batch) for batch in made)
            made = self._pinned = Background(pinned, _PINNED, "whyidle-pin")
        return _explaining_deaths(made)

    def close(self) -> None:
        self._stop_pinning()
        if self._iterator is not None:
            self._iterator._shutdown_workers()
            self._loader._iterator = None
            self._iterator = None

    def _makers(self, dataset: Dataset, settings: Settings) -> dict[str, Any]:
        """What the DataLoader is told of making batches."""
        return {"dataset": _Samples(dataset, settings), "batch_sampler": self._sampler, "collate_fn": _collate}

    def _received(self, made: Any) -> Batch:
        """The batch out of what a worker sent."""
        if isinstance(made, WhyidleError):
            raise made
        batch: Batch = made
        return batch

    def pinned(self) -> int:
        """Batches in page-locked memory, to be had without waiting."""
        return self._pinned.ready() if self._pinned else 0

    def _stop_pinning(self) -> None:
        if self._pinned is not None:
            self._pinned.close()
            self._pinned = None

    def _ready(self) -> int:
        """Batches that arrived out of order, lie in the workers' queue or are pinned."""
        iterator = self._iterator
        if iterator is None or self.queue is None:
            return 0
        arrived = sum(len(task) == 2 for task in list(iterator._task_info.values()))
        waiting = arrived + iterator._data_queue.qsize() + self.pinned()
        return int(min(waiting, self.queue.capacity))


class EpochBatches:
    """Batch sampler whose keys carry the epoch, so that workers need no state of their own."""

    def __init__(self, samples: int, settings: Settings) -> None:
        self._samples = samples
        self._settings = settings
        self.epoch = 0

    def __len__(self) -> int:
        return count(self._samples, self._settings)

    def __iter__(self) -> Iterator[list[tuple[int, int]]]:
        for indices in batches(self._samples, self._settings, self.epoch):
            yield [(self.epoch, index) for index in indices]


class _Samples(TorchDataset[Sample | WhyidleError]):
    """A user's mistake is returned, not raised: DataLoader would bury its message in a traceback."""

    def __init__(self, dataset: Dataset, settings: Settings) -> None:
        self._dataset = dataset
        self._settings = settings

    def __getitem__(self, key: tuple[int, int]) -> Sample | WhyidleError:
        epoch, index = key
        try:
            return make_sample(self._dataset, index, epoch, self._settings)
        except WhyidleError as error:
            return error


def _collate(samples: Sequence[Sample | WhyidleError]) -> Batch | WhyidleError:
    good: list[Sample] = []
    for sample in samples:
        if isinstance(sample, WhyidleError):
            return sample
        good.append(sample)
    info = get_worker_info()
    return collate(good, worker=info.id if info else 0, join=_stack_shared)


def _stack_shared(images: Sequence[Image]) -> torch.Tensor:
    """In a worker this fills shared memory directly, so the hand-over copies nothing."""
    with warnings.catch_warnings():
        # Samples may be read-only views of what was read. They are only copied from.
        warnings.simplefilter("ignore", UserWarning)
        joined: torch.Tensor = default_collate([torch.from_numpy(image) for image in images])
    return joined


def _explaining_deaths(batches: Iterator[Batch]) -> Iterator[Batch]:
    """The same batches. torch reports a dead worker as a RuntimeError, from whichever thread notices first."""
    try:
        yield from batches
    except RuntimeError as error:
        if not str(error).startswith("DataLoader worker"):
            raise
        raise WhyidleError(
            f"A loader process died: {str(error).strip()} Usually memory ran out or /dev/shm is full: try fewer "
            "workers, a smaller prefetch or a smaller batch."
        ) from error


class PrefetchPipeline:
    """`workers` with pinning, and `Copier.start` for batch k+1 issued before batch k is handed out.

    The copies are started from the training thread. Where batch k+1 is not pinned yet, batch k is handed out all
    the same: the device has nothing else to do. (Many prefetchers wait for k+1 there, which costs a batch of
    latency at the start of every epoch.)
    Always pins, whatever `pin_memory` says; the other settings as in `workers`.
    """

    name = "prefetch"

    def __init__(self, dataset: Dataset, settings: Settings, copier: Copier) -> None:
        self._workers = WorkersPipeline(dataset, replace(settings, pin_memory=True), copier)
        self._copier = copier
        self.queue: Queue | None = self._workers.queue

    def __len__(self) -> int:
        return len(self._workers)

    def epoch(self, number: int) -> Iterator[Batch]:
        return self._one_ahead(self._workers.epoch(number))

    def close(self) -> None:
        self._workers.close()

    def _one_ahead(self, batches: Iterator[Batch]) -> Iterator[Batch]:
        started: Batch | None = None
        while True:
            current, started = started, None
            if current is None:
                made = next(batches, None)
                if made is None:
                    return
                current = self._copier.start(made)
            if self._workers.pinned():
                following = next(batches, None)
                started = None if following is None else self._copier.start(following)
            yield current
