"""Two sides compared: how much faster, in which part of the time, what was changed, and what that explains.

Whether what one side was advised was done on the other, and whether that brought what was promised.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ...errors import WhyidleError
from ...record.tuning import LoaderSettings
from ..causes.diagnosis import LEAST_STEPS
from ..causes.finding import Finding, Next
from ..run.resource_usage import LEAST_FOREIGN_CPUS
from ..statistics import RUN_NOISE, Estimate
from .because import ENVIRONMENT, SETTING, Because, MovedFigure, because_of, figures_of, other_words
from .code import changed_code, unseen_changes
from .lines import MovedLine, moved_lines
from .settings import VARIES, Setting, environment_of, other_trainings, settings_of
from .sides import Measured, Side
from .times import STEP, Times, assumed_noise, times_of

OF_LOADER = frozenset(LoaderSettings(1, 1).arguments)
"""Settings that advice on a loader sets."""
GONE = 0.5
"""Of a finding's share, what may be left of it where its cause was mended."""


@dataclass(frozen=True)
class FollowedAdvice:
    """An advice on side A that side B seems to have followed."""

    cause: str
    """That it was for."""
    change: Next
    is_set: bool
    """Whether B was seen to have these settings; else its finding is gone, with no setting of the loader changed."""
    measured: Estimate
    """How many times as fast B is as A."""
    kept: bool | None
    """See `Speedup.kept`."""


def followed_advice(a: Side, b: Side, settings: Sequence[Setting], times: Times) -> FollowedAdvice | None:
    """The first that was followed; `None` without one, and where the sides do not train the same thing."""
    size = next((each for each in settings if each.name == "batch_size"), None)
    if not times.enough or other_trainings(tuple(settings)) or (size is not None and size.changed):
        return None
    of_loader = {each.name: each for each in settings if each.name in OF_LOADER}
    by_settings = any(each.changed for each in of_loader.values())
    left = {found.cause: found.share for found in b.typical.analysis.findings}
    for found, change in _advised(a):
        if change.speedup is None:
            continue
        if by_settings:
            followed = bool(change.settings) and _has(of_loader, change)
        else:
            followed = not change.settings and left.get(found.cause, 0.0) <= GONE * found.share
        if followed:
            kept = change.speedup.kept(times.speedup)
            return FollowedAdvice(found.cause or "", change, by_settings, times.speedup, kept)
    return None


def _advised(side: Side) -> Iterator[tuple[Finding, Next]]:
    yield from ((found, change) for found in side.typical.analysis.findings for change in found.next)


def _has(settings: dict[str, Setting], change: Next) -> bool:
    """Whether B has all that was advised, and A had not."""
    known = [settings.get(name) for name in change.settings]
    wanted = list(change.settings.values())
    same = all(each is not None and each.b == value for each, value in zip(known, wanted, strict=True))
    return same and any(each is not None and each.changed for each in known)


EMULATED = "emulated"


@dataclass(frozen=True)
class Findings:
    """Causes worth a word, of the typical run of each side."""

    appeared: tuple[Finding, ...]
    """Those of B alone."""
    vanished: tuple[Finding, ...]
    """Those of A alone."""
    stayed: tuple[tuple[Finding, Finding], ...]
    """Those of both: (as found on A, as found on B)."""


@dataclass(frozen=True)
class Difference:
    """B against A."""

    a: Side
    b: Side
    times: Times
    settings: tuple[Setting, ...]
    environment: tuple[Setting, ...]
    figures: tuple[MovedFigure, ...]
    findings: Findings
    because: Because
    notes: tuple[str, ...]
    """What these runs cannot tell, and what is not alike, a sentence each."""
    lines: tuple[MovedLine, ...] | None = None
    """Lines of code that surely got slower or faster, the most first; `None` where a run has no stack samples."""
    promise: FollowedAdvice | None = None
    """An advice on A that B followed, and what came of it."""
    crowded: bool = False
    """Whether other programs filled the CPUs meanwhile, so that intervals are wider."""

    @property
    def emulated(self) -> bool:
        return self.a.typical.device_kind == EMULATED


def difference(a: Side, b: Side, noise: float | None = None) -> Difference:
    """B against A. `noise`: standard deviation between runs of one setting, as a share, where the user knows it.

    Raises:
        WhyidleError: they cannot be compared.
    """
    refuse_mixed(a, b)
    settings, environment = settings_of(a, b), environment_of(a, b)
    scenarios = next((each for each in settings if each.name == "scenario" and each.changed), None)
    if scenarios is not None:
        raise WhyidleError(
            f"A ran scenario {scenarios.a}, B ran scenario {scenarios.b}: their times per sample cannot be compared. "
            "Name two runs of one scenario."
        )
    times = times_of(a, b, noise)
    figures = figures_of(a, b)
    because = because_of(times, settings, environment, figures)
    notes = (*_notes(a, b, times, settings, environment, noise), *_doubts(because, settings, environment))
    crowded = noise is None and _assumed(a, b) > RUN_NOISE
    lines = moved_lines(a, b, times.unit, noise)
    promise = followed_advice(a, b, settings, times)
    findings = _findings(a, b)
    return Difference(a, b, times, settings, environment, figures, findings, because, notes, lines, promise, crowded)


def _assumed(a: Side, b: Side) -> float:
    return max(assumed_noise(run) for side in (a, b) for run in side.runs)


