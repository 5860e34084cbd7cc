"""The loader of a scenario as its training sees it: iterated once an epoch, and telling of itself as any loader may."""

from __future__ import annotations

from collections.abc import Iterator

import whyidle
from whyidle.pipelines.protocol import Batch, Pipeline


class EpochByEpoch:
    """Each iteration is the next epoch of a pipeline, from number `first` on."""

    def __init__(self, pipeline: Pipeline, first: int = 0) -> None:
        self._pipeline = pipeline
        self._next = first

    def __iter__(self) -> Iterator[Batch]:
        number, self._next = self._next, self._next + 1
        return self._pipeline.epoch(number)


def watched(pipeline: Pipeline, first: int = 0) -> EpochByEpoch:
    """The epochs of a pipeline, whose batches are recorded with what their loader stamped on them. Call it within the
    recording."""
    queue = pipeline.queue
    return whyidle.watch(
        EpochByEpoch(pipeline, first),
        made=_made,
        ready=None if queue is None else queue.ready,
        capacity=None if queue is None else queue.capacity,
    )


def _made(batch: Batch) -> whyidle.MadeBatch | None:
    return None if batch.trace is None else whyidle.MadeBatch(**vars(batch.trace), batch_bytes=batch.nbytes)
