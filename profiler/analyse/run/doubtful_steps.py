"""Whether what was recorded as steps can be: with the same work none computes a hundred times as long as many others.

Where it seems so, the program works in another way than the steps were told by: some of them only fetch, others compute
for several. Sums over the run hold all the same; what compares single steps with each other does not.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ...record.reader import Records
from ...record.schema import NOT_MEASURED, EventKind, StepFlag
from ..shares import MOSTLY
from .events import lasting, under_way
from .stall_breakdown import Partition
from .step_spans import per_step
from .window import Window

MOST_TIMES = 100
"""Computation of a step over that of others with as much work, from which steps that learn nothing are no steps."""
MOST_TIMES_AT_ALL = 1000
"""The same of steps that learn: no tuning of kernels explains it."""
LEAST_SHARE = 0.02
"""Share of the steps that the short and the long ones must each be: single ones may be anything."""
LEAST_WORK = 0.5
"""Samples of the short steps over those of the long ones, medians, from which they have as much work."""


@dataclass(frozen=True)
class DoubtfulSteps:
    """Steps that compute next to nothing beside others with as much work."""

    short: int
    of: int
    """Steps that were looked at and whose computation is known."""
    times: float | None
    """Computation of the other steps over theirs, medians; `None` where theirs is nothing."""

    @property
    def sentence(self) -> str:
        times = "nothing" if self.times is None else f"a {self.times:.0f}th of what the others do"
        return (
            f"{self.short} of {self.of} steps compute {times}, with as much work: these cannot all be steps. What "
            "single steps take is not to be trusted, and no cause is made of it; `whyidle.step()` in the loop says "
            "where a step begins."
        )


def doubtful_steps(window: Window, events: Records, parts: Partition, asynchronous: bool) -> DoubtfulSteps | None:
    """`None` where all steps are plausible."""
    steps = window.steps
    known = (steps["device_end_ns"] != NOT_MEASURED) | np.bool_(not asynchronous)
    # What the compiler does in a step is no work of it.
    compiled = per_step(window, under_way(lasting(events, EventKind.COMPILE)), asynchronous) > 0
    looked = known & ~compiled
    computing = per_step(window, parts.computing, asynchronous)
    lengths = computing[looked]
    # Half of the whole time lies in steps that are no longer than the longest.
    if not lengths.any() or not (lengths * MOST_TIMES < lengths.max()).any():
        return None
    long = _holding_half(lengths)
    short = looked & (computing * MOST_TIMES < long)
    others = looked & (computing * MOST_TIMES >= long)
    if min(short.sum(), others.sum()) < max(1, LEAST_SHARE * looked.sum()):
        return None
    if float(np.median(steps["samples"][short])) < LEAST_WORK * float(np.median(steps["samples"][others])):
        return None
    usual = float(np.median(computing[short]))
    times = float(np.median(computing[others])) / usual if usual > 0 else None
    learns = (steps["backward_begin_ns"] != NOT_MEASURED) | ((steps["flags"] & StepFlag.OPTIMIZER) != 0)
    idle = float(np.mean(~learns[short])) > MOSTLY > float(np.mean(~learns[others]))
    if not idle and (times is None or times < MOST_TIMES_AT_ALL):
        return None
    return DoubtfulSteps(int(short.sum()), int(looked.sum()), times)


def _holding_half(lengths: npt.NDArray[np.float64]) -> float:
    """The length at which half of the whole time lies in longer ones."""
    longest = np.sort(lengths)[::-1]
    return float(longest[np.searchsorted(np.cumsum(longest), lengths.sum() / 2)])
