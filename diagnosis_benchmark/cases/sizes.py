"""Sizes found by trying: what handing a batch over takes differs from machine to machine, and with what else runs."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

from .case import Data, Plan
from .samples import Samples, loader_of

BATCHES = 36
"""Tried at a time; the first half finds some of them made."""
ROUNDS = 2
STEP_MS = 0.5
"""What a step of the training takes its host beside the fetch."""


def fitted(plan: Plan, folder: Path) -> Plan:
    """The plan with the sizes that give what it asks for on this machine, now."""
    data = plan.data
    if data.handover_ms:
        for _ in range(ROUNDS):
            data = _scaled(data, (data.handover_ms - STEP_MS) / _handover_ms(replace(plan, data=data), BATCHES, folder))
        return replace(plan, data=data)
    if plan.step.of_handover:
        ms = (_handover_ms(plan, 12 * BATCHES, folder) + STEP_MS) * plan.step.of_handover
        return replace(plan, step=replace(plan.step, compute_ms=ms))
    return plan


def _scaled(data: Data, factor: float) -> Data:
    """More, or less, to hand over: more tensors where there are many, else larger ones."""
    if data.tensors > 1:
        tensors = max(2, round(data.tensors * factor))
        return replace(data, tensors=tensors, floats=data.floats // data.tensors * tensors)
    return replace(data, floats=max(1000, round(data.floats * factor)))


def _handover_ms(plan: Plan, batches: int, folder: Path) -> float:
    """Time between two batches that nothing else holds up."""
    free = replace(plan.data, sleep_ms=0.0, handover_ms=0.0)
    alone = replace(plan, data=free, loader=replace(plan.loader, persistent=False), epochs=1, batches=batches)
    begin = 0.0
    for number, _ in enumerate(loader_of(alone, Samples(alone, 0, folder))):
        if number == batches // 2:
            begin = time.monotonic()
    return 1e3 * (time.monotonic() - begin) / (batches - 1 - batches // 2)
