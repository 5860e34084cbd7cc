"""A comparison as a page: which is fastest, every cell in a table and one by one with its runs, and the rest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ...analyse.cells.comparison import Comparison, namer
from ...analyse.run.stall_breakdown import PARTS
from ..document import plain_words
from ..documents.cells_table import BAR, rate_words, shares_of, table_of, waits_for
from ..documents.comparison import (
    cautions,
    comparison_title,
    device_kind,
    errors,
    findings,
    head_of,
    notices,
    sizes_blocks,
    winners,
)
from ..render import page_parts, page_sections
from .frame import render


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
        findings=page_sections([*sizes_blocks(result, setting), *findings(result, setting)]),
        table=page_parts([table]),
        shown=_cells(result, setting, pages or {}),
        parts=PARTS,
    )


def _cells(result: Comparison, setting: Mapping[str, Any], pages: Mapping[str, str]) -> list[dict[str, Any]]:
    """Give what the template shows of each cell, by the names it uses."""
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
