"""Which steps the hooks look at: all of them, unless steps are so short that looking would cost too much.

Looking at a step takes the hooks some ten microseconds whatever the step does. Below two milliseconds a step they
therefore look at short bursts of steps and let others pass, so many that they stay below half a percent of the
time. Steps that pass are still counted, with their samples.
"""

from __future__ import annotations

import random

SHORT_STEP_NS = 2_000_000
"""Longer steps are all looked at."""
MOST_COST = 0.005
"""The hooks' share of the time that thinning aims at."""
BURST = 8
"""Steps looked at in a row: the idle time before a step is known only when the step before it is."""
ALWAYS = 64
"""The first steps of a recording are all looked at."""
AFTER_EPOCH = 2
"""Steps looked at from the begin of an epoch on, at least: its first fetch is unlike the others."""
MOST_SKIPPED = 4_000


class Thinning:
    """Decides, step by step. Draws from a generator of its own: the training's random numbers stay as they are."""

    def __init__(self, seed: int | None = None) -> None:
        self._random = random.Random(seed)
        self._skip = 0
        self._burst = ALWAYS
        self._seen: list[int] = []
        self._costs: list[int] = []

    def look(self, first_of_epoch: bool) -> bool:
        """A step begins: whether to look at it."""
        if first_of_epoch and self._burst < AFTER_EPOCH:
            self._burst = AFTER_EPOCH
        if self._burst > 0:
            self._burst -= 1
            return True
        if self._skip > 0:
            self._skip -= 1
            return False
        self._plan()
        return self.look(False)

    def looked(self, step_ns: int, cost_ns: int) -> None:
        """A step that was looked at has ended, after so long, of which the hooks took so much."""
        self._seen.append(step_ns)
        self._costs.append(cost_ns)

    def _plan(self) -> None:
        """A burst has ended: how many steps to let pass before the next one."""
        self._burst = BURST
        # Medians: a step or a hook that the scheduler interrupted says nothing about the others.
        step, cost = _median(self._seen), _median(self._costs)
        self._seen.clear()
        self._costs.clear()
        if step >= SHORT_STEP_NS or cost <= MOST_COST * step:
            return
        # Drawn from a range, so that the bursts do not lock to anything periodic in the training.
        wanted = BURST * (cost / (MOST_COST * max(step, 1)) - 1) * self._random.uniform(0.5, 1.5)
        self._skip = min(MOST_SKIPPED, round(wanted))


def _median(values: list[int]) -> int:
    return sorted(values)[len(values) // 2] if values else 0
