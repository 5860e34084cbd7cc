"""Danial Khosravi's table (2017): five nets on Fashion-MNIST, whose epochs with augmented images took 6, 6, 6, 6, 16 s.

Without augmentation they took 0, 1, 5, 3 and 16 s. One worker augments, and an epoch has 59,392 images: whatever takes
less than 6 s lands on 6, and what takes longer does not move. Times are whole seconds of a progress bar.
https://github.com/DanialK/fashion-mnist-cnn
"""

from __future__ import annotations

from functools import partial

from ..cases.case import Data, Loader, Plan, PlannedStep
from .sweep import SAMPLES, Sweep, steps_of

IMAGES = 59_392
"""Of an epoch."""
LOADER_S = 6.0
DEVICE_S = {"cnn1": 0.3, "cnn2": 1.0, "cnn3": 5.0, "cnn4": 3.0, "cnn5": 16.0}
"""Of an epoch without augmentation; the article's 0 is taken to be 0.3."""
SLOWDOWN = 0.3 * IMAGES / 1e3
"""An image takes 0.3 ms here for each second of an epoch there: as many times as long."""


def sample_ms(epoch_s: float) -> float:
    """Time per sample here for so long an epoch there."""
    return epoch_s * 1e3 / IMAGES * SLOWDOWN


def _plan(net: str, batch: int) -> Plan:
    return Plan(
        Data(sleep_ms=sample_ms(LOADER_S)),
        Loader(workers=1, batch=batch),
        PlannedStep(sample_ms(DEVICE_S[net]) * batch),
        batches=steps_of(SAMPLES, batch),
    )


def _sweep(net: str) -> Sweep:
    cause = "loader_floor" if DEVICE_S[net] < LOADER_S else "saturated"
    note = f"Danial Khosravi's {net}: {DEVICE_S[net]:g} s an epoch on the device, {LOADER_S:g} s in the loader"
    return Sweep(f"{cause}.{net}", cause, None, partial(_plan, net), note, sizes=(8, 16))


SWEEPS: tuple[Sweep, ...] = tuple(_sweep(net) for net in DEVICE_S)
