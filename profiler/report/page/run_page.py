"""The page of a run: verdict, why, next; then its time from begin to end; then all else that was measured."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ...analyse.ranks import figures as ranks_figures
from ...analyse.run.analysis import Analysis
from ...analyse.run.facts import Facts
from ...analyse.run.stall_breakdown import PARTS, UNTOLD
from ...analyse.timeline.timeline import Timeline, timelines
from ...record.names import read_names
from ...record.run import Run
from ..documents import run as text
from ..render import bars
from ..render.blocks import Paragraph
from .environment import environment_of, settings_of
from .frame import percent, render
from .overview import duration, gap_histogram, over_time
from .sections import Section, sections_of
from .timeline_data import MOST_RANKS, data_of

SCRIPTS = (
    "uPlot.iife.min.js",
    "unpack.js",
    "words.js",
    "colours.js",
    "rank.js",
    "charts.js",
    "parts.js",
    "rows.js",
    "lanes.js",
    "range.js",
    "strip.js",
    "timeline.js",
)
_LAID_OUT_HERE = ("Verdict", "Why", "Next", "Evidence", "Also")
"""Beginnings of the headings whose sections the page lays out in its own way."""


def page(analysis: Analysis, runs: Sequence[Run], cost: str | None = None) -> str:
    """`runs`: those that were analysed. `cost`: what the run cost, in a line."""
    # Without the first, which is the headline's.
    laid_out = sections_of(text.sections(analysis, False, cost))[1:]
    over = timelines(analysis, runs)
    names: Mapping[int, str] = {n: name for run in runs for n, name in read_names(run.folder).items()}
    lead = _lead(analysis, over)
    overview, utilisation_drawn = (None, False) if lead is None else over_time(lead)
    facts = analysis.facts
    return render(
        "run.html.j2",
        title=text.headline(analysis),
        data=None if lead is None else data_of(over, names, lead.rank),
        scripts=SCRIPTS if over else (),
        styles=("uPlot.min.css", "timeline.css") if over else (),
        headline=text.headline(analysis),
        stand_in=text.stand_in_of(analysis),
        emulated=(analysis.info.get("device") or {}).get("kind") == "emulated",
        cost=cost,
        verdict=analysis.verdict,
        shares=ranks_figures.shares(analysis),
        why=_why(analysis, facts) if facts is not None else [],
        why_title=next((s.title for s in laid_out if s.title.startswith("Why")), ""),
        why_words=_words(laid_out, "Why"),
        changes=_words(laid_out, "Next"),
        others=[
            (found, [f"{n.change}{text.prediction(n, text.rate_now(analysis))}" for n in found.next])
            for found in analysis.findings
            if found is not analysis.verdict
        ],
        tiles=list(_tiles(analysis, facts)),
        overview=overview,
        utilisation_drawn=utilisation_drawn,
        parts_shown=[] if lead is None else [part for part in (*PARTS, UNTOLD) if len(lead.parts.get(part, ()))],
        waiter="" if facts is None else facts.waiter,
        several=len(over) > 1,
        left_out_ranks=max(0, len(over) - MOST_RANKS),
        lead=None if lead is None else lead.rank,
        gaps=None
        if facts is None or not facts.told_apart or not facts.parts.gaps_ns
        else gap_histogram(facts.parts.gaps_ns),
        further=[s for s in laid_out if not s.title.startswith(_LAID_OUT_HERE)],
        environment=environment_of(analysis),
        settings=settings_of(analysis),
    )


def _lead(analysis: Analysis, over: Sequence[Timeline]) -> Timeline | None:
    """Whose figures stand for the job."""
    number = analysis.job.lead if analysis.job is not None else None
    return next((t for t in over if t.rank == number), over[0] if over else None)


def _why(analysis: Analysis, facts: Facts) -> list[tuple[str, str, str, str, str]]:
    """(part, its name, share, ms a step, what it means); `n/a` for waiting of which nothing was seen."""
    shares = ranks_figures.shares(analysis)
    per_step = facts.parts.wall_ns / facts.window.count / 1e6
    rows = [
        (part, bars.name(part), percent(shares[part]), f"{shares[part] * per_step:.2f} ms", text.meaning(part, facts))
        for part in (*PARTS, UNTOLD)
        if shares.get(part, 0.0) >= text.LEAST_SHOWN
    ]
    if UNTOLD not in shares and "input" not in shares:
        rows.append(("input", "input", text.NOT_MEASURED, "", "no fetch was seen: waiting for data is within the rest"))
    return [*rows, ("", "a step", "100.0 %", f"{per_step:.2f} ms", "")]


def _words(laid_out: Sequence[Section], begin: str) -> list[str]:
    """The sentences of a section, without its table and its bar."""
    signs = {bars.sign(part) for part in (*PARTS, UNTOLD)}
    return [
        block.words
        for section in laid_out
        if section.title.startswith(begin)
        for block in section.blocks
        if isinstance(block, Paragraph) and not set(block.words) <= signs
    ]


def _tiles(analysis: Analysis, facts: Facts | None) -> Iterator[tuple[str, Any, str]]:
    if facts is None:
        return
    rate, step = text.rate_now(analysis), analysis.step_ms
    if facts.window.count >= text.FEW_STEPS:
        if rate is None:
            yield "steps/s", f"{1e9 * facts.window.count / facts.parts.wall_ns:.1f}", "samples are not known"
        else:
            yield "samples/s", f"{rate:.1f}", f"batch {facts.batch_size}" if facts.batch_size else ""
    shares = ranks_figures.shares(analysis)
    what = {"cpu": "the processor computing", "emulated": "the emulated device computing"}
    yield "busy", percent(shares.get("compute")), what.get(facts.device_kind, "the device computing, by its events")
    yield "waiting for data", percent(shares.get("input")), "that nothing hides"
    if facts.device_kind != "cpu":
        seen = ranks_figures.figure(analysis, "utilisation_pct")
        about = "computed as NVML does" if facts.device_kind == "emulated" else "NVML: any kernel"
        yield "utilisation", None if seen is None else f"{seen:.1f} %", about
    if step:
        yield "a step, median", f"{step['p50']:.1f} ms", f"95 % below {step['p95']:.1f} ms"
    wall_ns = ranks_figures.wall_ns(analysis) or facts.parts.wall_ns
    yield "window", duration(wall_ns / 1e9), f"{ranks_figures.steps(analysis)} steps after the warm-up"
