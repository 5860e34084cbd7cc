"""The JSON of a run from its begin to its end: what came before its first step, and how its steps change."""

from __future__ import annotations

from msgspec import Struct

from ...analyse.run import startup
from ...analyse.run.startup import Startup
from ...analyse.run.trends import Trend


class StartupJson(Struct):
    """The time until the end of the first step: outside the window, and in no breakdown."""

    total_s: float
    share_pct: float | None
    """Of the run's duration."""
    from_process_begin: bool
    """Whether it counts from the start of the process; else from the start of the recording."""
    imports_s: float | None
    set_up_s: float
    """Everything else before the first batch was asked for."""
    evaluating_s: float
    skipping_s: float
    """Batches were fetched and not trained on."""
    first_fetch_s: float
    compiling_s: float
    first_step_s: float
    skipped_batches: int | None


class TrendJson(Struct):
    """A part of a step over the run."""

    part: str
    """As the breakdown names it; `total`: a step; of `boundary` times are of a stretch outside the steps."""
    first_fifth_ms: float
    last_fifth_ms: float
    ms_per_1000_steps: float
    low: float
    """Of that, the bounds of its 95 % interval."""
    high: float
    shape: str
    """`flat`, `falls`, `grows`, `jumps`, or `rises` where something else explains it."""
    since_step: int | None
    grown_s: float | None
    """Time beyond the level of the run's beginning; `null` where the part does not grow by itself."""
    why: str | None
    """Explanation of one that rises; `null` otherwise."""


def startup_json(of: Startup | None) -> StartupJson | None:
    if of is None:
        return None

    def seconds(stage: str) -> float:
        return of.ns(stage) / 1e9

    return StartupJson(
        total_s=of.total_ns / 1e9,
        share_pct=100 * of.total_ns / of.run_ns if of.run_ns > 0 else None,
        from_process_begin=of.whole,
        imports_s=seconds(startup.IMPORTS) if of.whole else None,
        set_up_s=seconds(startup.SET_UP),
        evaluating_s=seconds(startup.EVALUATING),
        skipping_s=seconds(startup.SKIPPING),
        first_fetch_s=seconds(startup.FIRST_FETCH),
        compiling_s=seconds(startup.COMPILING),
        first_step_s=seconds(startup.FIRST_STEP),
        skipped_batches=of.skipped,
    )


def trend_json(of: Trend) -> TrendJson:
    return TrendJson(
        of.part,
        of.first_ms,
        of.last_ms,
        of.slope.value,
        of.slope.low,
        of.slope.high,
        of.shape,
        of.since,
        None if of.grown is None else of.grown.value / 1e9,
        of.why or None,
    )
