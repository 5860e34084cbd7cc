"""Faults of the run as a whole: a part of its steps grows as it goes on."""

from __future__ import annotations

from itertools import chain

from .case import GROWN, GROWS_FROM, Case, Data, Loader, Plan, PlannedStep
from .device_cases import HEALTHY, cost_ms
from .input_cases import SHARES, fault

BATCHES = (150, 130, 120)
"""Of the three severities: a trend needs a hundred steps after the warm-up."""


def grows_ms(share: float) -> float:
    """By how much something has to grow until the last step for its growth to take such a share of the time."""
    return 2 * cost_ms(share) / (1 - GROWS_FROM)


def _slowing() -> list[Case]:
    # The loss is read at each step, so that no queue hides what comes before the next one.
    host = [
        Plan(*HEALTHY, PlannedStep(grows_ms=grows_ms(s), sync_every=1), batches=n)
        for s, n in zip(SHARES, BATCHES, strict=True)
    ]
    serial = [
        Plan(Data(grows_ms=grows_ms(s)), Loader(workers=0, batch=1), PlannedStep(sync_every=1), batches=n)
        for s, n in zip(SHARES, BATCHES, strict=True)
    ]
    computing = [
        Plan(*HEALTHY, PlannedStep(compute_grows_ms=grows_ms(s)), batches=n, device="cpu")
        for s, n in zip(SHARES, BATCHES, strict=True)
    ]
    return [
        *fault("run.slowing", host, "a log that is written anew after each step", part="host", hit=GROWN),
        *fault("run.slowing", serial, "samples that are searched for in a list", hit=GROWN, variant="input"),
        *fault("run.slowing", computing, "a graph that is kept alive", part="lost", hit=GROWN, variant="compute"),
    ]


CASES: tuple[Case, ...] = tuple(chain(_slowing()))
