"""What a larger batch did: time per sample, term by term, over the batch sizes of one loader."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from .facts import Facts
from .partition import PARTS

LEAST_CHANGE = 0.05
"""A term that changed by less than this share of the time per sample did not change."""
FLOOR_SHARE = 0.10
"""Exposed input beyond this share at the largest size: the loader sets the pace."""
SATURATED_SHARE = 0.85
"""A device that computes this much of the time has little left to give."""


@dataclass(frozen=True)
class Term:
    """Time per sample in µs: median over the repeats, with their range."""

    median: float
    low: float
    high: float


@dataclass(frozen=True)
class BatchVerdict:
    """`cause` is one of the contract's; `grew` names the term that grew, if one did."""

    cause: str
    grew: str | None
    text: str
    terms: dict[int, dict[str, Term]]
    """Per batch size: each part, `total`, and `fill` (the extra cost of first batches of epochs, a part of input)."""


def batch_verdict(cells: Mapping[int, Sequence[Facts]]) -> BatchVerdict | None:
    """Judge one loader's runs by batch size; `None` with fewer than two sizes."""
    sizes = sorted(size for size, facts in cells.items() if facts)
    if len(sizes) < 2:
        return None
    terms = {size: _terms(cells[size]) for size in sizes}
    small, large = terms[sizes[0]], terms[sizes[-1]]
    grew = _grew(small, large)
    total_grew = _rose(small["total"], large["total"], small["total"].median)
    shares = [terms[size]["input"].median / terms[size]["total"].median for size in sizes]
    compute_share = large["compute"].median / large["total"].median
    images = [int(np.median([f.samples for f in cells[size]])) for size in sizes]
    seconds = [float(np.median([f.parts.wall_ns for f in cells[size]])) / 1e9 for size in sizes]
    b0, b1 = sizes[0], sizes[-1]
    change = _change(small["total"], large["total"])
    if not total_grew and images[-1] > 1.3 * images[0] and seconds[-1] > 1.3 * seconds[0]:
        return BatchVerdict(
            "accounting",
            None,
            f"batch {b1} took longer only because it processed more images ({images[-1]} against {images[0]}); "
            f"time per sample {change}",
            terms,
        )
    if total_grew and grew is not None:
        return BatchVerdict(*_growth(grew, small, large, b0, b1), terms)
    if _rose(large["total"], small["total"], small["total"].median):
        return BatchVerdict("none", None, f"a larger batch is faster: time per sample {change}", terms)
    if shares[-1] >= FLOOR_SHARE:
        return BatchVerdict(
            "loader_floor",
            None,
            f"the loader sets the pace at batch {b1}, a larger batch gains nothing: time per sample {change}"
            f"{_longer_gaps(cells[b0], cells[b1], b0, b1)}",
            terms,
        )
    if compute_share >= SATURATED_SHARE:
        return BatchVerdict("saturated", None, f"the device is saturated: time per sample {change}", terms)
    text = f"no term grew beyond what runs differ by: time per sample {change}"
    return BatchVerdict("none", None, text, terms)


def _longer_gaps(small: Sequence[Facts], large: Sequence[Facts], b0: int, b1: int) -> str:
    """The same idle share in fewer, longer stretches: what a utilisation trace shows as a swing to 0."""
    before, after = _median_gap_ms(small), _median_gap_ms(large)
    if not before or after < 1.3 * before:
        return ""
    return (
        f". The device stands still for longer at a time, {before:.0f} ms at batch {b0} and {after:.0f} ms at "
        f"batch {b1} (median), because a larger batch takes longer to make"
    )


def _median_gap_ms(runs: Sequence[Facts]) -> float:
    """The median over the runs of each run's median gap; 0 where none has a gap."""
    medians = [float(np.median(f.parts.gaps_ns)) for f in runs if f.parts.gaps_ns]
    return float(np.median(medians)) / 1e6 if medians else 0.0


def _growth(grew: str, small: Mapping[str, Term], large: Mapping[str, Term], b0: int, b1: int) -> tuple[str, str, str]:
    before, after = small[grew].median / 1e3, large[grew].median / 1e3
    said = f"{grew} time per sample grew from {before:.2f} ms at batch {b0} to {after:.2f} ms at batch {b1}"
    if grew == "compute":
        return "compute_growth", grew, said
    growth = large[grew].median - small[grew].median
    fill = large["fill"].median - small["fill"].median
    if grew == "input" and fill >= 0.5 * growth:
        return "pipeline_fill", grew, f"{said}, at the first batch of the epochs: a larger one takes longer to fill"
    if grew == "input":
        return "loader_floor", grew, f"{said}: the loader cannot feed the larger batch any faster"
    return "none", grew, said


def _terms(runs: Sequence[Facts]) -> dict[str, Term]:
    """Per-sample times of one batch size."""

    def term(ns: Sequence[float]) -> Term:
        return Term(float(np.median(ns)), float(min(ns)), float(max(ns)))

    per_sample = [1e-3 / f.samples for f in runs]
    terms = {
        part: term([getattr(f.parts, f"{part}_ns") * per for f, per in zip(runs, per_sample, strict=True)])
        for part in (*PARTS, "wall", "fill")
    }
    terms["total"] = terms.pop("wall")
    return terms


def _grew(small: Mapping[str, Term], large: Mapping[str, Term]) -> str | None:
    """The part that grew most, of those whose ranges lie apart."""
    rose = [p for p in PARTS if _rose(small[p], large[p], small["total"].median)]
    return max(rose, key=lambda p: large[p].median - small[p].median) if rose else None


def _rose(before: Term, after: Term, scale: float) -> bool:
    return after.low > before.high and after.median - before.median > LEAST_CHANGE * scale


def _change(before: Term, after: Term) -> str:
    ratio = after.median / before.median if before.median else 1.0
    if abs(ratio - 1) < 0.02:
        return f"stays at {after.median / 1e3:.2f} ms"
    return f"{'rises' if ratio > 1 else 'falls'} from {before.median / 1e3:.2f} to {after.median / 1e3:.2f} ms"
