"""The cells of a comparison for its page: the figures of the contract's JSON, beside what only a page shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...analyse.causes.finding import Finding
from ...analyse.cells.axes import feed_of
from ...analyse.cells.comparison import Cell, Comparison, rate_of
from ...analyse.cells.differential import verdict_of
from ...analyse.ranks import figures as ranks_figures
from ...analyse.run.analysis import Analysis
from ...analyse.run.stall_breakdown import busy_strip
from ...record.run import is_run
from ..contract import comparison as compare_json
from ..contract.differential import SpreadJson
from ..documents.cells_table import namer
from ..documents.comparison import device_kind
from ..documents.cost import usd
from ..words.figures import NOT_MEASURED, percent

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
    """A stretch from the middle of the run: how much of each bin the device computed, in percent."""

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
    """Of its own page, where there is one."""
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
    """`best`, or `tie` where these runs do not tell it from the best."""
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
    """One a cell, in their order. `pages`: run folder → address of its page."""
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
    """Those that at least one cell has; samples/s always."""
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
    """Analyses are of the run folders that are still there, in their order."""
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
    """One for all cells, so that strips can be compared: a strip spans some steps of the slowest cell."""
    longest = max((a.step_ms["p50"] for a in typical if a.facts is not None), default=0.0)
    return max(1, round(longest * 1e6 * STEPS / BINS))


def _strip(typical: Analysis | None, bin_ns: int) -> Strip | None:
    if typical is None or typical.facts is None or not typical.facts.told_apart:
        return None
    busy = busy_strip(typical.facts.window, typical.facts.parts.computing, bin_ns, BINS)
    return Strip(bin_ns / 1e6, tuple(busy)) if busy else None
