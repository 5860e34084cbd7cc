"""A recording from outside as a page: the text report's words, stacks as icicles, the sampler's figures over time."""

from __future__ import annotations

import math

from ...analyse.attached.attached import Attached
from ...analyse.attached.series import Series, series_of
from ...analyse.causes.finding import Finding
from ...analyse.where.looks import process_looks
from ...record.run import Run
from ..document import LINES, code_rows
from ..documents.attached import further, headline, told_shares, top_places, who, why
from ..render import page_sections
from .flame import Stacks, drawn
from .frame import render

WIDE, HIGH = 1000, 100
"""Units of a curve."""


def page(run: Run, seen: Attached, verdict: Finding, findings: tuple[Finding, ...]) -> str:
    """The whole page."""
    stacks = _stacks(seen)
    return render(
        "attach.html.j2",
        title=headline(seen),
        styles=("table.css", *(["flame.css"] if stacks is not None else ())),
        scripts=("table.js", *(["flame.js"] if stacks is not None else ())),
        verdict=verdict,
        why=[
            (why(seen, each), told_shares(seen, each), top_places(each), each.looks)
            for each in seen.trainers
            if each.shares
        ],
        where=code_rows(verdict.where),
        sections=[each for each in page_sections(further(seen, verdict, findings)) if each.title != LINES],
        series=[(each, _curve(each)) for each in series_of(run)],
        stacks=stacks,
        whose="" if seen.leading is None or len(seen.trainers) < 2 else f" of {who(seen.leading)}",
    )


def _stacks(seen: Attached) -> Stacks | None:
    """Draw those of the process that the verdict is about."""
    trainer, looks = seen.leading, seen.looks
    if trainer is None or looks is None or not len(looks):
        return None
    mine = process_looks(looks, trainer.pid, trainer.tid)
    parts = [(what, mine.training.where(stood.__contains__)) for what, stood in trainer.stacks.items()]
    before = mine.training.where(lambda stack: not any(stack in stood for stood in trainer.stacks.values()))
    parts = sorted(parts, key=lambda part: -len(part[1]))
    return drawn(mine, [("before training was first seen", before), *parts])


def _curve(series: Series) -> str:
    """Make an SVG path; what was not measured is a gap."""
    top = 100.0 if series.unit == "%" else series.highest or 1.0
    words, drawing = [], False
    for at, value in zip(series.at, series.values, strict=True):
        if not math.isfinite(value):
            drawing = False
            continue
        x, y = WIDE * at / (series.seconds or 1.0), HIGH - HIGH * min(value, top) / top
        # A single value between two gaps shows as a short stroke.
        words.append(f"L{x:.1f} {y:.1f}" if drawing else f"M{x:.1f} {y:.1f}h1")
        drawing = True
    return "".join(words)
