"""How much faster something is."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from .statistics import Estimate

SCATTER_SD = 0.05
"""Standard deviation of the log of a factor beyond all that is counted, as two runs of one thing differ: measured, see
docs/measurements/promises.md."""
Z90 = 1.645
"""Standard deviations to either side of a 90 % interval of a normal value."""


@dataclass(frozen=True)
class Speedup:
    """The rate of a training over what it was, with a 90 % interval."""

    value: float
    low: float
    high: float
    to_try: bool = False
    """Whether the run does not show that anything is gained: then the interval begins at 1, however much it may be."""

    def kept(self, measured: Estimate) -> bool | None:
        """Whether what came lies in the interval; `None` where it does not, but its own interval reaches into it."""
        if self.low <= measured.value <= self.high:
            return True
        return None if measured.low <= self.high and measured.high >= self.low else False

    def no_more_than(self, most: float) -> Speedup:
        return replace(self, value=min(self.value, most), low=min(self.low, most), high=min(self.high, most))

    def maybe_none(self) -> Speedup:
        """The same where it is not known that anything is gained."""
        return replace(self, low=min(1.0, self.low), to_try=True)


def scattered(most: float) -> float:
    """The upper end of a limit that was measured."""
    return most * math.exp(Z90 * SCATTER_SD)
