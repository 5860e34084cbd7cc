"""Time per sample for people: one unit for a whole table or picture, three digits of its largest figure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeGuard

from ...analyse.cells.batch_size import BatchVerdict
from ...analyse.run.stall_breakdown import PARTS, TOTAL, UNTOLD
from ...analyse.statistics import Estimate
from .figures import NOT_MEASURED

LEAST_SHOWN = 0.01
"""A term that nowhere reaches this share of the time per sample is left out."""
_UNITS = (("s", 1e6), ("ms", 1e3), ("µs", 1.0))


@dataclass(frozen=True)
class Scale:
    """How times per sample are written; they come in µs."""

    unit: str
    microseconds: float
    """In one of the unit."""
    decimals: int

    def number(self, estimate: Estimate | None, sign: str = "") -> str:
        """The mean; `sign` is `+` where a rise has one too."""
        if not known(estimate):
            return NOT_MEASURED
        return f"{estimate.value / self.microseconds:{sign}z.{self.decimals}f}"

    def spread(self, estimate: Estimate | None) -> str:
        """Half the interval, its longer half; empty where there is none."""
        if not known(estimate) or not math.isfinite(half := half_width(estimate)):
            return ""
        least = 10.0**-self.decimals
        half /= self.microseconds
        # Not nothing, only less than what is written.
        return f"±<{least:.{self.decimals}f}" if 0 < half < least / 2 else f"±{half:.{self.decimals}f}"


def scale_of(verdicts: Iterable[BatchVerdict]) -> Scale:
    """The unit in which the largest time per sample has one to three digits before the point."""
    totals = [terms.get(TOTAL) for verdict in verdicts for terms in verdict.terms.values()]
    largest = max((total.value for total in totals if known(total)), default=0.0)
    unit, microseconds = next((each for each in _UNITS if largest >= each[1]), _UNITS[-1])
    digits = math.floor(math.log10(largest / microseconds)) if largest > 0 else 0
    return Scale(unit, microseconds, min(3, max(0, 2 - digits)))


def known(estimate: Estimate | None) -> TypeGuard[Estimate]:
    """Whether it was measured."""
    return estimate is not None and math.isfinite(estimate.value)


def half_width(estimate: Estimate) -> float:
    return max(estimate.high - estimate.value, estimate.value - estimate.low)


def shares(terms: Mapping[str, Estimate]) -> dict[str, float]:
    """Give the known parts as shares of the time per sample, 0..1; as `UNTOLD` what none of them explains."""
    total = terms.get(TOTAL)
    if not known(total) or total.value <= 0:
        return {}
    parts = {part: terms.get(part) for part in PARTS}
    found = {part: max(0.0, each.value) / total.value for part, each in parts.items() if known(each)}
    whole = sum(found.values())
    if whole < 1 - LEAST_SHOWN:
        return found | {UNTOLD: 1 - whole}
    return {part: share / whole for part, share in found.items()}


def shown_parts(verdicts: Iterable[BatchVerdict]) -> list[str]:
    """The parts worth showing, in their order: those that somewhere reach `LEAST_SHOWN`."""
    verdicts = list(verdicts)
    every = [shares(terms) for verdict in verdicts for terms in verdict.terms.values()]
    grew = {verdict.grew for verdict in verdicts}
    return [p for p in (*PARTS, UNTOLD) if p in grew or any(each.get(p, 0.0) >= LEAST_SHOWN for each in every)]


def sentence(verdict: BatchVerdict) -> str:
    """Say what a larger batch did."""
    return f"{verdict.text[:1].upper()}{verdict.text[1:].rstrip('.')}."


def compared(verdict: BatchVerdict) -> str:
    """Say what the figures rest on."""
    counts = set(verdict.runs.values())
    if counts == {1}:
        rests = f"Each size ran once, so runs are assumed to differ by {_percent(verdict)}."
    elif len(counts) == 1:
        rests = f"Each size ran {counts.pop()} times; runs are assumed to differ by {_percent(verdict)}."
    else:
        each = ", ".join(f"{number} of batch {size}" for size, number in verdict.runs.items())
        rests = f"Runs: {each}; runs of one size are assumed to differ by {_percent(verdict)}."
    return f"Compared: batch {verdict.smaller} and {verdict.larger}. {rests} Intervals: 95 %."


def _percent(verdict: BatchVerdict) -> str:
    percent = 100 * verdict.noise
    if percent != percent:
        return NOT_MEASURED
    return f"{percent:.1f} %" if percent >= 0.05 or percent == 0 else "less than 0.1 %"


MEASURED = ("samples measured", "seconds measured")


def measured(verdict: BatchVerdict, size: int) -> tuple[str, str]:
    """Give what `MEASURED` names, of a run after its warm-up."""
    work = verdict.work.get(size)
    if work is None:
        return NOT_MEASURED, NOT_MEASURED
    return str(work.samples), f"{work.seconds:.1f}" if work.seconds < 100 else f"{work.seconds:.0f}"
