"""The report's sections on a run from its begin to its end: what came before the first step, and how steps change."""

from __future__ import annotations

from collections.abc import Iterator

from ...analyse.run.facts import Facts
from ...analyse.run.stall_breakdown import TOTAL
from ...analyse.run.startup import (
    COMPILING,
    EVALUATING,
    FIRST_FETCH,
    FIRST_STEP,
    IMPORTS,
    SET_UP,
    SKIPPING,
    STAGES,
)
from ...analyse.run.trends import FALLS, FLAT, GROWS, JUMPS, Trend
from ..document import LEFT, RIGHT, Block, Heading, Paragraph, Space, TableColumn, table
from ..phrase import Length, line
from ..words.figures import part_name, share

BAR_SIGNS = 16
"""Of a bar as long as all the time before the first step."""
LEAST_STAGE_NS = 500_000
"""A stage that took less would read 0.00 s."""
_BAR = TableColumn(wraps=False, least=BAR_SIGNS)
_STAGES = {
    IMPORTS: "Python starts, and imports modules",
    SET_UP: "what else the program does before it asks for a batch",
    EVALUATING: "validation",
    SKIPPING: "batches that are fetched and not trained on",
    FIRST_FETCH: "workers start, the first batch is made",
    COMPILING: "torch's compiler",
    FIRST_STEP: "",
}
LEAST_PART = 0.01
"""Share of a step, from which a part that does not rise has a row."""
_TREND_COLUMNS = (
    TableColumn(),
    TableColumn("first fifth", right=True),
    TableColumn("last fifth", right=True),
    TableColumn("in 1000 steps", right=True),
    TableColumn(),
)


def startup_blocks(facts: Facts, bar: bool) -> Iterator[Block]:
    """A row for each stage of the time before the first step. Nothing where its begin is not known.

    `bar`: whether there are enough steps for a picture of it.
    """
    startup = facts.startup
    if startup is None or startup.run_ns <= 0 or startup.total_ns <= 0:
        return
    rows = [
        (
            stage,
            f"{startup.ns(stage) / 1e9:.2f} s",
            share(startup.ns(stage) / startup.run_ns),
            line(Length(round(BAR_SIGNS * startup.ns(stage) / startup.total_ns))) if bar else "",
            _STAGES[stage],
        )
        for stage in STAGES
        if startup.ns(stage) >= LEAST_STAGE_NS
    ]
    yield Heading("Before the first step was over")
    yield table(rows, LEFT, RIGHT, RIGHT, _BAR, LEFT, indent=1)
    since = "its process began" if startup.whole else "its recording began: what came before is not known"
    yield Paragraph(
        f"{startup.total_ns / 1e9:.2f} s of the run's {startup.run_ns / 1e9:.2f} s, since {since}; outside the window",
        1,
    )
    yield Space()


def trend_blocks(facts: Facts) -> Iterator[Block]:
    """A row a part, and one of the step as a whole. Nothing of a run with too few steps for a trend."""
    if not facts.trends:
        return
    least = LEAST_PART * max(facts.trends[-1].first_ms, facts.trends[-1].last_ms)
    shown = [each for each in facts.trends if each.since is not None or max(each.first_ms, each.last_ms) >= least]
    yield Heading("Over the run, ms of a step")
    yield table(map(_trend_row, shown), *_TREND_COLUMNS, indent=1)
    yield Space()


def _trend_row(trend: Trend) -> tuple[str, str, str, str, str]:
    name = "a step" if trend.part == TOTAL else part_name(trend.part)
    if trend.part == "boundary":
        name += ", a stretch"
    slope = trend.slope
    change = f"{slope.value:+.2f} ({slope.low:+.2f} to {slope.high:+.2f})"
    return name, f"{trend.first_ms:.2f}", f"{trend.last_ms:.2f}", change, _trend_said(trend)


def _trend_said(trend: Trend) -> str:
    """What it does, in words."""
    if trend.shape == FLAT:
        return "no trend"
    if trend.shape == FALLS:
        return "falls"
    at = f"at step {trend.since}" if trend.shape == JUMPS else f"from step {trend.since} on"
    if trend.shape in (GROWS, JUMPS):
        return f"{trend.shape} {at}"
    return f"rises {at}, {trend.why}"
