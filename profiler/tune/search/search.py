"""A search, driven: what `race` orders is measured, until there is nothing more to order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import exp

from ...record.tuning import LoaderSettings
from ..bench.bench import Bench, BenchEnded, TrialFailed
from .history import Entry
from .outcome import conclude
from .plan import Model, SearchPlan
from .race import Done, Measure, MeasureHeld, Race
from .result import SearchEnd, Tuned


@dataclass(frozen=True)
class SearchProgress:
    """Before each block, and once more when it is measured."""

    phase: str
    """A value of `race.Phase`."""
    settings: LoaderSettings
    held: bool
    block: int
    """Counted from 1."""
    blocks: int
    """About how many there will be."""
    left_s: float
    """Of the budget."""
    best: LoaderSettings
    """So far; blocks and model weighed."""
    speedup: float
    """Of it against the baseline, from blocks alone."""
    entry: Entry | None
    """What was measured."""
    baseline: LoaderSettings | None = None
    """As the program sets them itself."""


def search(bench: Bench, model: Model, plan: SearchPlan, on_event: Callable[[SearchProgress], None]) -> Tuned:
    """Never raises for what happens to the training; Ctrl-C ends it with the best so far."""
    race = Race(model, plan)
    began = bench.now()
    open_yet: set[LoaderSettings] = set()
    try:
        while not isinstance(step := race.next(), Done):
            # The workers of what is no longer raced are ended: they hold memory.
            for settings in open_yet - race.wanted():
                bench.close(settings)
            open_yet &= race.wanted()
            on_event(_progress(race, step, None))
            entry = _run(bench, step, plan, began)
            if entry.block is not None and not entry.held:
                open_yet.add(entry.settings)
            race.add(entry)
            on_event(_progress(race, step, entry))
        return conclude(race, step.ended)
    except KeyboardInterrupt:
        return conclude(race, SearchEnd.STOPPED, "stopped by Ctrl-C")
    except BenchEnded as error:
        return conclude(race, SearchEnd.FAILED, str(error))


def _run(bench: Bench, step: Measure | MeasureHeld, plan: SearchPlan, began: float) -> Entry:
    settings = plan.baseline if isinstance(step, MeasureHeld) else step.settings
    predicted = None if isinstance(step, MeasureHeld) else step.predicted
    began_s = bench.now() - began
    block, error, out_of_memory = None, None, False
    try:
        block = bench.held(step.seconds) if isinstance(step, MeasureHeld) else bench.measure(settings, step.seconds)
    except TrialFailed as failure:
        error, out_of_memory = str(failure), failure.out_of_memory
    return Entry(
        settings,
        step.round,
        began_s,
        bench.now() - began,
        isinstance(step, MeasureHeld),
        block,
        error,
        out_of_memory,
        predicted,
    )


def _progress(race: Race, step: Measure | MeasureHeld, entry: Entry | None) -> SearchProgress:
    done = len(race.entries)
    now = race.standing()
    best = race.own
    if now is not None:
        best = now.best([race.own, *(arm for arm in now.arms if now.eligible(arm) and arm not in race.failed)]).winner
    return SearchProgress(
        phase=step.phase,
        settings=race.plan.baseline if isinstance(step, MeasureHeld) else step.settings,
        held=isinstance(step, MeasureHeld),
        block=done + (entry is None),
        blocks=max(done + race.blocks_left(), done + (entry is None)),
        left_s=race.left_s(),
        best=best,
        speedup=1.0 if now is None or best == race.own else exp(now.measured.ratio(best, race.own).value),
        entry=entry,
        baseline=race.plan.baseline,
    )
