"""Sweeps in which the device or the training loop decides what a larger batch does."""

from __future__ import annotations

import math

from whyidle.devices.conditions import POWER_CAP_REASONS, Conditions

from ..cases.case import Data, Loader, Plan, PlannedDevice, PlannedStep
from .sweep import LARGE, SAMPLES, SMALL, WORK_MS, Sweep, steps_of

SUPPLY = Data(sleep_ms=1.0)
"""By two workers: half of what the device takes."""


def _plan(batch: int, step: PlannedStep, accelerator: PlannedDevice | None = None, data: Data = SUPPLY) -> Plan:
    return Plan(
        data,
        Loader(workers=2, batch=batch),
        step,
        accelerator=accelerator or PlannedDevice(),
        batches=steps_of(SAMPLES, batch),
    )


def _memory(batch: int) -> Plan:
    # Every other of the large steps finds no memory that is large enough.
    short = PlannedDevice(retry_ms=20.0, retry_every=2)
    return _plan(batch, PlannedStep(WORK_MS * batch), short if batch >= LARGE else PlannedDevice())


TAIL = 4.0
"""Exponent of the distribution (Pareto's) of the samples' lengths: some are several times as long as most."""


def _padding(batch: int) -> Plan:
    return _plan(batch, PlannedStep(1.2 * batch), data=Data(sleep_ms=1.0, floats=64, length_tail=TAIL))


def fill_of(batch: int, tail: float = TAIL) -> float:
    """The mean length over the expected longest of a batch."""
    longest = math.exp(math.lgamma(batch + 1) + math.lgamma(1 - 1 / tail) - math.lgamma(batch + 1 - 1 / tail))
    return tail / (tail - 1) / longest


CAPPED_CLOCK = 0.7


def _clock(batch: int) -> Plan:
    capped = Conditions(sm_clock=CAPPED_CLOCK, throttle_reasons=POWER_CAP_REASONS)
    return _plan(batch, PlannedStep(4.0 * batch), PlannedDevice(capped if batch >= LARGE else Conditions()))


def _compute_growth(batch: int) -> Plan:
    return _plan(batch, PlannedStep((2.8 if batch >= LARGE else WORK_MS) * batch))


def _saturated(batch: int) -> Plan:
    return _plan(batch, PlannedStep(WORK_MS * batch))


def _amortised(batch: int) -> Plan:
    return _plan(batch, PlannedStep(8.0 + 1.0 * batch))


def _host(batch: int) -> Plan:
    # 3 ms after a small step, behind the device; 48 ms after a large one.
    return _plan(batch, PlannedStep(WORK_MS * batch, host_ms=batch**2 * 3 / 16))


SWEEPS: tuple[Sweep, ...] = (
    Sweep(
        "memory",
        "memory",
        "compute",
        _memory,
        "the allocator has to try again at the large size only: a pause of the host within a step's computation",
    ),
    Sweep(
        "padding",
        "padding",
        "compute",
        _padding,
        "samples of very uneven lengths, padded to the longest of their batch, and computed so",
        sizes=(SMALL, 8, LARGE),
        fill=fill_of,
    ),
    Sweep("clock", "clock", "compute", _clock, "the large batch draws so much power that the clock is held down"),
    Sweep(
        "compute_growth",
        "compute_growth",
        "compute",
        _compute_growth,
        "the device itself takes longer a sample at the large size, as with another algorithm",
    ),
    Sweep(
        "saturated",
        "saturated",
        None,
        _saturated,
        "bound by the device, on which a sample takes as long at any size",
        sizes=(SMALL, 8, LARGE),
    ),
    Sweep("none", "none", None, _amortised, "a step costs the device something whatever its size: larger is faster"),
    Sweep(
        "none.host",
        "none",
        "host",
        _host,
        "the loop's own work after each step takes longer than in proportion to the batch",
    ),
)
