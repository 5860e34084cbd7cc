"""A comparison as a page: which loader is fastest, the cells as tables of colours, what each waits for, and the rest.

Figures are those of the contract's JSON.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from ...analyse.cells.batch_size import BatchVerdict
from ...analyse.cells.comparison import Cell, Comparison, Group, RunRow
from ...analyse.ranks import figures as ranks_figures
from ...analyse.run.stall_breakdown import PARTS, TOTAL
from ..contract import comparison as compare_json
from ..contract.encode import builtins
from ..document import Sweep, plain_words, sweep_blocks
from ..documents.cells_table import axes_shown, in_words, loader_of, namer, waits_for
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
from ..render import page_parts, page_sections
from ..words import sample_time
from ..words.figures import NOT_MEASURED
from ..words.sample_time import known
from .frame import render

MOST_HOT = 60
"""Percent of the colour in the fullest cell: words on it stay readable, in the light and in the dark."""

View = dict[str, Any]
"""What a template shows of a cell, a sweep, a table, by the names it uses."""


class CellMetric(NamedTuple):
    """A figure of a cell that the table can show."""

    key: str
    title: str
    unit: str
    words: Callable[[float], str]
    """Writes it."""
    more_is_better: bool = True


METRICS = (
    CellMetric("rate", "samples/s", "samples/s", "{:.1f}".format),
    CellMetric("busy", "device busy", "%", "{:.0f} %".format),
    CellMetric("cost", "cost of an epoch", "US$", usd, more_is_better=False),
    CellMetric("accuracy", "accuracy", "", "{:.3f}".format),
)


def page(result: Comparison, setting: dict[str, Any], pages: Mapping[str, str] | None = None) -> str:
    """Make the whole page. `pages`: run folder → address of its own page, where it has one."""
    shown = views(result, setting, pages or {})
    # Samples/s always; of the others those that at least one cell has.
    metrics = [m for m in METRICS if m.key == "rate" or any(v["figures"][m.key] is not None for v in shown)]
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
        parts=PARTS,
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
    cells = builtins({"cells": compare_json.cells(result.cells, setting)})["cells"]
    for number, (cell, told) in enumerate(zip(result.cells, cells, strict=True), 1):
        rate = told["samples_per_s"]
        accuracy = (told["accuracy"] or {}).get("accuracy")
        figures = {
            "rate": rate and rate["median"],
            "busy": told["busy_pct"],
            "cost": told["cost_usd"],
            "accuracy": accuracy,
        }
        view: View = {
            "anchor": f"cell-{number}",
            "name": name(cell) or f"{cell.pipeline} {cell.batch_size}",
            "cell": cell,
            "ran": cell.ran,
            "emulated": device_kind(cell, setting) == "emulated",
            "figures": (figures := figures if cell.status == "ok" else dict.fromkeys(figures)),
            "words": {m.key: NOT_MEASURED if (of := figures[m.key]) is None else m.words(of) for m in METRICS},
            "heat": {},
            # Lowest and highest over the repeats; empty of a single one.
            "ranged": f"{rate['low']:.1f} to {rate['high']:.1f}" if rate and len(cell.facts) > 1 else "",
            "mark": marks.get(id(cell), ""),
            "waits_for": plain_words(waits_for(cell)).strip("()"),
            "verdict": cell.verdict,
            "shares": {} if cell.typical is None else ranks_figures.shares(cell.typical),
            "runs": [run(row) for row in cell.rows],
        }
        made.append(view)
    return made


# Sweeps over the batch size, and tables of colours.


def _sizes(verdicts: Mapping[str, BatchVerdict]) -> list[View]:
    """Make one for each sweep: a bar for each size, as long as percent of the longest, above what the text has."""
    scale = sample_time.scale_of(verdicts.values())
    totals = [terms.get(TOTAL) for verdict in verdicts.values() for terms in verdict.terms.values()]
    longest = max((total.value for total in totals if known(total)), default=0.0) or 1.0
    return [
        {
            "name": name,
            "cause": verdict.cause,
            "unit": scale.unit,
            "bars": [
                (size, f"{scale.number(total)} {scale.spread(total)}", sample_time.shares(terms), total.value / longest)
                for size, terms in verdict.terms.items()
                if known(total := terms.get(TOTAL))
            ],
            "blocks": page_parts([*sweep_blocks(Sweep(name, verdict))][1:]),
        }
        for name, verdict in verdicts.items()
    ]


def _heat_tables(shown: Sequence[View], groups: Sequence[Group], metrics: Sequence[CellMetric]) -> list[View]:
    """Make tables of loaders by batch sizes. Measured and emulated figures never share a table, nor a scale of colours:
    cells are coloured among those that train the same thing, where that is trained in more than one way, else by
    table."""
    names = axes_shown([view["cell"] for view in shown])
    number = {id(cell): place for place, group in enumerate(groups) for cell in group.cells}
    tables: dict[bool, dict[str, list[View]]] = {}
    scales: dict[tuple[bool, int | None], list[View]] = {}
    for view in shown:
        cell: Cell = view["cell"]
        nameless = "no loader" if cell.feed == "synthetic" else "this training"
        name = ", ".join(word for word in (loader_of(cell), in_words(cell, names)) if word) or nameless
        tables.setdefault(view["emulated"], {}).setdefault(name, []).append(view)
        scales.setdefault((view["emulated"], number[id(cell)] if _has_choices(groups) else None), []).append(view)
    for alike in scales.values():
        _heat(alike, metrics)
    sizes = sorted({view["cell"].batch_size for view in shown})
    return [
        {
            "emulated": emulated,
            "sizes": sizes,
            # (name, the cells of each size): as a rule one or none.
            "rows": [
                (n, [[v for v in row if v["cell"].batch_size == size] for size in sizes]) for n, row in rows.items()
            ],
        }
        for emulated, rows in tables.items()
    ]


def _has_choices(groups: Sequence[Group]) -> bool:
    """Whether anything is trained in more than one way."""
    return any(len(group.cells) > 1 for group in groups)


def _heat(shown: Sequence[View], metrics: Sequence[CellMetric]) -> None:
    """Put `heat` into these cells: by metric, 0 to `MOST_HOT`, from the worst to the best of them, where measured;
    where all are alike none stands out. Percentages are of 100."""
    for metric in metrics:
        values = [value for view in shown if (value := view["figures"][metric.key]) is not None]
        low, high = (0.0, 100.0) if metric.unit == "%" else (min(values, default=0.0), max(values, default=0.0))
        for view in shown:
            value = view["figures"][metric.key]
            if value is not None and high > low:
                share = (value - low) / (high - low)
                view["heat"][metric.key] = round(MOST_HOT * (share if metric.more_is_better else 1 - share))
