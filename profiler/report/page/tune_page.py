"""A tuning as a page: what is gained, the change to paste, what was tried, batch sizes, what it rests on.

The charts of a tuning's page: what was tried with its intervals, and batch sizes with throughput and memory. Places
and lengths are in percent of the chart's width.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import isfinite, isnan

from ...analyse.statistics import Estimate
from ...record.tuning import LoaderSettings
from ...tune.result import BatchAdvice, Trial, Tuning, describe
from ..document import Caution, CodeChange, blocks_of_kind
from ..documents.tuning import BATCH, CHANGE, TRIED, change, mark_of, measured, said_memory, said_rate, tuning_document
from ..render.html import page_parts, page_sections
from ..words.figures import arguments
from .frame import render

WIDEST = 0.97
"""Share of the chart's width at which the largest value stands."""


@dataclass(frozen=True)
class TrialRow:
    settings: str
    said: str
    predicted_said: str
    blocks: int
    seconds: float
    mark: str
    note: str
    """Why it has no figure, or was not tried further; empty otherwise."""
    at: float | None
    low: float | None
    high: float | None
    predicted: float | None


@dataclass(frozen=True)
class SizeRow:
    size: int
    rate_said: str
    memory_said: str
    note: str
    rate: float | None
    low: float | None
    high: float | None
    memory: float | None


def trial_rows(result: Tuning) -> list[TrialRow]:
    """The fastest first; what was not measured last."""
    trials = sorted(result.trials, key=lambda trial: -(trial.samples_per_s or 0.0))
    # Room at the right for half of the largest mark.
    whole = (
        _most(value for t in trials for value in (t.samples_per_s, t.rate.high if t.rate else None, t.predicted))
        / WIDEST
    )
    return [_trial(result, trial, whole) for trial in trials]


def _trial(result: Tuning, trial: Trial, whole: float) -> TrialRow:
    note = trial.error if trial.status != "ok" else trial.dropped
    at, low, high = _mark(trial.rate, whole)
    return TrialRow(
        settings=_settings(trial.settings, result.baseline.settings),
        said=measured(trial).plain.strip(),
        predicted_said=said_rate(trial.predicted),
        blocks=trial.blocks,
        seconds=trial.seconds,
        mark=mark_of(result, trial),
        note=" ".join((note or "").split()),
        at=at,
        low=low,
        high=high,
        predicted=_percent(trial.predicted, whole),
    )


def _settings(settings: LoaderSettings, beside: LoaderSettings) -> str:
    """In a few words, with whether workers persist where that differs from what the program has."""
    words = describe(settings, beside)
    if settings.num_workers and settings.persistent_workers != beside.persistent_workers and "persistent" not in words:
        words += ", persistent" if settings.persistent_workers else ", not persistent"
    return words


def size_rows(advice: BatchAdvice) -> list[SizeRow]:
    """One a batch size that was tried."""
    sizes = sorted({*advice.rates, *advice.memory_bytes, *advice.failed})
    rates = _most(max(rate.value, rate.high) for rate in advice.rates.values())
    memory = _most(advice.memory_bytes.values())
    return [_size(advice, size, rates, memory) for size in sizes]


def _size(advice: BatchAdvice, size: int, rates: float, memory: float) -> SizeRow:
    rate, used = advice.rates.get(size), advice.memory_bytes.get(size)
    of_answers = [
        name
        for name, answer in (("largest that fits", advice.b_max), ("within 5 % of the best", advice.b_95))
        if answer == size
    ]
    at, low, high = _mark(rate, rates)
    off = ["off the line"] if size in advice.off_line else []
    return SizeRow(
        size=size,
        rate_said=said_rate(None if rate is None else rate.value),
        memory_said=said_memory(used),
        note=advice.failed.get(size, "") or ", ".join(of_answers + off),
        rate=at,
        low=low,
        high=high,
        memory=_percent(used, memory),
    )


