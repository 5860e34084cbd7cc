"""One clock for ranks on several hosts: paired by what happens on all of them at once, the end of a collective.

Monotonic clocks of hosts have nothing to do with each other, and wall clocks agree to milliseconds at best. Ranks that
average their gradients leave the last collective of a step together, in each of thousands of steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Stamps = npt.NDArray[np.float64]
"""[ranks, steps] in ns since a moment of the first rank's clock."""

STEPS_A_BLOCK = 64
"""Steps whose median tells how far apart two clocks are at one time; from block to block they may drift."""
MOST_BLOCKS = 256
"""Blocks that a run is cut into for that, at most."""
MOST_DRIFT = 1e-3
"""Seconds a second that two clocks may drift apart: what differs by more is no clock, but trainings that do not wait
for each other."""
MAD = 1.4826
"""Standard deviation of normal values whose median deviation is 1."""


@dataclass(frozen=True)
class Pairing:
    """How far each rank's clock is ahead of the first rank's, at each step."""

    ahead_ns: Stamps
    spread_ns: float
    """How much single steps scatter around it, on the worst host; 0 where there is one clock."""
    drift: float
    """How fast the worst clock runs against the first: 1e-6 is a microsecond a second."""

    @property
    def holds(self) -> bool:
        """Whether what was paired behaves as clocks do."""
        return self.drift <= MOST_DRIFT


def pair(released: Stamps, clocks: Sequence[int]) -> Pairing:
    """Pair the clocks by when the ranks left the collective of each step.

    Args:
        clocks: number of each rank's clock.
    """
    numbers = np.asarray(clocks)
    ahead = np.zeros_like(released)
    first = np.median(released[numbers == numbers[0]], axis=0)
    spread = drift = 0.0
    for number in np.unique(numbers[numbers != numbers[0]]):
        rows = numbers == number
        apart = np.median(released[rows], axis=0) - first
        blocks = np.array_split(np.arange(len(apart)), min(MOST_BLOCKS, max(1, len(apart) // STEPS_A_BLOCK)))
        centres = np.array([first[block].mean() for block in blocks])
        medians = np.array([np.median(apart[block]) for block in blocks])
        offset = np.interp(first, centres, medians)
        scatter = MAD * float(np.median(np.abs(apart - offset)))
        spread = max(spread, scatter)
        if len(blocks) > 1 and abs(medians[-1] - medians[0]) > 4 * scatter:
            drift = max(drift, float(abs(medians[-1] - medians[0]) / (centres[-1] - centres[0])))
        ahead[rows] = offset
    return Pairing(ahead, spread, drift)
