"""Whether samples differ in size, and which are likely the largest: what a batch needs depends on who is in it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...record.schema import StepFlag
from .facts import Facts

VARY = 1.1
"""Elements a sample of the largest batch over those of the median batch, from which samples vary in size."""


@dataclass(frozen=True)
class SampleSizes:
    """What batches tell of the sizes of samples."""

    vary: bool
    """Whether batches of the same number of samples differ in size; false also where that is not known."""
    largest: tuple[int, ...]
    """Indices in the dataset of the samples that took longest to make: where sizes differ, usually the largest."""


def sample_sizes(facts: Facts | None) -> SampleSizes:
    """Of a run; all alike where nothing is known of it."""
    if facts is None:
        return SampleSizes(False, ())
    steps = facts.window.steps
    elements = (steps["flags"] >> StepFlag.ELEMENTS_SHIFT) & StepFlag.MOST_ELEMENTS
    told = ((steps["flags"] & StepFlag.SHAPE_KNOWN) != 0) & (elements > 0) & (steps["samples"] > 0)
    if not told.any():
        return SampleSizes(False, ())
    each = elements[told] / steps["samples"][told]
    vary = bool(each.max() > VARY * np.median(each))
    slow = facts.loader.slowest if vary else ()
    return SampleSizes(vary, tuple(sample.index for sample in slow if sample.index is not None))