def refuse_mixed(a: Side, b: Side) -> None:
    """Emulated devices are compared with each other alone.

    Raises:
        WhyidleError: one side is emulated, or a part of it is.
    """
    kinds = {(run.device_kind == EMULATED): run for run in (*a.runs, *b.runs)}
    if len(kinds) > 1:
        title = (kinds[True].info.get("device") or {}).get("title") or "an emulated device"
        raise WhyidleError(
            f"{kinds[True].folder} ran on {title}, {kinds[False].folder} on a real device: emulated and measured times "
            "are not compared. Name two runs of one kind."
        )


def _others(side: Side) -> float:
    """CPUs that other programs kept busy, at most over the side's runs; 0 where that was not measured."""
    return max((run.facts.foreign_cpus or 0.0 for run in side.runs), default=0.0)


def _findings(a: Side, b: Side) -> Findings:
    of_a = {f.cause: f for f in a.typical.analysis.findings}
    of_b = {f.cause: f for f in b.typical.analysis.findings}
    return Findings(
        tuple(found for cause, found in of_b.items() if cause not in of_a),
        tuple(found for cause, found in of_a.items() if cause not in of_b),
        tuple((of_a[cause], found) for cause, found in of_b.items() if cause in of_a),
    )


def _doubts(because: Because, settings: Sequence[Setting], environment: Sequence[Setting]) -> Iterator[str]:
    """What else may be the reason, where one is named."""
    words = other_words(settings) if because.kind == SETTING else ()
    if words:
        said = ", ".join(f"{each.name} {each.a} → {each.b}" for each in words)
        yield f"The command differs in more ({said}): the effect is unknown, and may be part of the reason."
    for code in changed_code(environment) if because.kind in (SETTING, ENVIRONMENT) else ():
        said = f"{code.a} → {code.b}"
        yield f"The code differs too ({said}): the effect is unknown, and may be part of the reason."


def doubts_of(run: Measured) -> Iterator[str]:
    """What speaks against taking a run for its setting."""
    if run.looked_at < LEAST_STEPS:
        yield (
            f"{run.folder} has {run.looked_at} step{'s' * (run.looked_at != 1)} after the warm-up, fewer than "
            f"{LEAST_STEPS}: they prove little."
        )
    if run.lacking:
        yield f"{run.folder}: {'; '.join(run.lacking)}. Its figures cover the recorded part."


def _notes(
    a: Side,
    b: Side,
    times: Times,
    settings: Sequence[Setting],
    environment: Sequence[Setting],
    noise: float | None,
) -> Iterator[str]:
    if different := other_trainings(tuple(settings)):
        said = ", ".join(f"{each.name} ({each.a}, {each.b})" for each in different)
        yield f"The two sides do not train the same thing: they differ in {said}. A difference in speed is no gain."
    sizes = next((each for each in settings if each.name == "batch_size" and each.changed), None)
    if sizes is not None:
        per = "step, since samples are not known" if times.unit == STEP else "sample"
        yield f"The batch sizes differ ({sizes.a}, {sizes.b}): times are per {per}."
    elif times.unit == STEP:
        yield "How many samples the batches hold is not known for all runs: times are per step."
    devices = next((each for each in environment if each.name == "device" and each.changed), None)
    if devices is not None:
        yield f"The devices differ: {devices.a}, and {devices.b}."
    unlike = [each.name for each in (*settings, *environment) if VARIES in (each.a, each.b)]
    if unlike:
        yield f"Runs of one side differ in {', '.join(unlike)}: they are not repeats, so this explains nothing here."
    if (revision := unseen_changes(environment)) is not None:
        yield (
            f"Both sides ran revision {revision} of the code, with changes that are not recorded: "
            "their code may differ."
        )
    most = _assumed(a, b)
    single = [side.name for side in (a, b) if len(side.runs) == 1]
    if noise is not None:
        yield f"Runs of one setting are assumed to differ by {100 * noise:.3g} % (standard deviation), as you set."
    elif len(single) == 2:
        yield (
            "One run of each side: the difference between runs of one setting was not measured, and is assumed to "
            f"be {100 * most:.0f} % (standard deviation). Name several runs of each side to measure it."
        )
    elif single:
        yield f"Side {single[0]} is one run: the difference between repeats is taken from the other side."
    if loads := [(side.name, used) for side in (a, b) if (used := _others(side)) >= LEAST_FOREIGN_CPUS]:
        said = " and ".join(f"{used:.1f} CPUs beside {name}" for name, used in loads)
        yield f"Other programs used {said}: times include that, and scatter more."
        if noise is None and most > RUN_NOISE:
            yield (
                f"The CPUs were full meanwhile, so runs are assumed to differ by up to {100 * most:.0f} % and not by "
                f"{100 * RUN_NOISE:.0f} %: half of the others' share, in the time that the job needs CPUs. Record them "
                "again on a quiet machine."
            )
    if times.starts_weighed:
        yield (
            "The runs show different shares of epochs' beginnings. Each beginning that was seen stands for the others, "
            "so a run's own rate differs a little."
        )
    for run in (*a.runs, *b.runs):
        yield from doubts_of(run)
    if any(run.ranks > 1 for side in (a, b) for run in side.runs):
        yield "For a job of several ranks, times are those of all ranks together, figures those of the leading rank."
