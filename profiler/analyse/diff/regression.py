"""Whether a run is slower than another by more than is allowed, and by more than noise.

Failed is a loss whose whole interval is beyond the limit. A loss beyond the limit whose interval reaches back within it
is unclear, which is no pass either; but not one that pairs of one setting show on a quiet machine as well:
gates that fail without a reason are switched off. A loss within the limit passes, unless its interval is so wide that a
run of half the speed would not have been told.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import exp, inf, log, sqrt
from typing import Any

from ...errors import WhyidleError
from ...record.files import plain
from ..run.stall_breakdown import TOTAL
from ..statistics import KNOWN_FREEDOM, PAIR_PRIOR, Z95, Estimate, students_t
from .difference import EMULATED, Difference, doubts_of
from .limits import LimitCheck
from .settings import rates
from .sides import Measured, Side
from .times import STEP, assumed_noise

NAME = "max-regression"
LOST = "Throughput lost"
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


def lost_of(speedup: Estimate) -> Estimate:
    """Percent of throughput that was lost, from how many times as fast the run is."""
    return Estimate(100 * (1 - speedup.value), 100 * (1 - speedup.high), 100 * (1 - speedup.low))


def check_of(lost: Estimate, limit: float, against: str, usual: float, allow_noisy: bool) -> LimitCheck:
    """`usual`: the loss in percent that few healthy pairs exceed on a quiet machine."""
    said = f"against {against}: 95 % interval {_words(lost.low)} to {_words(lost.high)}"
    passed = unclear = False
    if lost.low > limit:
        note = f"{said}, surely slower than the limit allows"
    elif lost.value > max(limit, usual):
        unclear, note = True, f"{said}: beyond the limit, but noise may be the reason; {SETTLE}"
    elif lost.high - max(lost.value, 0.0) >= TOO_WIDE and lost.high > limit:
        unclear, note = True, f"{said}: too noisy to tell; {SETTLE}"
    elif lost.value > limit:
        passed = True
        note = (
            f"{said}: beyond the limit, but no more than healthy runs differ ({usual:.1f} %). Repeat the runs to tell"
        )
    elif lost.high <= limit:
        passed, note = True, f"{said}, surely within the limit"
    else:
        passed, note = True, f"{said}: within the limit as measured; a loss of {lost.high:.1f} % is not excluded"
    return LimitCheck(NAME, LOST, lost.value, limit, "%", passed, True, note, unclear and allow_noisy, unclear)


def usual_of(sides: Sequence[Sequence[Measured]], noise: float | None) -> float:
    """Percent of throughput that few pairs of one setting lose by chance on a quiet machine: by what such runs are
    taken to differ by, and by the scatter of their steps as far as that is no larger."""
    between = (PAIR_PRIOR.noise if noise is None else noise) ** 2
    variance = 0.0
    for side in sides:
        own = [spread.variance[TOTAL] if (spread := run.scatter(samples=True)) else inf for run in side]
        variance += (between + min(between, sum(own) / len(own))) / len(side)
    return 100 * (1 - exp(-ONE_SIDED * sqrt(variance)))


def _words(lost: float) -> str:
    return f"{abs(lost):.1f} % {'less' if lost >= 0 else 'more'}"


def not_comparable(limit: float, why: str, allowed: bool) -> LimitCheck:
    """The check where there is nothing to hold against the limit. `why`: a sentence; `allowed`: it is let pass."""
    return LimitCheck(NAME, LOST, None, limit, "%", None, True, why, allowed)


def against_runs(
    found: Difference, limit: float, against: str, noise: float | None, *, allow_missing: bool, allow_noisy: bool
) -> LimitCheck:
    """Whether a run lost more than the limit against other runs. `found`: the run as side B, the others as side A."""
    if found.times.unit == STEP and (found.a.facts.batch_size, found.b.facts.batch_size) != (None, None):
        return not_comparable(limit, f"against {against}: samples/s are not known for both", allow_missing)
    usual = usual_of((found.a.runs, found.b.runs), noise)
    check = check_of(lost_of(found.times.speedup), limit, against, usual, allow_noisy)
    unlike = [
        note
        for note in found.notes
        if note.startswith(("The two sides do not", "The devices differ", "How many samples"))
    ]
    unlike += [str(plain(doubt)) for run in found.a.runs for doubt in doubts_of(run)]
    return check if not unlike else _noted(check, unlike)


def against_report(
    side: Side,
    report: Mapping[str, Any],
    limit: float,
    against: str,
    noise: float | None,
    *,
    allow_missing: bool,
    allow_noisy: bool,
) -> LimitCheck:
    """Whether a run lost more than the limit against a saved report, which tells its throughput alone.

    Raises:
        WhyidleError: it is of another kind of device.
    """
    device = _table(_table(report, "run"), "device")
    window = _table(report, "window")
    kind = device.get("kind")
    mine = side.typical.device_kind
    if (kind == EMULATED) != (mine == EMULATED):
        raise WhyidleError(
            f"{against} is of {_kind(kind)}, the run of {_kind(mine)}: emulated and measured times are not compared. "
            "Name a report of the same kind."
        )
    before = window.get("samples_per_s")
    now = rates(side)
    if (
        not isinstance(before, int | float)
        or isinstance(before, bool)
        or not 0 < before < MOST_SAMPLES_PER_S
        or not now
    ):
        return not_comparable(limit, f"against {against}: samples/s are not known for both", allow_missing)
    between = (assumed_noise(side.typical) if noise is None else noise) ** 2
    own = [spread.variance[TOTAL] for run in side.runs if (spread := run.scatter(samples=True)) is not None]
    # The report does not tell what its run scattered by: taken to be as much as this side's, or as the assumption.
    within = sum(own) / len(own) if own else between
    of_runs = sqrt((between + within) * (1 + 1 / len(now)))
    freedom = PAIR_PRIOR.freedom if noise is None else KNOWN_FREEDOM
    ratio = log(sum(now) / len(now) / before)
    reach = of_runs * students_t(freedom)
    lost = lost_of(Estimate.around(ratio, reach).exp())
    check = check_of(lost, limit, against, usual_of((side.runs[:1], side.runs), noise), allow_noisy)
    mine_too = side.info.get("device") or {}
    told = (
        ("batch size", window.get("batch_size"), side.facts.batch_size),
        ("device", device.get("name"), mine_too.get("title") or mine_too.get("name")),
    )
    unlike = [f"Its {what} was {then}, this run's is {here}" for what, then, here in told if then not in (None, here)]
    return _noted(check, unlike) if unlike else check


def _table(content: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """A table of a report; empty where it has none, since the file may be anyone's."""
    found = content.get(name)
    return found if isinstance(found, Mapping) else {}


def _noted(check: LimitCheck, notes: list[str]) -> LimitCheck:
    return replace(check, note=". ".join((check.note, *(note.removesuffix(".") for note in notes))))


def _kind(kind: Any) -> str:
    return "an emulated device" if kind == EMULATED else "a real device"
