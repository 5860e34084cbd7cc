"""What the batch size did, for a page: the time per sample by batch size as stacked bars, and what grew."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from ...analyse.cells.batch_size.result import BatchVerdict
from ...analyse.run.stall_breakdown import TOTAL
from ...analyse.statistics import Estimate
from ..words import sample_time
from ..words.figures import part_name
from ..words.sample_time import MEASURED, Scale, compared, known, measured, sentence

LEAST_SHOWN = 0.0005
"""Of the time per sample: a shorter part of a bar cannot be seen."""


@dataclass(frozen=True)
class SizeBar:
    """Lengths are in percent of the longest whisker of all sweeps on the page."""

    size: int
    compared: bool
    said: str
    spread: str
    segments: tuple[tuple[str, str, float, float], ...]
    """(part, what it is and how much, begin, length)."""
    low: float | None
    high: float | None
    """The 95 % interval of the whole; `None`: not known."""


@dataclass(frozen=True)
class TermRow:
    part: str
    name: str
    figures: tuple[str, ...]
    change: str
    grew: bool


@dataclass(frozen=True)
class SizesView:
    name: str
    unit: str
    sizes: tuple[int, ...]
    bars: tuple[SizeBar, ...]
    terms: tuple[TermRow, ...]
    work: tuple[tuple[str, tuple[str, ...]], ...]
    verdict: BatchVerdict
    text: str
    compared: str


def sizes_views(verdicts: Mapping[str, BatchVerdict]) -> list[SizesView]:
    """One a sweep, all to one scale."""
    scale = sample_time.scale_of(verdicts.values())
    longest = max((_end(terms.get(TOTAL)) for v in verdicts.values() for terms in v.terms.values()), default=0.0)
    return [_view(name, verdict, scale, longest) for name, verdict in verdicts.items()]


def _view(name: str, verdict: BatchVerdict, scale: Scale, longest: float) -> SizesView:
    parts = [*sample_time.shown_parts([verdict]), TOTAL]
    work = [measured(verdict, size) for size in verdict.terms]
    return SizesView(
        name=name,
        unit=scale.unit,
        sizes=tuple(verdict.terms),
        bars=tuple(_bar(size, terms, verdict, scale, longest) for size, terms in verdict.terms.items()),
        terms=tuple(_term(part, verdict, scale) for part in parts),
        work=tuple((name, tuple(row[place] for row in work)) for place, name in enumerate(MEASURED)),
        verdict=verdict,
        text=sentence(verdict),
        compared=compared(verdict),
    )


def _bar(size: int, terms: Mapping[str, Estimate], verdict: BatchVerdict, scale: Scale, longest: float) -> SizeBar:
    total = terms.get(TOTAL)
    segments: list[tuple[str, str, float, float]] = []
    low = high = None
    if known(total) and longest > 0:
        begin = 0.0
        for part, share in sample_time.shares(terms).items():
            length = 100 * share * total.value / longest
            said = f"{part_name(part)} {scale.number(terms.get(part))} {scale.unit}" if part in terms else part
            if share >= LEAST_SHOWN:
                segments.append((part, said, begin, length))
            begin += length
        if math.isfinite(total.low) and math.isfinite(total.high):
            low, high = 100 * max(0.0, total.low) / longest, 100 * total.high / longest
    compared = size in (verdict.smaller, verdict.larger)
    return SizeBar(size, compared, scale.number(total), scale.spread(total), tuple(segments), low, high)


def _term(part: str, verdict: BatchVerdict, scale: Scale) -> TermRow:
    change = verdict.changes.get(part)
    said = f"{scale.number(change, '+')} {scale.spread(change)}".rstrip() if known(change) else ""
    figures = tuple(scale.number(terms.get(part)) for terms in verdict.terms.values())
    return TermRow(part, part_name(part), figures, said, part == verdict.grew)


def _end(total: Estimate | None) -> float:
    """Of a bar or its whisker, µs a sample."""
    if not known(total):
        return 0.0
    return max(total.value, total.high) if math.isfinite(total.high) else total.value
