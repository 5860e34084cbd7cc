"""Diagnoses against planted faults: what was named for what was planted, how often, and how far shares were off."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from whyidle.analyse.causes.finding import Next
from whyidle.analyse.statistics import wilson

HEALTHY = "none"
"""Planted in a control; also the verdict where nothing is worth changing."""
NO_VERDICT = "no verdict"
FOREIGN_LOAD = "input.foreign_load"
CLOSE = 5.0
"""A share this many percentage points from the truth is right."""
FIRST_FINDINGS = 3
"""Both causes of a compound are to be among so many."""
QUIET = ("none", "minor")
"""Severities that a finding on a healthy training may have."""


@dataclass(frozen=True)
class Named:
    """A finding: its cause, the share of wall time it explains (0..1), its severity."""

    cause: str
    share: float
    severity: str


@dataclass(frozen=True)
class JudgedRun:
    """One run of a training in which it is known what is wrong, and what was said about it."""

    case: str
    planted: tuple[str, ...]
    """Cause codes; none in a healthy control, several in a compound."""
    verdict: str | None
    """The cause named first; `None` where there was no verdict."""
    findings: tuple[Named, ...]
    """As ranked."""
    truth: Mapping[str, float]
    """Cause → the share of wall time (0..1) that it really cost; without those that have no measured truth."""
    steps: int = 0
    foreign: bool = False
    """Another program kept a CPU busy meanwhile: to name that is right too."""
    link: str | None = None
    """The run's folder."""
    advice: Next | None = None
    """The first."""

    @property
    def is_control(self) -> bool:
        return not self.planted

    @property
    def is_compound(self) -> bool:
        return len(self.planted) > 1

    @property
    def named_first(self) -> bool:
        """A planted cause is the verdict; of a control: no finding is above `minor`."""
        if self.foreign and self.verdict == FOREIGN_LOAD:
            return True
        if self.is_control:
            return self.verdict is not None and self.loudest in QUIET
        return self.verdict in self.planted

    @property
    def named_all(self) -> bool:
        """Every planted cause is among the first findings."""
        first = {f.cause for f in self.findings[:FIRST_FINDINGS]}
        missing = set(self.planted) - first
        return not missing or (self.foreign and len(missing) == 1 and FOREIGN_LOAD in first)

    @property
    def loudest(self) -> str:
        """The severity of the finding with the largest gain."""
        order = ("none", "minor", "major", "critical")
        return max((f.severity for f in self.findings), key=order.index, default="none")

    def has_share_of(self, cause: str) -> bool:
        """Whether a reported share can be held against a true one: not where others' load rightly took its place."""
        return cause in self.truth and not (
            self.foreign and self.verdict == FOREIGN_LOAD and self.reported(cause) is None
        )

    def reported(self, cause: str) -> float | None:
        """The share that a finding gives the cause; `None` where none names it."""
        return next((f.share for f in self.findings if f.cause == cause), None)


@dataclass(frozen=True)
class HitRate:
    """So many of so many, with the 95 % interval of the rate behind it (Wilson's)."""

    hits: int
    of: int

    @property
    def value(self) -> float | None:
        return self.hits / self.of if self.of else None

    @property
    def interval(self) -> tuple[float, float]:
        found = wilson(self.value or 0.0, self.of)
        return found.low, found.high


@dataclass(frozen=True)
class Errors:
    """Distances between reported and true shares, in percentage points; `None` where there are none."""

    median: float | None
    worst: float | None
    close: HitRate
    """Runs within `CLOSE` points, of all with a known truth. A cause that no finding names is not close."""
    unnamed: int
    """Runs with a known truth in which no finding names the cause: they have no distance."""


@dataclass(frozen=True)
class CauseShare:
    """A planted cause of a case: medians over its runs, in percent of wall time."""

    cause: str
    true_pct: float | None
    reported_pct: float | None
    """Over the runs in which a finding named it."""
    errors: Errors


@dataclass(frozen=True)
class CaseSummary:
    """All runs of one case."""

    case: str
    planted: tuple[str, ...]
    runs: int
    named: Mapping[str, int]
    """Verdict → how often, the commonest first."""
    first: HitRate
    """Runs with a planted cause as the verdict; of a control: without a finding above `minor`."""
    every: HitRate
    """Runs with every planted cause among the first findings."""
    shares: tuple[CauseShare, ...]
    loud: Mapping[str, int]
    """Causes of findings above `minor` → in how many runs."""
    steps: int
    """Fewest steps that a verdict rested on."""


