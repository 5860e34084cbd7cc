"""What feeds the steps besides a loader: nothing but a batch made before. The differential test's other two sides."""

from __future__ import annotations

from collections.abc import Iterator

from whyidle.pipelines.assemble import make_batch
from whyidle.pipelines.order import batches, count
from whyidle.pipelines.protocol import Batch, Dataset, Queue, Settings

from .copying import BatchCopier
from .training import Untrained
from .variant import SYNTHETIC


class SyntheticPipeline:
    """One batch of these data, made and brought to the device before the training begins, and served for ever.

    What then limits a training is the net alone: the benchmark mode of MXNet's and TensorFlow's scripts of 2017.
    """

    name = SYNTHETIC
    queue: Queue | None = None

    def __init__(self, dataset: Dataset, settings: Settings, copier: BatchCopier) -> None:
        self._steps = count(len(dataset), settings)
        self._batch: Batch | None = None
        if self._steps:
            indices = batches(len(dataset), settings, 0)[0]
            made = copier.deliver(make_batch(dataset, indices, 0, settings, worker=0))
            made.trace = made.copy = None
            self._batch = made

    def __len__(self) -> int:
        return self._steps

    def epoch(self, number: int) -> Iterator[Batch]:
        for _ in range(self._steps):
            assert self._batch is not None
            yield self._batch

    def close(self) -> None:
        """Nothing runs between batches."""


class NoTraining(Untrained):
    """Steps that do nothing: what then limits is the loader alone."""

    def step(self, batch: Batch) -> None:
        self._end.step()
