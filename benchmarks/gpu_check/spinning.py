"""Work of known length for a GPU: `torch.cuda._sleep` spins a given number of its clock's cycles."""

from __future__ import annotations

import torch

CYCLES = 200_000_000
AGREE = 0.01
TRIES = 12


def cycles_per_ms() -> float:
    """Clock cycles spun in a millisecond, once two measurements agree: an idle GPU's clock is slow at first."""
    before = rate = _measured()
    for _ in range(TRIES):
        rate = _measured()
        if abs(rate - before) < AGREE * rate:
            break
        before = rate
    return rate


def _measured() -> float:
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    torch.cuda._sleep(CYCLES)
    end.record()
    torch.cuda.synchronize()
    return CYCLES / begin.elapsed_time(end)