@dataclass(frozen=True)
class Confusion:
    """Everything that a set of runs says about the diagnosis."""

    matrix: Mapping[str, Mapping[str, int]]
    """Planted (one cause, or none) → named → runs. Compounds have no row: any of their causes may come first."""
    faults: HitRate
    """Single faults named first."""
    compounds: HitRate
    """Compound runs with all causes among the first three findings."""
    compounds_first: HitRate
    """Compound runs whose verdict is one of the causes."""
    controls: HitRate
    """Runs of healthy controls without a finding above `minor`."""
    errors: Errors
    """Of the shares of single faults."""
    cases: tuple[CaseSummary, ...]

    @property
    def columns(self) -> list[str]:
        """What was named, the planted causes in the rows' order first."""
        named = {name for row in self.matrix.values() for name in row}
        return [*(name for name in self.matrix if name in named), *sorted(named - self.matrix.keys())]


def confusion(runs: Sequence[JudgedRun]) -> Confusion:
    """Put judged runs together, in the order of their cases."""
    single = [r for r in runs if len(r.planted) == 1]
    compounds = [r for r in runs if r.is_compound]
    controls = [r for r in runs if r.is_control]
    matrix: dict[str, Counter[str]] = {}
    for run in (*single, *controls):
        matrix.setdefault(run.planted[0] if run.planted else HEALTHY, Counter())[_verdict(run)] += 1
    if HEALTHY in matrix:
        matrix[HEALTHY] = matrix.pop(HEALTHY)  # the last row
    pairs = [_pair(run, run.planted[0]) for run in single if run.has_share_of(run.planted[0])]
    by_case: dict[str, list[JudgedRun]] = {}
    for run in runs:
        by_case.setdefault(run.case, []).append(run)
    return Confusion(
        matrix={planted: dict(counts.most_common()) for planted, counts in matrix.items()},
        faults=_rate(run.named_first for run in single),
        compounds=_rate(run.named_all for run in compounds),
        compounds_first=_rate(run.named_first for run in compounds),
        controls=_rate(run.named_first for run in controls),
        errors=_errors(pairs),
        cases=tuple(_summary(case, mine) for case, mine in by_case.items()),
    )


def _summary(case: str, runs: Sequence[JudgedRun]) -> CaseSummary:
    loud = Counter(cause for r in runs for cause in {f.cause for f in r.findings if f.severity not in QUIET})
    return CaseSummary(
        case=case,
        planted=runs[0].planted,
        runs=len(runs),
        named=dict(Counter(_verdict(r) for r in runs).most_common()),
        first=_rate(r.named_first for r in runs),
        every=_rate(r.named_all for r in runs),
        shares=tuple(_share(cause, runs) for cause in runs[0].planted),
        loud=dict(loud.most_common()),
        steps=min(r.steps for r in runs),
    )


def _share(cause: str, runs: Sequence[JudgedRun]) -> CauseShare:
    pairs = [_pair(run, cause) for run in runs if run.has_share_of(cause)]
    reported = [said for said in (run.reported(cause) for run in runs) if said is not None]
    return CauseShare(
        cause,
        100 * median(true for true, _ in pairs) if pairs else None,
        100 * median(reported) if reported else None,
        _errors(pairs),
    )


def _pair(run: JudgedRun, cause: str) -> tuple[float, float | None]:
    """The true and the reported share."""
    return run.truth[cause], run.reported(cause)


def _errors(pairs: Sequence[tuple[float, float | None]]) -> Errors:
    off = [100 * abs(reported - true) for true, reported in pairs if reported is not None]
    return Errors(
        median(off) if off else None,
        max(off, default=None),
        HitRate(sum(each <= CLOSE for each in off), len(pairs)),
        len(pairs) - len(off),
    )


def _rate(hits: Iterable[bool]) -> HitRate:
    counted = list(hits)
    return HitRate(sum(counted), len(counted))


def _verdict(run: JudgedRun) -> str:
    return run.verdict if run.verdict is not None else NO_VERDICT
