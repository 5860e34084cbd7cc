"""Threads instead of processes: SPDL's pipeline engine, with Pillow and numpy doing the work."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from whyidle.errors import MissingExtra

from .assemble import Sample, collate, make_sample
from .order import batches, count
from .protocol import Batch, Copier, Dataset, Queue, Settings


class ThreadsPipeline:
    """SPDL runs one task per sample in a pool of `workers` threads (at least one), keeps the order, and makes
    batches of the results in the same pool.

    Pillow releases the GIL while it decodes and resizes, numpy during most of its arithmetic; the rest runs one
    thread at a time and competes with the training thread. `prefetch` bounds the finished batches of the whole
    pool. With `pin_memory` the pool also pins. An engine lives for one epoch.
    """

    name = "threads"

    def __init__(self, dataset: Dataset, settings: Settings, copier: Copier) -> None:
        self._builder = _engine_builder()
        self._dataset = dataset
        self._settings = settings
        self._copier = copier
        self._engine: Any = None
        self._made = self._taken = 0
        self.queue: Queue | None = Queue(max(1, settings.prefetch), self._ready)

    def __len__(self) -> int:
        return count(len(self._dataset), self._settings)

    def epoch(self, number: int) -> Iterator[Batch]:
        """Sets the threads to work at once."""
        self.close()
        self._engine = self._build(number)
        self._engine.start()
        return self._batches(self._engine)

    def close(self) -> None:
        if self._engine is not None:
            engine, self._engine = self._engine, None
            engine.stop()
        self._made = self._taken = 0

    def _build(self, epoch: int) -> Any:
        def prepare(index: int) -> Sample | Exception:
            try:
                return make_sample(self._dataset, index, epoch, self._settings)
            except Exception as error:  # SPDL logs a task's exception and loses its type: carry it as a value
                return error

        threads, size = max(1, self._settings.workers), self._settings.batch_size
        order = batches(len(self._dataset), self._settings, epoch)
        return (
            self._builder()
            .add_source(index for indices in order for index in indices)
            .pipe(prepare, concurrency=threads, output_order="input")
            .aggregate(size)
            .pipe(self._assemble)
            .add_sink(max(1, self._settings.prefetch))
            .build(num_threads=threads, max_failures=0)
        )

    def _assemble(self, samples: list[Sample | Exception]) -> Batch | Exception:
        try:
            return self._batch(samples)
        except Exception as error:
            return error

    def _batch(self, samples: list[Sample | Exception]) -> Batch:
        good: list[Sample] = []
        for sample in samples:
            if isinstance(sample, Exception):
                raise sample
            good.append(sample)
        batch = collate(good, worker=0, threads=max(1, self._settings.workers))
        if self._settings.pin_memory:
            batch = self._copier.pin(batch)
        self._made += 1  # by one thread at a time: this step has no concurrency
        return batch

    def _batches(self, engine: Any) -> Iterator[Batch]:
        for batch in engine.get_iterator():
            if isinstance(batch, Exception):
                raise batch
            self._taken += 1
            yield batch

    def _ready(self) -> int:
        """Finished batches; one that is made but finds the queue full does not count."""
        return max(0, min(self._made - self._taken, max(1, self._settings.prefetch)))


def _engine_builder() -> Any:
    try:
        from spdl.pipeline import PipelineBuilder
    except ImportError as error:
        raise MissingExtra(f"The threads loader needs SPDL, which cannot be imported ({error})", "studies") from error
    return PipelineBuilder
