"""The charts of a tuning's page: what was tried with its intervals, and batch sizes with throughput and memory.

Places and lengths are in percent of the chart's width.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import isnan

from ...analyse.statistics import Estimate
from ...record.tuning import LoaderSettings
from ...tune.search.candidates import describe
from ...tune.search.result import BatchAdvice, Trial
from ...tune.search.tuning import Tuning
from ..documents.tuning import mark_of, measured, said_memory, said_rate

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
    """Why it has no figure, or was not tried further."""
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
    trials = sorted(result.tuned.trials, key=lambda trial: -(trial.samples_per_s or 0.0))
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
        settings=_settings(trial.settings, result.tuned.baseline.settings),
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
    """Where a rate and the ends of its interval stand, percent of the width."""
    if rate is None:
        return None, None, None
    return _percent(rate.value, whole), _percent(rate.low, whole), _percent(rate.high, whole)


def _percent(value: float | None, whole: float) -> float | None:
    return None if value is None or isnan(value) or whole <= 0 else 100 * value / whole
