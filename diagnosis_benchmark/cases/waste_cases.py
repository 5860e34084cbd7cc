"""Faults of the input in which samples are made for nothing, or kept without end: for each way three severities.

What is lost is the wait for data, all of which comes from making, or keeping, too much. The device computes for 20 ms
with each batch that is used.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from .case import Band, Case, Data, Loader, Machine, Plan, PlannedStep
from .input_cases import STEPS, USUAL, WAITING, fault, step_ms

OF_FOUR = 4
"""Samples of a batch."""


def _left_out() -> list[Case]:
    plans = _plans((Data(sleep_ms=2 * step_ms(share) / OF_FOUR, left_out=0.5), Loader()) for share in WAITING)
    serial = _plans((Data(sleep_ms=step_ms(share) / OF_FOUR, left_out=0.4), Loader(workers=0)) for share in WAITING)
    return [
        *fault("input.wasted", plans, "half of the samples are left out in collate_fn"),
        *fault("input.wasted", serial, "the same in the training itself, of two in five", variant="serial"),
    ]


def _whole() -> list[Case]:
    """Each worker gives everything: an epoch has twice as many batches, all of which are computed with."""
    plans = _plans((Data(sleep_ms=2 * step_ms(share) / OF_FOUR, streamed="whole"), Loader()) for share in WAITING)
    return fault("input.wasted", plans, "an iterable dataset that two workers give whole", variant="repeated")


def _own() -> list[Case]:
    """Of two samples that a worker makes it gives one."""
    plans = _plans((Data(sleep_ms=step_ms(share) / OF_FOUR, streamed="own"), Loader()) for share in WAITING)
    return fault(
        "input.wasted", plans, "an iterable dataset that each worker makes whole and gives a part of", variant="own"
    )


def _passed_over() -> list[Case]:
    """Of two batches one is used: so each may take half of the time."""
    bands: tuple[Band, ...] = USUAL
    plans = [
        Plan(Data(sleep_ms=step_ms(share) / OF_FOUR), Loader(), PlannedStep(passed_over=2), batches=2 * steps)
        for share, steps in zip(WAITING, STEPS, strict=True)
    ]
    note = "the loop computes with every second batch that it fetches"
    return fault("input.wasted", plans, note, bands=bands, variant="loop")


def _memory() -> list[Case]:
    """Workers keep half a megabyte of each sample; the emulated machine has 30 left."""
    plans = [
        Plan(
            Data(sleep_ms=2 * step_ms(share) / OF_FOUR, kept_mb=0.5),
            Loader(),
            machine=Machine(memory_mb=30),
            batches=2 * steps,
        )
        for share, steps in zip(WAITING, STEPS, strict=True)
    ]
    return fault("input.memory", plans, "workers that keep a part of each sample, on a machine that is soon full")


def _plans(make: Iterator[tuple[Data, Loader]]) -> list[Plan]:
    return [Plan(data, loader, batches=steps) for (data, loader), steps in zip(make, STEPS, strict=True)]


CASES: tuple[Case, ...] = tuple(chain(_left_out(), _whole(), _own(), _passed_over(), _memory()))
