"""What figures of a comparison rest on: how many runs, of how many steps, how long, and who else used the machine."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..causes.diagnosis import LEAST_STEPS
from ..run.facts import Facts
from .batch_size.words import HINDERING_CPUS
from .comparison import Cell

SHORT_S = 5.0
"""Seconds below which a single run says little of costs: starting, caches and the scheduler weigh as much."""
SEEN_NS = 1_000_000_000
"""Length of a run from which it is known what other programs used: in a shorter one, workers of its own that the
sampler has not seen yet would count as theirs."""


def foreign_cpus(runs: Iterable[Facts]) -> float | None:
    """CPUs that other programs kept busy at most, on a machine that had none to spare; `None` where none did."""
    used = [
        facts.foreign_cpus
        for facts in runs
        if facts.foreign_cpus is not None and facts.window.wall_ns >= SEEN_NS and facts.machine_full
    ]
    most = max(used, default=0.0)
    return most if most >= HINDERING_CPUS else None


def machine_cpus(runs: Iterable[Facts]) -> int | None:
    """CPUs of the machine they ran on, where it is one."""
    known = {facts.machine_cpus for facts in runs}
    return known.pop() if len(known) == 1 else None


def single(cells: Sequence[Cell]) -> bool:
    """Whether one of these cells rests on one run."""
    return any(len(cell.facts) == 1 for cell in cells)


def too_little(cell: Cell, seconds: float | None = None) -> str | None:
    """Why this cell cannot carry a claim of a few percent: too few steps, or one short run; `None` where it can.
    `seconds`: of a run; without them, of its window."""
    typical = cell.typical
    if typical is None or typical.facts is None:
        return None
    if len(typical.facts.window.steps) < LEAST_STEPS:
        return "too few steps for a verdict"
    measured = typical.facts.window.wall_ns / 1e9 if seconds is None else seconds
    if len(cell.facts) == 1 and measured < SHORT_S:
        return f"one run of less than {SHORT_S:g} s"
    return None
