"""Planted sweeps over batch sizes as a page: what was planted, what was named, and the time per sample of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from whyidle.report.page.compare_sizes import sizes_views
from whyidle.report.page.frame import render
from whyidle.report.render.html import page_sections

from ..judged_sweeps import JudgedSweep
from . import sweeps_text


def page(sweeps: Sequence[JudgedSweep], setting: Mapping[str, Any], failed: Sequence[tuple[str, str]]) -> str:
    """The whole page. `failed`: (cell, why) of the cells that did not run to their end."""
    verdicts = {sweep.name: sweep.verdict for sweep in sweeps if sweep.verdict is not None}
    return render(
        "sweeps.html.j2",
        title=sweeps_text.head(setting),
        styles=("table.css",),
        scripts=("table.js",),
        summary=sweeps_text.summary(sweeps),
        sections=page_sections(sweeps_text.judged(sweeps, failed)),
        sizes=sizes_views(verdicts),
    )
