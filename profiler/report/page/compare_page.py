"""A comparison as a page: which loader is fastest, the cells as tables of colours, what each waits for, and the rest.

The tables have loaders by batch sizes, one for each thing that is trained.

The cells of a comparison for its page: the figures of the contract's JSON, beside what only a page shows.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...analyse.causes.finding import Finding
from ...analyse.cells.axes import feed_of, label, place
from ...analyse.cells.batch_size.result import BatchVerdict
from ...analyse.cells.comparison import Cell, Comparison, Group, rate_of
from ...analyse.cells.differential import verdict_of
from ...analyse.cells.roofline import PlacedRoofline, SampleTime, rooflines, sample_times
from ...analyse.ranks import figures as ranks_figures
from ...analyse.run.analysis import Analysis
from ...analyse.run.stall_breakdown import PARTS, TOTAL, busy_strip
from ...analyse.statistics import Estimate
from ...record.run import is_run
from ..contract import comparison as compare_json
from ..contract.differential import SpreadJson
from ..documents.cells_table import HEADS, axes_shown, in_words, namer
from ..documents.comparison import (
    ONE_SIZE,
    SIZES,
    cautions,
    comparison_title,
    device_kind,
    errors,
    findings,
    head,
    notices,
    sweeps,
    winners,
)
from ..documents.cost import usd
from ..documents.roofline import heading
from ..render.html import page_parts, page_sections
from ..words import sample_time
from ..words.figures import NOT_MEASURED, part_name, percent
from ..words.sample_time import MEASURED, Scale, compared, known, measured, sentence
from .frame import render

BINS = 120
"""Of a strip."""
STEPS = 12
"""Typical steps that a strip spans, so that single ones can be seen."""


@dataclass(frozen=True)
class CellMetric:
    """A figure of a cell that a page can show."""

    key: str
    title: str
    unit: str
    more_is_better: bool = True


RATE = CellMetric("rate", "samples/s", "samples/s")
BUSY = CellMetric("busy", "device busy", "%")
COST = CellMetric("cost", "cost of an epoch", "US$", more_is_better=False)
ACCURACY = CellMetric("accuracy", "accuracy", "")
METRICS = (RATE, BUSY, COST, ACCURACY)


@dataclass(frozen=True)
class Strip:
    """A stretch from the middle of the run: the share of each bin in which the device computed, percent."""

    bin_ms: float
    busy: tuple[float, ...]

    @property
    def seconds(self) -> float:
        return self.bin_ms * len(self.busy) / 1e3


@dataclass(frozen=True)
class RunRow:
    """One repeat."""

    name: str
    href: str | None
    """Address of its own page, if it has one."""
    samples_per_s: float | None
    busy_pct: float | None
    steps: int | None


@dataclass(frozen=True)
class CellView:
    """`values` are those of the JSON, `None` where not measured; `words` the same as they are shown."""

    number: int
    name: str
    cell: Cell
    emulated: bool
    values: Mapping[str, float | None]
    words: Mapping[str, str]
    ranged: str
    """Lowest and highest samples/s over the repeats; empty of a single one."""
    mark: str
    """`best`, or `tie` where it is as fast within noise."""
    waits_for: str
    verdict: Finding | None
    shares: Mapping[str, float]
    strip: Strip | None
    runs: tuple[RunRow, ...]

    @property
    def anchor(self) -> str:
        return f"cell-{self.number}"

    @property
    def ran(self) -> bool:
        return self.cell.status == "ok" and self.values["rate"] is not None


def views(result: Comparison, setting: dict[str, Any], pages: Mapping[str, str]) -> list[CellView]:
    """Make one for each cell, in their order. `pages`: run folder → address of its page."""
    told = compare_json.cells(result.cells, setting)
    raced = [group for group in result.groups if sum(cell.samples_per_s is not None for cell in group.cells) > 1]
    best = {id(group.best): "best" for group in raced if group.best is not None}
    marks = {id(tie): "tie" for group in result.groups for tie in group.ties} | best
    name = namer(result.cells)
    strips = _bin_ns([cell.typical for cell in result.cells if cell.typical is not None])
    return [
        CellView(
            number=number,
            name=name(cell) or f"{cell.pipeline} {cell.batch_size}",
            cell=cell,
            emulated=device_kind(cell, setting) == "emulated",
            values=(values := _values(cell, content)),
            words={key: _said(key, value) for key, value in values.items()},
            ranged=_ranged(content.samples_per_s, len(cell.facts)),
            mark=marks.get(id(cell), ""),
            waits_for=_waits_for(cell),
            verdict=verdict_of(cell),
            shares={} if cell.typical is None else ranks_figures.shares(cell.typical),
            strip=_strip(cell.typical, strips),
            runs=_runs(cell, pages),
        )
        for number, (cell, content) in enumerate(zip(result.cells, told, strict=True), start=1)
    ]


def metrics_of(shown: Sequence[CellView]) -> list[CellMetric]:
    """Choose those that at least one cell has; samples/s always."""
    return [m for m in METRICS if m is RATE or any(view.values[m.key] is not None for view in shown)]


def _values(cell: Cell, content: compare_json.CellJson) -> dict[str, float | None]:
    if cell.status != "ok":
        return {metric.key: None for metric in METRICS}
    return {
        RATE.key: None if content.samples_per_s is None else content.samples_per_s.median,
        BUSY.key: content.busy_pct,
        COST.key: content.cost_usd,
        ACCURACY.key: (content.accuracy or {}).get("accuracy"),
    }


def _said(key: str, value: float | None) -> str:
    if key == COST.key:
        return usd(value)
    if key == BUSY.key:
        return percent(value, 0)
    return NOT_MEASURED if value is None else f"{value:.1f}" if key == RATE.key else f"{value:.3f}"


def _ranged(rate: SpreadJson | None, runs: int) -> str:
    return f"{rate.low:.1f} to {rate.high:.1f}" if rate and runs > 1 else ""


def _waits_for(cell: Cell) -> str:
    if cell.status != "ok" or cell.typical is None:
        return ""
    if feed_of(cell) == "loader-only":
        return "no net"
    verdict = verdict_of(cell)
    return "no loader" if verdict is None else verdict.cause or "too few steps"


def _runs(cell: Cell, pages: Mapping[str, str]) -> tuple[RunRow, ...]:
    """List the runs; analyses are of the folders that still exist, in their order."""
    complete = len(cell.analyses) == len(cell.runs)
    there = [run for run in cell.runs if complete or is_run(Path(run))]
    found = dict(zip(there, cell.analyses, strict=True))
    return tuple(_run(Path(run).name, pages.get(run), found.get(run)) for run in cell.runs)


def _run(name: str, href: str | None, analysis: Analysis | None) -> RunRow:
    facts = None if analysis is None else analysis.facts
    return RunRow(
        name,
        href,
        None if analysis is None else rate_of(analysis),
        None if analysis is None else ranks_figures.figure(analysis, "busy_pct"),
        None if facts is None else facts.window.count,
    )


def _bin_ns(typical: Sequence[Analysis]) -> int:
    """Choose one for all cells, so that strips compare: a strip spans some steps of the slowest cell."""
    longest = max((a.step_ms["p50"] for a in typical if a.facts is not None), default=0.0)
    return max(1, round(longest * 1e6 * STEPS / BINS))


def _strip(typical: Analysis | None, bin_ns: int) -> Strip | None:
    if typical is None or typical.facts is None or not typical.facts.told_apart:
        return None
    busy = busy_strip(typical.facts.window, typical.facts.parts.computing, bin_ns, BINS)
    return Strip(bin_ns / 1e6, tuple(busy)) if busy else None


LEAST_SHOWN = 0.0005
"""Share of the time per sample: a shorter part of a bar is invisible."""


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
    """Make one for each sweep, all to one scale."""
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


BATCH = "batch_size"
ACROSS = (BATCH, "ranks", "threads", "feed", "device", "pipeline")
"""Axis of the columns: the first of these in which cells differ."""
APART = ("net", "device", "ranks", "interconnect", "threads", "feed", "augment", "plan")
"""Axes with a table for each value where columns are batch sizes: cells that differ in them do not train alike."""
ALWAYS_APART = ("net", "device")
MOST_HOT = 60
"""Percent of the colour in the fullest cell: words on it stay readable, in the light and in the dark."""


@dataclass(frozen=True)
class Square:
    """One cell of a table; `heat` by metric, 0 to `MOST_HOT`, for those that were measured."""

    view: CellView
    heat: dict[str, int]


@dataclass(frozen=True)
class HeatTable:
    title: str
    across: str
    """What the columns are."""
    heads: tuple[str, ...]
    rows: tuple[tuple[str, tuple[tuple[Square, ...], ...]], ...]
    """(name, the cells at each column): as a rule one or none."""
    emulated: bool


@dataclass(frozen=True)
class RooflineRow:
    time: SampleTime
    widths: tuple[tuple[str, float], ...]
    """Of its parts, percent of the longest bar."""


@dataclass(frozen=True)
class RooflineChart:
    """The time a sample takes, of the limit and of each loader."""

    title: str
    cores: int
    limit: float
    """Place of the limit, percent of the longest bar."""
    rows: tuple[RooflineRow, ...]


def page(result: Comparison, setting: dict[str, Any], pages: Mapping[str, str] | None = None) -> str:
    """Make the whole page. `pages`: run folder → address of its own page, where it has one."""
    shown = views(result, setting, pages or {})
    metrics = metrics_of(shown)
    verdicts = sweeps(result)
    return render(
        "compare.html.j2",
        title=comparison_title(result, setting),
        styles=("table.css",),
        scripts=("table.js",),
        head=page_parts(head(result, setting)),
        cautions=list(cautions(result, setting)),
        notices=list(notices(result, setting)),
        wrong=list(errors(result)),
        winners=page_sections(winners(result, setting)),
        findings=page_sections(findings(result, setting)),
        metrics=metrics,
        tables=_heat_tables(shown, result.groups, metrics),
        by_group=_has_choices(result.groups),
        shown=shown,
        ranged=any(view.ranged for view in shown),
        strip=max((view.strip for view in shown if view.strip), key=lambda strip: strip.seconds, default=None),
        parts=PARTS,
        rooflines=_roofline_charts(rooflines(setting), result),
        sizes=sizes_views(verdicts),
        sizes_title=SIZES,
        one_size=ONE_SIZE if setting["scenario"] is None else None,
    )


def _roofline_charts(found: Sequence[PlacedRoofline], result: Comparison) -> list[RooflineChart]:
    charts = []
    for each in found:
        times = sample_times(each, result.cells)
        longest = max(time.ms for time in times)
        rows = [RooflineRow(time, tuple((name, 100 * ms / longest) for name, ms in time.parts)) for time in times]
        charts.append(
            RooflineChart(heading(each, found), each.roofline.cores, 100 * times[0].ms / longest, tuple(rows))
        )
    return charts


def _has_choices(groups: Sequence[Group]) -> bool:
    """Whether anything is trained in more than one way. Then cells are coloured among those, else by table."""
    return any(len(group.cells) > 1 for group in groups)


def _heat_tables(shown: Sequence[CellView], groups: Sequence[Group], metrics: Sequence[CellMetric]) -> list[HeatTable]:
    """Measured and emulated figures never share a table, nor a scale of colours."""
    names = axes_shown([view.cell for view in shown])
    across = next((name for name in ACROSS if _differs(shown, name)), BATCH)
    apart = [n for n in names if n in (APART if across == BATCH else ALWAYS_APART) and n != across]
    tables: dict[tuple[bool, str], list[CellView]] = {}
    for view in shown:
        tables.setdefault((view.emulated, label(view.cell, apart)), []).append(view)
    rest = [name for name in names if name not in (*apart, across)]
    if across != BATCH and len({view.cell.batch_size for view in shown}) > 1:
        rest.append(BATCH)
    scopes = list(tables.values())
    if _has_choices(groups):
        number = {id(cell): place for place, group in enumerate(groups) for cell in group.cells}
        alike: dict[tuple[bool, int], list[CellView]] = {}
        for view in shown:
            alike.setdefault((view.emulated, number[id(view.cell)]), []).append(view)
        scopes = list(alike.values())
    squares = {id(view): Square(view, heat) for scope in scopes for view, heat in _heats(scope, metrics)}
    return [_table(members, title, emulated, across, rest, squares) for (emulated, title), members in tables.items()]


def _table(
    shown: Sequence[CellView],
    title: str,
    emulated: bool,
    across: str,
    rest: Sequence[str],
    squares: Mapping[int, Square],
) -> HeatTable:
    columns = list(dict.fromkeys(_at(view, across) for view in shown))
    if all(isinstance(each, int) for each in columns):
        columns.sort()
    rows: dict[str, list[CellView]] = {}
    for view in shown:
        rows.setdefault(_row_name(view, rest, across), []).append(view)
    return HeatTable(
        title,
        "batch size" if across == BATCH else HEADS.get(across, across),
        tuple(_head(across, each) for each in columns),
        tuple(
            (name, tuple(tuple(squares[id(v)] for v in members if _at(v, across) == each) for each in columns))
            for name, members in rows.items()
        ),
        emulated,
    )


def _heats(shown: Sequence[CellView], metrics: Sequence[CellMetric]) -> list[tuple[CellView, dict[str, int]]]:
    """Rate from the worst to the best of these cells; where all are alike none stands out. Percentages are of 100."""
    heats: list[tuple[CellView, dict[str, int]]] = [(view, {}) for view in shown]
    for metric in metrics:
        known = [value for view in shown if (value := view.values[metric.key]) is not None]
        low, high = (0.0, 100.0) if metric.unit == "%" else (min(known, default=0.0), max(known, default=0.0))
        for view, heat in heats:
            value = view.values[metric.key]
            if value is not None and high > low:
                share = (value - low) / (high - low)
                heat[metric.key] = round(MOST_HOT * (share if metric.more_is_better else 1 - share))
    return heats


def _differs(shown: Sequence[CellView], axis: str) -> bool:
    """Whether one and the same net was trained at several places on the axis."""
    places: dict[object, set[object]] = {}
    for view in shown:
        places.setdefault(view.cell.axes.get("net"), set()).add(_at(view, axis))
    return any(len(each) > 1 for each in places.values())


def _at(view: CellView, axis: str) -> object:
    if axis == BATCH:
        return view.cell.batch_size
    if axis == "pipeline":
        return view.cell.pipeline
    return feed_of(view.cell) if axis == "feed" else view.cell.axes.get(axis)


def _head(axis: str, value: object) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return place(axis, value) or NOT_MEASURED


def _row_name(view: CellView, rest: Sequence[str], across: str) -> str:
    loader = "" if across == "pipeline" or feed_of(view.cell) == "synthetic" else view.cell.pipeline
    size = f"batch {view.cell.batch_size}" if BATCH in rest else ""
    nameless = "no loader" if feed_of(view.cell) == "synthetic" else "this training"
    return ", ".join(word for word in (loader, in_words(view.cell, rest), size) if word) or nameless
