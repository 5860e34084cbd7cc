"""Which steps the hooks look at: all of them, unless steps are so short that looking would cost too much.

Looking at a step takes the hooks some five microseconds by their own account, and as much again for the training, whose
code they push out of the caches. Below two milliseconds a step they therefore look at short bursts of steps and let
others pass. Steps that pass are still counted, with their samples.
"""

from __future__ import annotations

import random
from collections import deque

SHORT_STEP_NS = 2_000_000
"""Longer steps are all looked at."""
MOST_COST = 0.001
"""The hooks' share of the time, by their own account, that thinning aims at: a second one goes to steps let pass."""
BURST = 8
"""Steps looked at in a row: the idle time before a step is known only when the step before it is."""
UNTHINNED = 64
"""The same where none are let pass: then that is thought over again."""
ALWAYS = 64
"""The first steps of a recording are all looked at."""
AFTER_EPOCH = 2
"""Steps looked at from the begin of an epoch on, at least: its first fetch is unlike the others."""
SHORT_EPOCH = 32
"""Epochs of fewer steps are not looked at each: they are thinned as steps are."""
MOST_KEPT = 1_000
"""Steps looked at that are kept until the next plan."""
NEWEST = 0.3
"""How much the newest burst counts in the average length of a step."""
MOST_SKIPPED = 4_000


class Thinning:
    """Plans which steps are looked at. Draws from a generator of its own: the training's random numbers stay as
    they are."""

    def __init__(self, seed: int | None = None) -> None:
        self._random = random.Random(seed)
        self._steps: deque[int] = deque(maxlen=MOST_KEPT)
        self._costs: deque[int] = deque(maxlen=MOST_KEPT)
        self._step: float | None = None
        """How long steps are on average, ns."""

    def first(self) -> int:
        """How many steps to look at before anything is planned."""
        return ALWAYS

    def plan(self, first_of_epoch: bool, left: int) -> tuple[int, int]:
        """(steps to look at, steps to let pass after them), the step that begins now being the first of them.

        Args:
            left: steps that were still to be let pass when an epoch began.
        """
        if first_of_epoch and left:
            return AFTER_EPOCH, left
        # The median: a hook that the scheduler interrupted says nothing about the others. But short and long steps
        # may take turns, as with batches that come in handfuls: what counts is how long they are on average.
        mean, cost = sum(self._steps) / max(1, len(self._steps)), sorted(self._costs)[len(self._costs) // 2 :][:1]
        self._steps.clear()
        self._costs.clear()
        self._step = mean if self._step is None else self._step + NEWEST * (mean - self._step)
        step = self._step
        if step >= SHORT_STEP_NS or not cost or cost[0] <= MOST_COST * step:
            return UNTHINNED, 0
        # Drawn from a range, so that the bursts do not lock to anything periodic in the training.
        wanted = BURST * (cost[0] / (MOST_COST * max(step, 1)) - 1) * self._random.uniform(0.5, 1.5)
        return BURST, min(MOST_SKIPPED, round(wanted))

    def looked(self, step_ns: int, cost_ns: int) -> None:
        """A step that was looked at has ended, after so long, of which the hooks took so much."""
        self._steps.append(step_ns)
        self._costs.append(cost_ns)
