"""Faults of the run as a whole: what it does before its first step, and a part of its steps that grows."""

from __future__ import annotations

from itertools import chain

from .case import GROWN, GROWS_FROM, Band, Case, Data, Loader, Plan, PlannedStep, Start
from .device_cases import HEALTHY, cost_ms
from .input_cases import COMPUTE_MS, SHARES, fault

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


START_SHARES = (0.21, 0.41, 0.65)
"""Of the whole run: less is no large part of it."""
START_BATCHES = (620, 250, 100)
"""So many that the start takes its share in some three seconds and a half."""
START_BANDS: tuple[Band, ...] = ((0.16, 0.27), (0.33, 0.49), (0.55, 0.75))


def _startup() -> list[Case]:
    starts = [n * COMPUTE_MS / 1e3 * s / (1 - s) for s, n in zip(START_SHARES, START_BATCHES, strict=True)]
    indexing = [Plan(*HEALTHY, start=Start(index_s=s), batches=n) for s, n in zip(starts, START_BATCHES, strict=True)]
    # Two workers make a batch in 10 ms; the training takes 20.
    data, loader = Data(sleep_ms=5.0), Loader(workers=2)
    skipping = [
        Plan(data, loader, start=Start(skip=round(s * 100)), batches=n)
        for s, n in zip(starts, START_BATCHES, strict=True)
    ]
    return [
        *fault(
            "run.startup", indexing, "an index of the data set, made before the loop", part="start", bands=START_BANDS
        ),
        *fault(
            "run.startup",
            skipping,
            "batches fetched and not trained on, as by a resume",
            part="start",
            bands=START_BANDS,
            variant="skip",
        ),
    ]


CASES: tuple[Case, ...] = tuple(chain(_startup(), _slowing()))
