"""A comparison as a page: which is fastest, every cell in a table and one by one with its runs, and the rest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ...analyse.cells.batch_size import BatchVerdict
from ...analyse.cells.comparison import Comparison, namer
from ...analyse.run.stall_breakdown import PARTS, TOTAL
from ..document import Sweep, plain_words, sweep_blocks
from ..documents.cells_table import BAR, rate_words, shares_of, table_of, waits_for
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
from ..render import page_parts, page_sections
from ..words import sample_time
from ..words.sample_time import known
from .frame import render

View = dict[str, Any]
"""What a template shows of a cell or a sweep, by the names it uses."""


def page(result: Comparison, setting: dict[str, Any], pages: Mapping[str, str] | None = None) -> str:
    """Make the whole page. `pages`: run folder → address of its own page, where it has one."""
    table = table_of(result.cells, setting)
    # Each cell has its bar below the table.
    table = replace(table, columns=tuple(each for each in table.columns if each.head != BAR))
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
        table=page_parts([table]),
        shown=_cells(result, setting, pages or {}),
        parts=PARTS,
        sizes=_sizes(sweeps(result)),
        sizes_title=SIZES,
        one_size=ONE_SIZE if setting["scenario"] is None else None,
    )


def _cells(result: Comparison, setting: Mapping[str, Any], pages: Mapping[str, str]) -> list[View]:
    """Make one for each cell, in their order."""
    name = namer(result.cells)
    return [
        {
            "name": name(cell),
            "cell": cell,
            "emulated": device_kind(cell, setting) == "emulated",
            "rate": rate_words(cell),
            "waits_for": plain_words(waits_for(cell)).strip("()"),
            "shares": shares_of(cell),
            "runs": [
                {
                    "name": row.run.rpartition("/")[2],
                    "href": pages.get(row.run),
                    "host": row.host or "",
                    "samples_per_s": row.figure("samples_per_s"),
                    "busy_pct": row.figure("busy_pct"),
                    "steps": row.analysis.facts.window.count if row.analysis and row.analysis.facts else None,
                }
                for row in cell.rows
            ],
        }
        for cell in result.cells
    ]


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
