"""A comparison as a page: which loader wins, the cells as tables of colours, what each waited for, and the rest.

The tables have loaders by batch sizes, one for each thing that is trained.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...analyse.cells.axes import feed_of, label, place
from ...analyse.cells.comparison import Comparison, Group
from ...analyse.cells.roofline import PlacedRoofline, SampleTime, rooflines, sample_times
from ...analyse.run.stall_breakdown import PARTS
from ..documents.cells_table import HEADS, axes_shown, in_words
from ..documents.comparison import (
    ONE_SIZE,
    SIZES,
    cautions,
    comparison_title,
    errors,
    findings,
    head,
    notices,
    sweeps,
    winners,
)
from ..documents.roofline import heading
from ..render.html import page_parts, page_sections
from ..words.figures import NOT_MEASURED
from .compare_cells import CellMetric, CellView, metrics_of, views
from .compare_sizes import sizes_views
from .frame import render

BATCH = "batch_size"
ACROSS = (BATCH, "ranks", "threads", "feed", "device", "pipeline")
"""What stands above the columns: the first of these in which cells differ."""
APART = ("net", "device", "ranks", "interconnect", "threads", "feed", "augment", "plan")
"""Axes that make a table of their own where batch sizes stand above: what differs in them does not train alike."""
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
    """Of its parts, in percent of the longest bar."""


@dataclass(frozen=True)
class RooflineChart:
    """The time a sample takes, of the limit and of each loader."""

    title: str
    cores: int
    limit: float
    """Where the limit lies, in percent of the longest bar."""
    rows: tuple[RooflineRow, ...]


def page(result: Comparison, setting: dict[str, Any], pages: Mapping[str, str] | None = None) -> str:
    """The whole page. `pages`: run folder → address of its own page, where it has one."""
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
    """Whether there is anything that is trained in more than one way. Cells are coloured among those, else by table."""
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
    """From the worst to the best of these cells; where all are alike none stands out. Percentages are of 100."""
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
