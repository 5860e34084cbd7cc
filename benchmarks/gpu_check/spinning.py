"""Work of known length for a GPU: `torch.cuda._sleep` spins a given number of its clock's cycles."""

from __future__ import annotations

import torch


def cycles_per_ms() -> float:
    """Clock cycles spun in a millisecond, measured on the warm device."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda._sleep(200_000_000)
    begin.record()
    torch.cuda._sleep(200_000_000)
    end.record()
    torch.cuda.synchronize()
    return 200_000_000 / begin.elapsed_time(end)
