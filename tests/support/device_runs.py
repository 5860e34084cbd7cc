"""Trainings of which some steps compute longer than others, and looks at the device they run on."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from support.crafted import found
from whyidle.scenarios.planted import MS, Step, train

SEVERITIES = [0.12, 0.3, 0.6]
COMPUTE = 10 * MS
STEPS = 200
ODD = range(15, STEPS, 10)


def computing(folder: Path, odd_ns: int = 0, odd: Iterable[int] = ODD, fetch_ns: int = 0) -> Path:
    """Steps of 10 ms, of which some compute so much longer."""
    longer = set(odd)
    plan = [
        Step(fetch_ns=fetch_ns, compute_ns=COMPUTE + (odd_ns if n in longer else 0), sync=True) for n in range(STEPS)
    ]
    train(folder, [plan])
    return folder


def clocked(mhz: float, reasons: int, most: float = 1500) -> dict[str, float]:
    return {"sm_clock_mhz": round(mhz), "sm_clock_max_mhz": most, "throttle_reasons": reasons}


def shares(folder: Path) -> dict[str | None, float]:
    return {cause: finding.share for cause, finding in found(folder).items()}
