"""What is planted: a training at several batch sizes, as data, and what a larger batch does to it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ..cases.case import Plan

SIZES = (4, 16)
SMALL, LARGE = SIZES
SAMPLES = 768
"""Of a run, whatever the batch: 48 steps at the large size, 192 at the small one."""
WORK_MS = 2.0
"""What the device computes a sample, where that is not what changes."""


@dataclass(frozen=True)
class Sweep:
    """A training whose time per sample is known to change with the batch size, and why.

    On a quiet machine with two CPUs a term that grows does so by clearly more than 10 % of the time per sample.
    """

    name: str
    cause: str
    """One of the contract's causes of a sweep."""
    grew: str | None
    """The term that grows; `None` where none does."""
    plan: Callable[[int], Plan]
    """The training at a batch size."""
    note: str
    sizes: tuple[int, ...] = SIZES
    fill: Callable[[int], float] | None = None
    """Of samples padded to the longest of their batch: the expected share of a batch that is no padding, by size."""


def steps_of(samples: int, batch: int) -> int:
    """Batches that so many samples are.

    Raises:
        ValueError: the last one would not be full.
    """
    if samples % batch:
        raise ValueError(f"{samples} samples are no whole number of batches of {batch}")
    return samples // batch
