"""Answers of one line, for what is worth replaying and for what a replay is compared with.

Times in any one unit; formulas with the literature they are from in brackets.
"""

from __future__ import annotations

import math
from functools import cache

import numpy as np

_LOSS, _POWER = 0.84, 1.2
"""Coefficients of what handing over in order costs, fitted to replays of 2 to 16 workers, prefetch 1 to 8, spreads 0.2
to 1: mean error 4 %, at most 20 %."""


@cache
def largest_of(workers: int) -> float:
    """Expected largest of so many standard normal numbers."""
    if workers < 2:
        return 0.0
    at = np.linspace(0.0, 12.0, 2401)
    above = np.array([0.5 * math.erfc(x / math.sqrt(2)) for x in at])
    least = 1 - (1 - above) ** workers - above**workers
    # By the trapezium rule, which numpy has by one name before 2.0 and by another from then on.
    return float(((least[1:] + least[:-1]) / 2 * np.diff(at)).sum())


def in_order_efficiency(spread: float, workers: int, prefetch: int) -> float:
    """Share of their speed that workers keep although batches are handed over in order, with a training that takes
    them at once. `spread`: standard deviation of making a batch, of its mean."""
    return float(1 / (1 + _LOSS * spread**_POWER * largest_of(workers) / prefetch))


def prefetch_needed(spread: float, workers: int, loss: float) -> int:
    """Prefetch factor with which handing over in order costs workers no more than a share `loss` of their speed."""
    if not 0 < loss < 1:
        raise ValueError(f"a loss is between 0 and 1, not {loss}")
    needed: float = _LOSS * spread**_POWER * largest_of(workers) * (1 - loss) / loss
    return max(1, math.ceil(needed - 1e-9))


def making_with(workers: int, cpu: float, other: float, cpus: float) -> float:
    """Time that making a batch takes while as many workers as that are busy."""
    making = cpu + other
    return other + cpu * max(1.0, workers * cpu / making / cpus) if making else 0.0


def workers_needed(
    cpu: float,
    other: float,
    step: float,
    *,
    cpus: float,
    spread: float = 0.0,
    prefetch: int = 2,
    most: int = 128,
) -> int | None:
    """Fewest workers whose batches come as fast as the training takes them; `None`: no number of them does.

    `cpu` and `other`: parts of making a batch; `step`: of the training on a batch, hand-off included.
    """
    for workers in range(1, most + 1):
        making = making_with(workers, cpu, other, cpus)
        if making / workers <= step * in_order_efficiency(spread, workers, prefetch) * (1 + 1e-9):
            return workers
    return None


def memory_held(outstanding: int, batch_bytes: float) -> float:
    """Bytes of batches under way, and of the one in use."""
    return (outstanding + 1) * batch_bytes
