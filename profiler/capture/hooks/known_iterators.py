"""What is known of an iterator of torch's DataLoader, beside what it is to the steps."""

from __future__ import annotations

import weakref
from collections import deque
from typing import Any, Protocol

from torch.utils.data import dataloader

from ..loop_detector.loaders import Iteration

MOST_LENGTHS = 100_000
"""Index lists remembered for one iterator; a loader prefetches far fewer."""


class Passes(Protocol):
    """What tells the batches of an iterator apart; `workers.hook` has it."""

    loader: int
    order: int | None


class KnownIterator:
    """What is known of an iterator."""

    __slots__ = ("counts", "iteration", "iterator", "lengths", "passes")

    def __init__(self, iterator: Any, passes: Passes | None) -> None:
        self.iterator = weakref.ref(iterator)
        self.iteration: Iteration | None = None
        self.passes = passes
        """Tells its batches apart, where workers make them."""
        self.lengths: deque[int] = deque(maxlen=MOST_LENGTHS)
        """Numbers of indices drawn for the batches that were not handed over yet."""
        # An iterable dataset is asked for so many samples, and may have fewer.
        self.counts = iterator._dataset_kind == dataloader._DatasetKind.Map and getattr(iterator, "_in_order", True)
        """Whether batches come in the order in which their indices were drawn, and with as many samples."""