def _most(values: Iterable[float | None]) -> float:
    return max((value for value in values if value is not None), default=0.0)


def _mark(rate: Estimate | None, whole: float) -> tuple[float | None, float | None, float | None]:
    """Place a rate and the ends of its interval, percent of the width."""
    if rate is None:
        return None, None, None
    return _percent(rate.value, whole), _percent(rate.low, whole), _percent(rate.high, whole)


def _percent(value: float | None, whole: float) -> float | None:
    return None if value is None or isnan(value) or whole <= 0 else 100 * value / whole


def page(result: Tuning, notices: Sequence[str] = (), environment: Sequence[tuple[str, str]] = ()) -> str:
    """Make the page. `notices`: of its data; `environment`: (what, value) of what was tuned when and where."""
    document = tuning_document(result)
    sections = {section.title: section for section in page_sections(document.blocks)}
    because = sections.pop("")
    changes = list(change(result)) if result.changed else []
    batch = sections.pop(BATCH, None)
    for shown_otherwise in (CHANGE, TRIED):
        sections.pop(shown_otherwise, None)
    return render(
        "tune.html.j2",
        title=document.title,
        styles=("table.css",),
        scripts=("table.js",),
        cautions=blocks_of_kind(document, Caution),
        notices=notices,
        because=because.blocks,
        emulated=result.device.get("kind") == "emulated",
        tiles=_tiles(result),
        change=[line for block in changes if isinstance(block, CodeChange) for line in block.lines],
        instead=page_parts([block for block in changes if not isinstance(block, CodeChange)]),
        paste=_to_paste(result),
        trials=trial_rows(result),
        batch=None if result.batch is None or batch is None else batch.blocks,
        sizes=[] if result.batch is None else size_rows(result.batch),
        sections=list(sections.values()),
        environment=environment,
    )


def _tiles(result: Tuning) -> list[tuple[str, str, str]]:
    """(what, figure, what it is about)."""
    emulated = "emulated " if result.device.get("kind") == "emulated" else ""
    best, now = (said_rate(trial.samples_per_s) for trial in (result.best, result.baseline))
    tiles = [(f"now, {emulated}samples/s", now, _between(result.baseline.rate))]
    if result.changed:
        tiles.append((f"best, {emulated}samples/s", best, _between(result.best.rate)))
        tiles.append(("speed-up", f"{result.speedup:.2f}×", _speedup_range(result.gain)))
    if result.headroom is not None:
        tiles.append(("an infinitely fast loader", *_headroom(result, result.headroom)))
    return [*tiles, ("time of the search", f"{result.wall_s:.0f} s", f"{result.steps} steps; weights are discarded")]


def _headroom(result: Tuning, headroom: float) -> tuple[str, str]:
    """Give what was measured; where a setting was faster, that setting's gain, which noise explains."""
    now, most = result.baseline.samples_per_s, result.beyond_ceiling
    if not now or most is None:
        return f"{100 * headroom:+.0f} %", "compared with now"
    measured = f"no more than the fastest setting, within noise (measured {100 * headroom:+.0f} %)"
    return f"{100 * (most / now - 1):+.0f} %", measured


def _speedup_range(speedup: Estimate) -> str:
    if not isfinite(speedup.low):
        return "interval unknown"
    return f"95 %: {speedup.low:.2f} " + (f"to {speedup.high:.2f}" if isfinite(speedup.high) else "or more")


def _between(rate: Estimate | None) -> str:
    return "" if rate is None else f"95 %: {said_rate(rate.low)} to {said_rate(rate.high)}"


def _to_paste(result: Tuning) -> str | None:
    """Give all arguments of the DataLoader; `None` where nothing changes, or the change is another command."""
    if not result.changed or result.scenario is not None:
        return None
    best = arguments(result.best.settings)
    return ", ".join(f"{name}={value}" for name, value in best.items())
