"""Limits for a run: each with what was measured, and whether it holds.

What was not measured fails, with a note, unless the user allows it. A run may also be held against another, or a saved
report. Failed is a loss whose whole interval is beyond the limit. A loss beyond the limit whose interval reaches back
within it is unclear, which is no pass either; but not one that pairs of one setting show on a quiet machine as well:
gates that fail without a reason are switched off. A loss within the limit passes, unless its interval is so wide that a
run of half the speed would not have been told.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import exp, inf, log, sqrt
from pathlib import Path
from typing import Any

from ...errors import WhyidleError
from ...record.files import plain
from ..causes.diagnosis import LEAST_STEPS
from ..ranks import figures as ranks_figures
from ..run.analysis import Analysis, lacking_of
from ..run.metrics import METRICS
from ..run.stall_breakdown import TOTAL
from ..statistics import KNOWN_FREEDOM, PAIR_PRIOR, Z95, Estimate, students_t
from .difference import EMULATED, Difference, doubts_of, refuse_mixed
from .sides import SAMPLE, STEP, Measured, Side, assumed_noise, in_both, measured, side_of

PASSED, FAILED, UNCLEAR, NOT_MEASURED = "passed", "failed", "unclear", "not measured"
SEVERITIES = ("none", "minor", "major", "critical")
STALLS = ("input", "copy", "sync", "host")
"""The parts of the time in which the device idles within the training loop."""
REGRESSION, LOST = "max-regression", "Throughput lost"
TOO_WIDE = 50.0
"""Percent of throughput that an interval may reach beyond the measured loss: one that reaches further tells nothing."""
ONE_SIDED = Z95
"""Standard errors that one of forty healthy pairs exceeds to the slower side, if they differ by what they are taken to.
They do not quite: it is about one of twenty-five (docs/commands/check.md)."""
SETTLE = (
    "to settle it, repeat the runs on each side on a quiet machine, or give the noise between runs of one setting "
    "with --noise; --allow-noisy lets it pass"
)
MOST_SAMPLES_PER_S = 1e300
"""Samples/s from which a saved report holds nonsense: a whole number of that size may be no float."""


@dataclass(frozen=True)
class Asked:
    """What a run is held to; nothing is asked that is not there."""

    limits: Mapping[str, float]
    """By flag without the dashes before it: those of `LIMITS`, `min-steps` and `max-regression`."""
    max_severity: str | None = None
    forbid: tuple[str, ...] = ()
    """Causes, or families of them."""
    against: tuple[Path, ...] = ()
    """Runs, or one saved report, that throughput is compared with."""
    noise: float | None = None
    """Standard deviation between runs of one setting, as a share; `None`: assumed."""
    allow: frozenset[str] = field(default_factory=frozenset)
    """What is let pass, of `missing`, `short`, `unfinished` and `noisy`."""


@dataclass(frozen=True)
class LimitCheck:
    """One limit held against a run."""

    name: str
    """Flag without the dashes before it; `forbid CAUSE` of a cause."""
    what: str
    """The same in words."""
    status: str
    """`passed`, `failed`, `not measured`; or `unclear`: measured, but too noisily to say on which side of the limit."""
    allowed: bool
    """Whether what was not measured, too short or unclear is let pass, since the user said so."""
    measured: float | str | None
    limit: float | str
    at_most: bool = True
    """Whether `limit` is the most that is allowed; else it is the least."""
    unit: str = ""
    note: str = ""

    @property
    def holds(self) -> bool:
        """Whether this limit lets the run pass."""
        return self.allowed or self.status == PASSED


def checks_of(
    runs: Mapping[Path, Analysis], asked: Asked, report: Mapping[str, Any] | None = None
) -> tuple[Path, list[LimitCheck]]:
    """Hold runs that repeat each other against every limit that was asked. `report`: what `against` holds, where that
    is a saved report.

    Returns:
        The folder of the run whose throughput is the median, which most limits are held against, and the checks: first
        whether all runs are whole, and whether they are long enough to be held to any limit.

    Raises:
        WhyidleError: the runs cannot be compared with what was named.
    """
    with_steps = tuple(measured(folder, each) for folder, each in runs.items() if each.facts is not None)
    side = Side("B", with_steps) if with_steps else None
    folder = next(iter(runs)) if side is None else side.typical.folder
    analysis = runs[folder]
    missing = "missing" in asked.allow
    found = [_ended(runs, asked), _steps(runs, analysis, asked)]
    for name, (what, unit, read) in LIMITS.items():
        if (limit := asked.limits.get(name)) is not None:
            at_most, value = name.startswith("max"), read(analysis)
            if value is None:
                note = "the run did not measure it"
                found.append(LimitCheck(name, what, NOT_MEASURED, missing, None, limit, at_most, unit, note))
            else:
                status = PASSED if (value <= limit if at_most else value >= limit) else FAILED
                found.append(LimitCheck(name, what, status, False, value, limit, at_most, unit))
    found += _causes(analysis, asked)
    if REGRESSION in asked.limits:
        found.append(_nothing(asked, analysis.verdict.title) if side is None else _regression(side, asked, report))
    return folder, found


def _ended(runs: Mapping[Path, Analysis], asked: Asked) -> LimitCheck:
    """Whether all of these recordings are whole."""
    lacking = {str(folder): "; ".join(why) for folder, of in runs.items() if (why := lacking_of(folder, of))}
    if not lacking:
        return LimitCheck("ended", "The training ended", PASSED, False, "yes", "yes", False)
    said = "; ".join(why if len(runs) == 1 else f"{folder}: {why}" for folder, why in lacking.items())
    note = str(plain(f"{said}. Its figures cover the recorded part. --allow-unfinished accepts it"))
    allowed = "unfinished" in asked.allow
    return LimitCheck("ended", "The training ended", FAILED, allowed, "no", "yes", False, note=note)


def _steps(runs: Mapping[Path, Analysis], analysis: Analysis, asked: Asked) -> LimitCheck:
    """Fewer steps than support a verdict prove nothing, whatever the figures say; of repeats the shortest counts."""
    folder = min(runs, key=lambda each: (not _short(runs[each], asked), _count(runs[each])))
    least, note = asked.limits.get("min-steps"), ""
    passed = not _short(runs[folder], asked)
    if not passed:
        note = "too few to tell anything" if least is None else "fewer than asked" if len(runs) > 1 else ""
        note = str(plain(f"{folder}: {note}")) if len(runs) > 1 else note
    elif analysis.verdict.cause is None and (asked.max_severity is not None or asked.forbid):
        note = analysis.verdict.title
    status, steps = PASSED if passed else FAILED, float(_count(runs[folder]))
    limit = LEAST_STEPS if least is None else least
    what = "Steps after the warm-up"
    return LimitCheck("min-steps", what, status, "short" in asked.allow, steps, limit, False, note=note)


def _short(analysis: Analysis, asked: Asked) -> bool:
    """Whether a run has fewer steps than were asked; unless any were, than support a verdict."""
    if (least := asked.limits.get("min-steps")) is not None:
        return _count(analysis) < least
    return analysis.facts is None or len(analysis.facts.window.steps) < LEAST_STEPS


def _count(analysis: Analysis) -> int:
    """Steps after the warm-up."""
    return 0 if analysis.facts is None else analysis.facts.window.count


def _causes(analysis: Analysis, asked: Asked) -> Iterator[LimitCheck]:
    """The worst severity that is allowed, and causes that are forbidden."""
    verdict, short = analysis.verdict, "short" in asked.allow
    held = [("max-severity", "Severity of the worst cause", asked.max_severity)] if asked.max_severity else []
    for name, what, limit in (*held, *((f"forbid {cause}", f"Cause {cause}", "not found") for cause in asked.forbid)):
        if verdict.cause is None:
            yield LimitCheck(name, what, NOT_MEASURED, short, None, limit, note=verdict.title)
            continue
        if name == "max-severity":
            worst = max((verdict, *analysis.findings), key=lambda each: SEVERITIES.index(each.severity))
            seen, bad = worst.severity, [worst] * (SEVERITIES.index(worst.severity) > SEVERITIES.index(limit))
        else:
            cause = name.removeprefix("forbid ")
            bad = [each for each in analysis.findings if f"{each.cause}.".startswith(f"{cause}.")]
            seen = "found" if bad else "not found"
        note = "; ".join(str(plain(f"{each.cause}: {each.title}")) for each in bad)
        yield LimitCheck(name, what, FAILED if bad else PASSED, False, seen, limit, note=note)


Read = Callable[[Analysis], float | None]


def _percent(*parts: str) -> Read:
    """The share of these parts of the wall time, where all of them are known."""

    def read(analysis: Analysis) -> float | None:
        shares = ranks_figures.shares(analysis)
        return 100 * sum(shares[part] for part in parts) if all(part in shares for part in parts) else None

    return read


def _of_job(metric: str) -> tuple[str, str, Read]:
    of = METRICS[metric]
    return of.label, of.unit, lambda analysis: ranks_figures.figure(analysis, metric)


def _rate(analysis: Analysis) -> float | None:
    return ranks_figures.rate_of(analysis) if analysis.facts is not None and analysis.facts.samples_known else None


LIMITS: Mapping[str, tuple[str, str, Read]] = {
    "max-stall": ("Exposed stall (input, copy, sync, host)", "%", _percent(*STALLS)),
    **{f"max-{part}": (f"Exposed {part}", "%", _percent(part)) for part in STALLS},
    "max-boundary": ("Time outside the steps", "%", _percent("boundary")),
    "max-overhead": _of_job("overhead_pct"),
    "max-dropped": ("Records that could not be stored", "", lambda analysis: float(analysis.dropped_records)),
    "min-samples-per-s": ("Throughput", "samples/s", _rate),
    "min-utilisation": _of_job("utilisation_pct"),
    "min-busy": _of_job("busy_pct"),
    "min-au": _of_job("au_pct"),
}
"""Flag → (what it is of, its unit, how it is read); percentages are of wall time."""


def _regression(side: Side, asked: Asked, report: Mapping[str, Any] | None) -> LimitCheck:
    """Whether these runs lost more throughput than the limit against other ones, or against a saved report."""
    against = f"{asked.against[0]} and {len(asked.against) - 1} more" if asked.against[1:] else str(asked.against[0])
    runs = [*side.runs]
    if report is None:
        other = side_of("A", asked.against)
        if (itself := in_both(side, other)) is not None:
            raise WhyidleError(f"--against names the checked run itself, {itself}. Name another run.")
        refuse_mixed(other, side)
        runs = [*other.runs, *side.runs]
    few = [(str(run.folder), run.facts.window.count) for run in runs if _short(run.analysis, asked)]
    if report is not None:
        steps = _table(report, "window").get("steps")
        few += [(against, steps)] if type(steps) is int and steps < asked.limits.get("min-steps", LEAST_STEPS) else []
    for name, steps in few[:1] if "short" not in asked.allow else ():
        why = f"{name} has {steps} step{'s' * (steps != 1)} after the warm-up, too few to compare"
        return replace(_nothing(asked, why), allowed=False)
    if report is not None:
        return _against_report(side, report, against, asked)
    return against_runs(Difference(other, side, asked.noise), against, asked)


def _nothing(asked: Asked, why: str) -> LimitCheck:
    """The check where there is nothing to hold against the limit."""
    missing, limit = "missing" in asked.allow, asked.limits[REGRESSION]
    return LimitCheck(REGRESSION, LOST, NOT_MEASURED, missing, None, limit, True, "%", str(plain(why)))


def lost_of(speedup: Estimate, usual: float, against: str, asked: Asked, notes: Sequence[str] = ()) -> LimitCheck:
    """Hold the percentage of throughput that was lost against the limit.

    Args:
        speedup: how many times as fast the run is.
        usual: the loss in percent that few healthy pairs exceed on a quiet machine.
        against: what it is compared with.
        notes: what is not alike.
    """
    limit = asked.limits[REGRESSION]
    lost, least, most = (100 * (1 - times) for times in (speedup.value, speedup.high, speedup.low))
    ladder = (
        (least > limit, FAILED, ", surely slower than the limit allows"),
        (lost > max(limit, usual), UNCLEAR, f": beyond the limit, but noise may be the reason; {SETTLE}"),
        (most - max(lost, 0.0) >= TOO_WIDE and most > limit, UNCLEAR, f": too noisy to tell; {SETTLE}"),
        (
            lost > limit,
            PASSED,
            f": beyond the limit, but no more than healthy runs differ ({usual:.1f} %). Repeat the runs to tell",
        ),
        (most <= limit, PASSED, ", surely within the limit"),
        (True, PASSED, f": within the limit as measured; a loss of {most:.1f} % is not excluded"),
    )
    status, said = next((status, said) for holds, status, said in ladder if holds)
    low, high = (f"{abs(loss):.1f} % {'less' if loss >= 0 else 'more'}" for loss in (least, most))
    note = ". ".join((f"against {against}: 95 % interval {low} to {high}{said}", *(n.removesuffix(".") for n in notes)))
    allowed = status == UNCLEAR and "noisy" in asked.allow
    return LimitCheck(REGRESSION, LOST, status, allowed, lost, limit, True, "%", str(plain(note)))


def _usual(sides: Sequence[Sequence[Measured]], noise: float | None) -> float:
    """Percent of throughput that few pairs of one setting lose by chance on a quiet machine: by what such runs are
    taken to differ by, and by the scatter of their steps as far as that is no larger."""
    between = (PAIR_PRIOR.noise if noise is None else noise) ** 2
    variance = 0.0
    for side in sides:
        own = [run.scatter[SAMPLE][TOTAL] if SAMPLE in run.scatter else inf for run in side]
        variance += (between + min(between, sum(own) / len(own))) / len(side)
    return 100 * (1 - exp(-ONE_SIDED * sqrt(variance)))


def against_runs(found: Difference, against: str, asked: Asked) -> LimitCheck:
    """Check whether a run lost more than the limit. `found`: the run as side B, the others, `against`, as side A."""
    if found.times.unit == STEP and (found.a.facts.batch_size, found.b.facts.batch_size) != (None, None):
        return _nothing(asked, f"against {against}: samples/s are not known for both")
    notes = [*found.unlike(), *(doubt for run in found.a.runs for doubt in doubts_of(run))]
    return lost_of(found.times.speedup, _usual((found.a.runs, found.b.runs), asked.noise), against, asked, notes)


def _against_report(side: Side, report: Mapping[str, Any], against: str, asked: Asked) -> LimitCheck:
    """The same against a saved report, which may be anyone's file, and tells its throughput alone."""
    run, window = _table(report, "run"), _table(report, "window")
    device, code = _table(run, "device"), run.get("exit_code")
    emulated = device.get("kind") == EMULATED, side.facts.device_kind == EMULATED
    if emulated[0] != emulated[1]:
        of_report, of_run = ("an emulated device" if each else "a real device" for each in emulated)
        raise WhyidleError(
            f"{against} is of {of_report}, the run of {of_run}: emulated and measured times are not compared. "
            "Name a report of the same kind."
        )
    before: Any = window.get("samples_per_s")
    now = side.rates
    if type(before) not in (int, float) or not 0 < before < MOST_SAMPLES_PER_S or not now:
        return _nothing(asked, f"against {against}: samples/s are not known for both")
    between = (assumed_noise(side.typical) if asked.noise is None else asked.noise) ** 2
    own = [run.scatter[SAMPLE][TOTAL] for run in side.runs if SAMPLE in run.scatter]
    # The report does not tell what its run scattered by: taken to be as much as this side's, or as the assumption.
    within = sum(own) / len(own) if own else between
    of_runs = sqrt((between + within) * (1 + 1 / len(now)))
    reach = of_runs * students_t(PAIR_PRIOR.freedom if asked.noise is None else KNOWN_FREEDOM)
    mine = side.info.get("device") or {}
    told = (
        ("batch size", window.get("batch_size"), side.facts.batch_size),
        ("device", device.get("name"), mine.get("title") or mine.get("name")),
    )
    notes = [f"Its {what} was {then}, this run's is {here}" for what, then, here in told if then not in (None, here)]
    if type(code) is int and code != 0:
        notes.append(f"{against}: it did not end well (exit code {code})")
    speedup = Estimate.around(log(sum(now) / len(now) / before), reach).exp()
    return lost_of(speedup, _usual((side.runs[:1], side.runs), asked.noise), against, asked, notes)


def _table(content: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """A table of a report; empty where it has none."""
    found = content.get(name)
    return found if isinstance(found, Mapping) else {}
