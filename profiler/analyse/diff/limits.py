"""Limits for a run: each with what was measured, and whether it holds.

What was not measured fails, with a note, unless the user allows it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from ...record.files import plain
from ..causes.diagnosis import LEAST_STEPS
from ..cells.comparison import rate_of
from ..ranks import figures as ranks_figures
from ..run.analysis import Analysis
from ..run.facts import Facts
from ..run.metrics import METRICS

PASSED, FAILED, UNCLEAR, NOT_MEASURED = "passed", "failed", "unclear", "not measured"
SEVERITIES = ("none", "minor", "major", "critical")
STALLS = ("input", "copy", "sync", "host")
"""The parts of the time in which the device idles within the training loop."""


@dataclass(frozen=True)
class Limits:
    """What a run is held to. `None`: not asked. Percentages are of wall time unless their name says otherwise."""

    max_stall: float | None = None
    max_input: float | None = None
    max_copy: float | None = None
    max_sync: float | None = None
    max_host: float | None = None
    max_boundary: float | None = None
    min_samples_per_s: float | None = None
    min_utilisation: float | None = None
    min_busy: float | None = None
    min_au: float | None = None
    max_overhead: float | None = None
    max_dropped: float | None = None
    min_steps: float | None = None
    max_severity: str | None = None
    forbid: tuple[str, ...] = ()
    max_regression: float | None = None

    @property
    def asked(self) -> bool:
        """Whether the run is held to anything."""
        return any(getattr(self, each.name) not in (None, ()) for each in fields(self))


@dataclass(frozen=True)
class LimitCheck:
    """One limit held against a run. `passed` is `None` where nothing was measured."""

    name: str
    """The flag without the dashes before it; `forbid CAUSE` of a cause."""
    what: str
    measured: float | str | None
    limit: float | str
    unit: str
    passed: bool | None
    at_most: bool
    note: str = ""
    allowed: bool = False
    """Whether what was not measured, too short or unclear is let pass, since the user said so."""
    unclear: bool = False
    """Whether it was measured, but too noisily to say on which side of the limit it is; `passed` is false then."""

    @property
    def status(self) -> str:
        if self.passed is None:
            return NOT_MEASURED
        return PASSED if self.passed else UNCLEAR if self.unclear else FAILED

    @property
    def holds(self) -> bool:
        """Whether this limit lets the run pass."""
        return self.allowed or self.passed is True


@dataclass(frozen=True)
class Subject:
    """What limits are held against, of a run; of a job of several ranks its own figures."""

    shares: Mapping[str, float]
    """Of wall time, 0..1; parts that are not known are not there."""
    analysis: Analysis
    repeats: Mapping[str, Analysis] = field(default_factory=dict)
    """Folder → analysis of each of several runs that repeat each other; empty of a single run."""

    @property
    def facts(self) -> Facts | None:
        return self.analysis.facts


def subject_of(analysis: Analysis, repeats: Mapping[str, Analysis] | None = None) -> Subject:
    return Subject(ranks_figures.shares(analysis), analysis, repeats or {})


def ended_of(lacking: Mapping[str, Sequence[str]], allowed: bool) -> LimitCheck:
    """Whether all of these recordings are whole. `lacking`: by folder, what of it is not there."""
    without = [(folder, "; ".join(why)) for folder, why in lacking.items() if why]
    if not without:
        return LimitCheck("ended", "The training ended", "yes", "yes", "", True, False)
    said = "; ".join(why if len(lacking) == 1 else f"{folder}: {why}" for folder, why in without)
    note = f"{said}. Its figures cover the recorded part. --allow-unfinished accepts it"
    return LimitCheck("ended", "The training ended", "no", "yes", "", False, False, str(plain(note)), allowed)


def checks_of(subject: Subject, limits: Limits, *, allow_missing: bool, allow_short: bool) -> list[LimitCheck]:
    """Every limit that was asked, and first whether the run is long enough to be held to any."""
    found = [_steps(subject, limits, allow_short)]
    for name, what, unit, read in _MOST:
        if (limit := getattr(limits, name)) is not None:
            found.append(_held(name.replace("_", "-"), what, unit, read(subject), limit, True, allow_missing))
    for name, what, unit, read in _LEAST:
        if (limit := getattr(limits, name)) is not None:
            found.append(_held(name.replace("_", "-"), what, unit, read(subject), limit, False, allow_missing))
    if limits.max_severity is not None:
        found.append(_severity(subject, limits.max_severity, allow_short))
    found += _forbidden(subject, limits.forbid, allow_short)
    return found


def _held(
    name: str, what: str, unit: str, value: float | None, limit: float, at_most: bool, allow_missing: bool
) -> LimitCheck:
    if value is None:
        return LimitCheck(name, what, None, limit, unit, None, at_most, "the run did not measure it", allow_missing)
    return LimitCheck(name, what, value, limit, unit, value <= limit if at_most else value >= limit, at_most)


def _steps(subject: Subject, limits: Limits, allow_short: bool) -> LimitCheck:
    """Fewer steps than support a verdict prove nothing, whatever the figures say; of repeats the shortest counts."""
    runs = subject.repeats or {"": subject.analysis}
    name = min(runs, key=lambda each: (not short(runs[each], limits.min_steps), _count(runs[each])))
    steps, verdict = _count(runs[name]), subject.analysis.verdict
    least = LEAST_STEPS if limits.min_steps is None else limits.min_steps
    passed, note = not short(runs[name], limits.min_steps), ""
    if not passed:
        few = "too few to tell anything" if limits.min_steps is None else "fewer than asked" if name else ""
        note = str(plain(f"{name}: {few}")) if name else few
    elif verdict.cause is None and _asks_for_verdict(limits):
        note = verdict.title
    return LimitCheck("min-steps", "Steps after the warm-up", float(steps), least, "", passed, False, note, allow_short)


def short(analysis: Analysis, min_steps: float | None) -> bool:
    """Whether a run has fewer steps than were asked; unless any were, than support a verdict."""
    if min_steps is not None:
        return _count(analysis) < min_steps
    return analysis.facts is None or len(analysis.facts.window.steps) < LEAST_STEPS


def _count(analysis: Analysis) -> int:
    """Steps after the warm-up."""
    return 0 if analysis.facts is None else analysis.facts.window.count


def _asks_for_verdict(limits: Limits) -> bool:
    return limits.max_severity is not None or bool(limits.forbid)


def _severity(subject: Subject, limit: str, allow_short: bool) -> LimitCheck:
    verdict = subject.analysis.verdict
    what = "Severity of the worst cause"
    if verdict.cause is None:
        return LimitCheck("max-severity", what, None, limit, "", None, True, verdict.title, allow_short)
    worst = max((verdict, *subject.analysis.findings), key=lambda f: SEVERITIES.index(f.severity))
    passed = SEVERITIES.index(worst.severity) <= SEVERITIES.index(limit)
    return LimitCheck("max-severity", what, worst.severity, limit, "", passed, True, "" if passed else _said(worst))


def _forbidden(subject: Subject, causes: tuple[str, ...], allow_short: bool) -> Iterator[LimitCheck]:
    analysis = subject.analysis
    found = {finding.cause: finding for finding in analysis.findings}
    for cause in causes:
        what = f"Cause {cause}"
        if analysis.verdict.cause is None:
            yield LimitCheck(
                f"forbid {cause}", what, None, "not found", "", None, True, analysis.verdict.title, allow_short
            )
            continue
        hits = [each for each in found.values() if each.cause == cause or (each.cause or "").startswith(f"{cause}.")]
        measured = "found" if hits else "not found"
        yield LimitCheck(
            f"forbid {cause}", what, measured, "not found", "", not hits, True, "; ".join(_said(each) for each in hits)
        )


def _said(finding: Any) -> str:
    return str(plain(f"{finding.cause}: {finding.title}"))


_Row = tuple[str, str, str, Callable[[Subject], float | None]]
"""(limit, what it is of, its unit, how it is read)"""


def _percent(part: str) -> Callable[[Subject], float | None]:
    return lambda subject: 100 * subject.shares[part] if part in subject.shares else None


def _stall(subject: Subject) -> float | None:
    if any(part not in subject.shares for part in STALLS):
        return None
    return 100 * sum(subject.shares[part] for part in STALLS)


def _of_job(limit: str, metric: str) -> _Row:
    of = METRICS[metric]
    return limit, of.label, of.unit, lambda subject: ranks_figures.figure(subject.analysis, metric)


def _rate(subject: Subject) -> float | None:
    known = subject.facts is not None and subject.facts.samples_known
    return rate_of(subject.analysis) if known else None


_MOST: tuple[_Row, ...] = (
    ("max_stall", "Exposed stall (input, copy, sync, host)", "%", _stall),
    *((f"max_{part}", f"Exposed {part}", "%", _percent(part)) for part in STALLS),
    ("max_boundary", "Time outside the steps", "%", _percent("boundary")),
    _of_job("max_overhead", "overhead_pct"),
    ("max_dropped", "Records that could not be stored", "", lambda s: float(s.analysis.dropped_records)),
)
_LEAST: tuple[_Row, ...] = (
    ("min_samples_per_s", "Throughput", "samples/s", _rate),
    _of_job("min_utilisation", "utilisation_pct"),
    _of_job("min_busy", "busy_pct"),
    _of_job("min_au", "au_pct"),
)
