"""Whether a promise was kept: pure functions of what was promised and of what was measured."""

from __future__ import annotations

import math
from dataclasses import dataclass

OF_90 = 0.6745 / 1.645
"""Reach of a 50 % interval over that of one of 90 %, of a normal error of the logarithm."""
LARGE, NOTHING = 1.3, 1.05
"""Factors: one that is promised so large must not turn out to be nothing."""
TWOFOLD = 2.0
CODE, SETTINGS, PLANTED = "code", "settings", "what was planted left out"
FOLLOWED = (CODE, SETTINGS, PLANTED)
"""How an advice was followed: by the program's fixed form, by the override that `tune --prove` has, or not at all, as
the planted work's own share of the time tells what it takes."""


@dataclass(frozen=True)
class Promise:
    """The factor by which the rate is to grow, with its 90 % interval."""

    value: float
    low: float
    high: float

    def holds(self, measured: float) -> bool:
        return self.low <= measured <= self.high

    def holds_half(self, measured: float) -> bool:
        """Whether the 50 % interval does that follows from the one of 90 %."""
        below, above = (OF_90 * math.log(self.value / bound) for bound in (self.low, self.high))
        return -above >= math.log(measured / self.value) >= -below

    @property
    def width(self) -> float:
        return self.high / self.low

    def error(self, measured: float) -> float:
        """Distance of the promised factor from the measured one, as a share of that; beside 0.10 and 1/1.10 alike."""
        return math.exp(abs(math.log(self.value / measured))) - 1


@dataclass(frozen=True)
class Followed:
    """A first advice, and what came of following it."""

    program: str
    cause: str
    kind: str
    change: str
    how: str
    """One of `FOLLOWED`; else why the advice could not be."""
    promise: Promise | None
    """`None`: none was made."""
    to_try: bool
    """Whether the advice itself says that nothing may be gained."""
    measured: float | None
    """`None`: not followed."""
    first: bool = True
    """Whether it is the first of the whole report, and not that of a further finding."""

    @property
    def judged(self) -> bool:
        return self.promise is not None and self.measured is not None and not self.to_try

    @property
    def is_empty(self) -> bool:
        """Whether much was promised, and nothing came."""
        return (
            self.promise is not None
            and self.measured is not None
            and self.promise.value >= LARGE
            and self.measured < NOTHING
            and not self.to_try
        )


@dataclass(frozen=True)
class Removed:
    """A line, what its vanishing was said to bring, and what it brought."""

    program: str
    line: str
    promise: Promise
    measured: float
