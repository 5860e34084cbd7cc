"""The loader everybody writes first: each batch is made when asked for, in the training thread."""

from __future__ import annotations

from collections.abc import Iterator

from .assemble import make_batch
from .order import batches, count
from .protocol import Batch, Copier, Dataset, Queue, Settings


class NaivePipeline:
    """No worker, no queue, no overlap: `DataLoader(num_workers=0)` without its bookkeeping.

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
