"""When to look: a jittered beat, and slower cadences that know what they cost.

A fixed period can lock to the step period and then sees the same phase of every step. The gaps drawn here are
uniform between half and one and a half periods, so the phase wanders over the whole step within a few samples.
"""

from __future__ import annotations

import random

NS_PER_S = 1_000_000_000
SPREAD = 0.5


class Beat:
    """Planned times with jittered gaps of mean `period_ns`. Planned from plan to plan, so that it does not drift."""

    def __init__(self, period_ns: int, start_ns: int, source: random.Random | None = None) -> None:
        self.period_ns = period_ns
        self.planned_ns = start_ns
        self._random = source or random.Random()

    def wait_ns(self, now_ns: int) -> int:
        """How long to wait for the next sample; 0 when it is due."""
        return max(0, self.planned_ns - now_ns)

    def taken(self, now_ns: int) -> int:
        """The planned sample is taken now: plans the next one and returns how late this one is.

        Plans that have already passed are left out: a sampler that was held up does not catch up in a burst.
        """
        late = now_ns - self.planned_ns
        self.planned_ns += self._gap()
        if self.planned_ns <= now_ns:
            self.planned_ns = now_ns + self._gap()
        return late

    def _gap(self) -> int:
        return round(self.period_ns * self._random.uniform(1 - SPREAD, 1 + SPREAD))


class Cadence:
    """Lets something costly happen at most every `period_ns`, and at most for `share` of the time."""

    def __init__(self, period_ns: int, first_ns: int = 0, share: float = 1.0) -> None:
        self._period_ns = period_ns
        self._share = share
        self._next_ns = first_ns

    def due(self, now_ns: int) -> bool:
        """Whether it may happen now; if so, the next time is a period from now."""
        if now_ns < self._next_ns:
            return False
        self._next_ns = now_ns + self._period_ns
        return True

    def cost(self, now_ns: int, cost_ns: int) -> None:
        """It took `cost_ns` until now: put the next time off if that was much."""
        self._next_ns = max(self._next_ns, now_ns + round(cost_ns / self._share))
