"""A comparison as a page: which loader is fastest, the cells as tables of colours, what each waits for, and the rest.

The tables have loaders by batch sizes, one for each thing that is trained. Figures are those of the contract's JSON.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from ...analyse.cells.batch_size import BatchVerdict
from ...analyse.cells.comparison import BATCH_SIZE, PIPELINE, Cell, Comparison, Group, RunRow, label, place
from ...analyse.cells.studies import rooflines, sample_times
from ...analyse.ranks import figures as ranks_figures
from ...analyse.run.analysis import Analysis
from ...analyse.run.stall_breakdown import PARTS, TOTAL, busy_strip
from ...analyse.statistics import Estimate
from ..contract import comparison as compare_json
from ..document import plain_words
from ..documents.cells_table import HEADS, axes_shown, in_words, loader_of, namer, waits_for
from ..documents.comparison import (
    ONE_SIZE,
    SIZES,
    cautions,
    comparison_title,
    device_kind,
    errors,
    findings,
    head_of,
    notices,
    sweeps,
    winners,
)
from ..documents.cost import usd
from ..documents.roofline import heading
from ..render import page_parts, page_sections
from ..words import sample_time
from ..words.figures import NOT_MEASURED, part_name, percent
from ..words.sample_time import MEASURED, Scale, compared, known, measured, sentence
from .frame import render

BINS = 120
"""Bins of a strip."""
STEPS = 12
"""Typical steps that a strip spans, so that single ones can be seen."""
LEAST_SHOWN = 0.0005
"""Share of the time per sample: a shorter part of a bar is invisible."""
ACROSS = (BATCH_SIZE, "ranks", "threads", "feed", "device", PIPELINE)
"""Axis of the columns: the first of these in which cells differ."""
APART = ("net", "device", "ranks", "interconnect", "threads", "feed", "augment", "plan")
"""Axes with a table for each value where columns are batch sizes: cells that differ in them do not train alike."""
ALWAYS_APART = ("net", "device")
MOST_HOT = 60
"""Percent of the colour in the fullest cell: words on it stay readable, in the light and in the dark."""

View = dict[str, Any]
"""What a template shows of a cell, a sweep, a table, by the names it uses."""


class CellMetric(NamedTuple):
    """A figure of a cell that the table can show."""

    key: str
    title: str
    unit: str
    words: Callable[[float | None], str]
    """Writes it."""
    more_is_better: bool = True


def _fixed(digits: int) -> Callable[[float | None], str]:
    return lambda value: NOT_MEASURED if value is None else f"{value:.{digits}f}"


METRICS = (
    CellMetric("rate", "samples/s", "samples/s", _fixed(1)),
    CellMetric("busy", "device busy", "%", lambda value: percent(value, 0)),
    CellMetric("cost", "cost of an epoch", "US$", usd, more_is_better=False),
    CellMetric("accuracy", "accuracy", "", _fixed(3)),
)


def page(result: Comparison, setting: dict[str, Any], pages: Mapping[str, str] | None = None) -> str:
    """Make the whole page. `pages`: run folder → address of its own page, where it has one."""
    shown = views(result, setting, pages or {})
    # Samples/s always; of the others those that at least one cell has.
    metrics = [m for m in METRICS if m.key == "rate" or any(v["figures"][m.key] is not None for v in shown)]
    strips = [view["strip"] for view in shown if view["strip"]]
    return render(
        "compare.html.j2",
        title=comparison_title(result, setting),
        styles=("table.css",),
        scripts=("table.js",),
        head=page_parts(head_of(result, setting)),
        cautions=list(cautions(result, setting)),
        notices=list(notices(result, setting)),
        wrong=list(errors(result)),
        winners=page_sections(winners(result, setting)),
        findings=page_sections(findings(result, setting)),
        metrics=metrics,
        tables=_heat_tables(shown, result.groups, metrics),
        by_group=_has_choices(result.groups),
        shown=shown,
        ranged=any(view["ranged"] for view in shown),
        hosts=len({run["host"] for view in shown for run in view["runs"]} - {None}) > 1,
        strip=max(strips, key=lambda strip: float(strip["seconds"]), default=None),
        parts=PARTS,
        rooflines=_rooflines(result, setting),
        sizes=_sizes(sweeps(result)),
        sizes_title=SIZES,
        one_size=ONE_SIZE if setting["scenario"] is None else None,
    )


def views(result: Comparison, setting: dict[str, Any], pages: Mapping[str, str]) -> list[View]:
    """Make one for each cell, in their order. `pages`: run folder → address of its page."""
    raced = [group for group in result.groups if sum(cell.samples_per_s is not None for cell in group.cells) > 1]
    marks = {id(tie): "tie" for group in result.groups for tie in group.ties}
    marks |= {id(group.best): "best" for group in raced if group.best is not None}
    name = namer(result.cells)
    # One width of bins for all cells, so that strips compare: a strip spans some steps of the slowest cell.
    typical = [cell.typical for cell in result.cells if cell.typical is not None]
    longest = max((a.step_ms["p50"] for a in typical if a.facts is not None), default=0.0)
    bin_ns = max(1, round(longest * 1e6 * STEPS / BINS))

    def strip(typical: Analysis | None) -> View | None:
        """Show a stretch from the middle of the run: the share of each bin in which the device computed,
        percent; `None` where not measured."""
        if typical is None or typical.facts is None or not typical.facts.told_apart:
            return None
        busy = busy_strip(typical.facts.window, typical.facts.parts.computing, bin_ns, BINS)
        return {"bin_ms": bin_ns / 1e6, "busy": busy, "seconds": bin_ns / 1e6 * len(busy) / 1e3} if busy else None

    def run(row: RunRow) -> View:
        """Show one repeat."""
        facts = None if row.analysis is None else row.analysis.facts
        return {
            "name": row.run.rpartition("/")[2],
            "href": pages.get(row.run),
            "host": row.host,
            "samples_per_s": row.figure("samples_per_s"),
            "busy_pct": row.figure("busy_pct"),
            "steps": None if facts is None else facts.window.count,
        }

    made = []
    for number, (cell, told) in enumerate(zip(result.cells, compare_json.cells(result.cells, setting), strict=True), 1):
        rate = told["samples_per_s"]
        figures = {
            "rate": None if rate is None else rate["median"],
            "busy": told["busy_pct"],
            "cost": told["cost_usd"],
            "accuracy": (told["accuracy"] or {}).get("accuracy"),
        }
        view: View = {
            "anchor": f"cell-{number}",
            "name": name(cell) or f"{cell.pipeline} {cell.batch_size}",
            "cell": cell,
            "ran": cell.ran,
            "emulated": device_kind(cell, setting) == "emulated",
            "figures": (figures := figures if cell.status == "ok" else dict.fromkeys(figures)),
            "words": {metric.key: metric.words(figures[metric.key]) for metric in METRICS},
            # Lowest and highest over the repeats; empty of a single one.
            "ranged": f"{rate['low']:.1f} to {rate['high']:.1f}" if rate and len(cell.facts) > 1 else "",
            "mark": marks.get(id(cell), ""),
            "waits_for": plain_words(waits_for(cell)).strip("()"),
            "verdict": cell.verdict,
            "shares": {} if cell.typical is None else ranks_figures.shares(cell.typical),
            "strip": strip(cell.typical),
            "runs": [run(row) for row in cell.rows],
        }
        made.append(view)
    return made


# Sweeps over the batch size.


def _sizes(verdicts: Mapping[str, BatchVerdict]) -> list[View]:
    """Make one for each sweep, all to one scale: percent of the longest whisker of all of them."""

    def end(total: Estimate | None) -> float:
        if not known(total):
            return 0.0
        return max(total.value, total.high) if math.isfinite(total.high) else total.value

    scale = sample_time.scale_of(verdicts.values())
    longest = max((end(terms.get(TOTAL)) for v in verdicts.values() for terms in v.terms.values()), default=0.0)
    made = []
    for name, verdict in verdicts.items():
        work = [measured(verdict, size) for size in verdict.terms]
        view = {
            "name": name,
            "unit": scale.unit,
            "sizes": list(verdict.terms),
            "bars": [_bar(size, terms, verdict, scale, longest) for size, terms in verdict.terms.items()],
            "terms": sample_time.rows(verdict, scale),
            "work": [(name, [row[number] for row in work]) for number, name in enumerate(MEASURED)],
            "verdict": verdict,
            "text": sentence(verdict),
            "compared": compared(verdict),
        }
        made.append(view)
    return made


def _bar(size: int, terms: Mapping[str, Estimate], verdict: BatchVerdict, scale: Scale, longest: float) -> View:
    """Draw one size. `segments`: (part, what it is and how much, begin, length); `low` and `high`: the 95 %
    interval of the whole, `None` where not known."""
    total, segments, low, high = terms.get(TOTAL), list[tuple[str, str, float, float]](), None, None
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
    bar = {"size": size, "compared": size in (verdict.smaller, verdict.larger), "segments": segments}
    return bar | {"said": scale.number(total), "spread": scale.spread(total), "low": low, "high": high}


# The machine's limit.


def _rooflines(result: Comparison, setting: Mapping[str, Any]) -> list[View]:
    """Draw the time a sample takes, of the limit and of each loader; widths are percent of the longest bar."""
    found, charts = rooflines(setting), []
    for each in found:
        times = sample_times(each, result.cells)
        longest = max(time.ms for time in times)
        rows = [{"time": time, "widths": [(name, 100 * ms / longest) for name, ms in time.parts]} for time in times]
        chart = {"title": heading(each, found), "cores": each.cores, "limit": 100 * times[0].ms / longest, "rows": rows}
        charts.append(chart)
    return charts


# Tables of colours.


def _has_choices(groups: Sequence[Group]) -> bool:
    """Whether anything is trained in more than one way. Then cells are coloured among those, else by table."""
    return any(len(group.cells) > 1 for group in groups)


def _heat_tables(shown: Sequence[View], groups: Sequence[Group], metrics: Sequence[CellMetric]) -> list[View]:
    """Make the tables. Measured and emulated figures never share a table, nor a scale of colours."""
    cells: list[Cell] = [view["cell"] for view in shown]
    names = axes_shown(cells)
    nets = {cell.axes.get("net") for cell in cells}

    def differs(axis: str) -> bool:
        """Whether one and the same net was trained at several places on it."""
        return any(len({_at(cell, axis) for cell in cells if cell.axes.get("net") == net}) > 1 for net in nets)

    across = next(filter(differs, ACROSS), BATCH_SIZE)
    apart = [n for n in names if n in (APART if across == BATCH_SIZE else ALWAYS_APART) and n != across]
    rest = [name for name in names if name not in (*apart, across)]
    if across != BATCH_SIZE and len({cell.batch_size for cell in cells}) > 1:
        rest.append(BATCH_SIZE)
    tables: dict[tuple[bool, str], list[View]] = {}
    alike: dict[tuple[bool, Any], list[View]] = {}
    number = {id(cell): place for place, group in enumerate(groups) for cell in group.cells}
    for view in shown:
        table = view["emulated"], label(view["cell"], apart)
        tables.setdefault(table, []).append(view)
        scope = (view["emulated"], number[id(view["cell"])]) if _has_choices(groups) else table
        alike.setdefault(scope, []).append(view)
    for scope_views in alike.values():
        _heat(scope_views, metrics)
    return [_table(members, title, emulated, across, rest) for (emulated, title), members in tables.items()]


def _table(shown: Sequence[View], title: str, emulated: bool, across: str, rest: Sequence[str]) -> View:
    columns = list(dict.fromkeys(_at(view["cell"], across) for view in shown))
    if all(isinstance(each, int) for each in columns):
        columns.sort()
    rows: dict[str, list[View]] = {}
    for view in shown:
        cell: Cell = view["cell"]
        loader = "" if across == PIPELINE else loader_of(cell)
        size = f"batch {cell.batch_size}" if BATCH_SIZE in rest else ""
        nameless = "no loader" if cell.feed == "synthetic" else "this training"
        name = ", ".join(word for word in (loader, in_words(cell, rest), size) if word) or nameless
        rows.setdefault(name, []).append(view)
    return {
        "title": title,
        "across": "batch size" if across == BATCH_SIZE else HEADS.get(across, across),
        "heads": [str(at) if type(at) is int else place(across, at) or NOT_MEASURED for at in columns],
        # (name, the cells at each column): as a rule one or none.
        "rows": [
            (name, [[view for view in members if _at(view["cell"], across) == at] for at in columns])
            for name, members in rows.items()
        ],
        "emulated": emulated,
    }


def _heat(shown: Sequence[View], metrics: Sequence[CellMetric]) -> None:
    """Put `heat` into these cells: by metric, 0 to `MOST_HOT`, from the worst to the best of them, where measured;
    where all are alike none stands out. Percentages are of 100."""
    for view in shown:
        view["heat"] = {}
    for metric in metrics:
        known_values = [value for view in shown if (value := view["figures"][metric.key]) is not None]
        low, high = min(known_values, default=0.0), max(known_values, default=0.0)
        low, high = (0.0, 100.0) if metric.unit == "%" else (low, high)
        for view in shown:
            value = view["figures"][metric.key]
            if value is not None and high > low:
                share = (value - low) / (high - low)
                view["heat"][metric.key] = round(MOST_HOT * (share if metric.more_is_better else 1 - share))


def _at(cell: Cell, axis: str) -> Any:
    return {BATCH_SIZE: cell.batch_size, PIPELINE: cell.pipeline, "feed": cell.feed}.get(axis, cell.axes.get(axis))
