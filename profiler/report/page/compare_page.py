"""A comparison as a page: which loader wins, the table as a heat map, what each cell waited for, and the rest."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...analyse.cells.comparison import Comparison
from ...analyse.run.stall_breakdown import PARTS
from ..documents.comparison import (
    ONE_SIZE,
    SIZES,
    comparison_title,
    errors,
    findings,
    head,
    notices,
    stand_ins,
    sweeps,
    winners,
)
from ..render.html import page_parts, page_sections
from .compare_cells import metrics_of, views
from .compare_heat import has_choices, heat_tables
from .compare_sizes import sizes_views
from .frame import render


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
        stand_ins=[caution.said for caution in stand_ins(result, setting)],
        emulated=any(view.emulated for view in shown),
        notices=list(notices(result, setting)),
        wrong=list(errors(result)),
        winners=page_sections(winners(result, setting)),
        findings=page_sections(findings(result, setting)),
        metrics=metrics,
        tables=heat_tables(shown, result.groups, metrics),
        by_group=has_choices(result.groups),
        shown=shown,
        ranged=any(view.ranged for view in shown),
        strip=max((view.strip for view in shown if view.strip), key=lambda strip: strip.seconds, default=None),
        parts=PARTS,
        sizes=sizes_views(verdicts),
        sizes_title=SIZES,
        one_size=ONE_SIZE if setting["scenario"] is None else None,
    )
