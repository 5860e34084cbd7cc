"""What the hooks cost by the wall clock: blocks with and without them, in turns."""

from __future__ import annotations

import random
import time
from statistics import median

import numpy as np
import torch
from torch.utils.data import DataLoader

from benchmarks.overhead.observers import EVERY_STEP, NONE, Observers

from ..checks import Seen, Stage
from ..programs.loop import Samples, net, spin, train
from ..rig import Rig

stage = Stage("cost", "What the hooks cost", 120)
LIMIT_US = 60.0
LIMIT_PERCENT = 1.0
SHORT_MS, LONG_MS = 0.2, 5.0
BLOCK_S = 0.4
ROUNDS = 21


@stage.check(f"at most {LIMIT_US:.0f} µs are added to a step that the host sets the pace of, every step looked at")
def steps_at_the_pace_of_the_host(rig: Rig) -> Seen:
    added, bare = _added_us(rig, 0.0, 0.3)
    return Seen(median(added) <= LIMIT_US, _told(added, bare), {"added_us": added, "step_us": bare})


@stage.check(f"less than {LIMIT_PERCENT:g} % is added to steps of {LONG_MS:g} ms of the GPU's")
def steps_at_the_pace_of_the_GPU(rig: Rig) -> Seen:  # noqa: N802
    added, bare = _added_us(rig, LONG_MS, LONG_MS)
    return Seen(100 * median(added) / bare < LIMIT_PERCENT, _told(added, bare), {"added_us": added, "step_us": bare})


def _added_us(rig: Rig, spin_ms: float, step_ms: float) -> tuple[list[float], float]:
    """(what is added to a step in each round, a bare step), µs from an idle GPU to an idle GPU."""
    steps = 20 if rig.played else round(BLOCK_S * 1e3 / step_ms)
    rounds = 3 if rig.played else ROUNDS
    observers, order = Observers("cuda"), random.Random(1)
    model, work = net().cuda(), spin(spin_ms) if spin_ms else lambda: None

    def block(name: str) -> float:
        with observers.watching(name):
            torch.cuda.synchronize()
            begin = time.monotonic_ns()
            train(model, DataLoader(Samples(steps, 0)), "cuda", work)
            torch.cuda.synchronize()
            return (time.monotonic_ns() - begin) / steps / 1e3

    added, bare = [], []
    try:
        for number in range(rounds + 1):
            took = {name: block(name) for name in order.sample((NONE, EVERY_STEP), 2)}
            if number:  # the first one meets cold caches
                added.append(took[EVERY_STEP] - took[NONE])
                bare.append(took[NONE])
    finally:
        observers.close()
    return added, median(bare)


def _told(added: list[float], bare: float) -> str:
    low, high = np.percentile(added, (25, 75))
    middle = median(added)
    return f"{middle:.1f} µs (half of the rounds {low:.1f} to {high:.1f}) on {bare:.0f} µs: {100 * middle / bare:.2f} %"
