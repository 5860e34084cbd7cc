"""A comparison as a page: which loader wins, the table as a heat map, what each cell waited for, and the rest."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...analyse.cells.comparison import Comparison
from ...analyse.run.stall_breakdown import PARTS
from ..documents import comparison as compare_text
from ..render.html import page_parts, page_sections
from .compare_cells import metrics_of, views
from .compare_heat import has_choices, heat_tables
from .compare_sizes import sizes_views
from .frame import render


def page(result: Comparison, setting: dict[str, Any], pages: Mapping[str, str] | None = None) -> str:
    """The whole page. `pages`: run folder → address of its own page, where it has one."""
    shown = views(result, setting, pages or {})
    metrics = metrics_of(shown)
    verdicts = compare_text.sweeps(result)
    return render(
        "compare.html.j2",
        title=compare_text.title(result, setting),
        styles=("table.css",),
        scripts=("table.js",),
        head=page_parts(compare_text.head(result, setting)),
        stand_ins=[caution.said for caution in compare_text.stand_ins(result, setting)],
        emulated=any(view.emulated for view in shown),
        notices=list(compare_text.notices(result, setting)),
        wrong=list(compare_text.errors(result)),
        winners=page_sections(compare_text.winners(result, setting)),
        findings=page_sections(compare_text.findings(result, setting)),
        metrics=metrics,
        tables=heat_tables(shown, result.groups, metrics),
        by_group=has_choices(result.groups),
        shown=shown,
        ranged=any(view.ranged for view in shown),
        strip=max((view.strip for view in shown if view.strip), key=lambda strip: strip.seconds, default=None),
        parts=PARTS,
        sizes=sizes_views(verdicts),
        sizes_title=compare_text.SIZES,
        one_size=compare_text.ONE_SIZE if setting["scenario"] is None else None,
    )
