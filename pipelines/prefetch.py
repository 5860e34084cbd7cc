"""Worker processes, page-locked memory, and the copy to the device one batch ahead on a side stream."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from .protocol import Batch, Copier, Dataset, Queue, Settings
from .workers import WorkersPipeline


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
