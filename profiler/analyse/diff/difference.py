"""Two sides compared: how much faster, in which part of the time, what was changed, and what that explains.

Why one side is faster is claimed only where something that was changed can move the part that moved. What loader,
device and host showed on both sides stands beside it, without a claim; and whether what one side was advised was done
on the other, and brought what was promised.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import sqrt
from pathlib import PurePath

import numpy as np

from ...errors import WhyidleError
from ...record.code import CODE
from ...record.run import open_run
from ...record.stacks import Call
from ...record.tuning import LoaderSettings
from ..causes.diagnosis import LEAST_STEPS
from ..causes.finding import Finding, Next
from ..ranks.figures import leading
from ..run.analysis import parts_of
from ..run.facts import Facts
from ..run.metrics import METRICS
from ..run.resource_usage import LEAST_FOREIGN_CPUS
from ..run.stall_breakdown import TOTAL
from ..run.window import measured_or
from ..statistics import OUTSIDE, RUN_NOISE, Estimate, median_of_known, students_t
from ..where.looks import looks_at
from ..where.places import place_of
from .settings import VARIES, WORD, Setting, environment_of, other_trainings, settings_of
from .sides import LEAST_PART_CHANGE, STEP, Measured, Side, Values, assumed_noise, time_per_unit, times_of

EMULATED = "emulated"
LEAST_MOVED = 0.15
"""Share of the larger of two sides' values by which a figure has to differ to have moved."""
LEAST_OF_CHANGE = 0.3
"""Share of the change of a sample's time from which a part is what the change is about. Below a half, since a change of
one setting often moves several parts at once."""
OF_LOADER = frozenset(LoaderSettings(1, 1).arguments)
"""Settings that advice on a loader sets."""
GONE = 0.5
"""Share of a finding's share that may be left of it where its cause was mended."""
SETTING, ENVIRONMENT, COMMAND = "setting", "environment", "command"
UNEXPLAINED, NONE = "unexplained", "none"
MAY_BE_PART = ": the effect is unknown, and may be part of the reason."


_Row = tuple[str, str, str, float, Callable[[Facts], float | None]]
"""(name, unit, part, the least change worth a line, how it is read)"""


def _of(metric: str, part: str, least: float, name: str | None = None, unit: str | None = None) -> _Row:
    """A registered metric; `name`, `unit`: said otherwise where figures of two sides stand beside each other."""
    found = METRICS[metric]
    return name or found.label, found.unit if unit is None else unit, part, least, found.of


def _link(facts: Facts) -> float | None:
    link = None if facts.device_state is None else facts.device_state.link
    return None if link is None else 100 * link.share


_FIGURES: tuple[_Row, ...] = (
    _of("worker_busy_pct", "input", 5.0),
    _of("queue_ready_mean", "input", 0.25),
    _of("make_ms_per_sample", "input", 0.0, "Preparing a sample"),
    _of("read_pct", "input", 3.0, "Share of reading"),
    _of("prep_pct", "input", 3.0, "Share of decoding and transforming"),
    _of("collate_pct", "input", 3.0, "Share of collating"),
    _of("run_queue_pct", "input", 3.0, "Workers waiting for a CPU"),
    ("Read from storage", "kB/sample", "input", 0.5, lambda f: f.loader.storage_bytes_per_sample / 1e3),
    (
        "Hidden wait for data",
        "ms/step",
        "input",
        0.1,
        lambda f: f.parts.hidden_wait_ns / 1e6 / f.window.count if f.input_known else None,
    ),
    _of("utilisation_pct", "compute", 3.0),
    _of("sm_active_pct", "compute", 3.0),
    ("Clock while computing", "MHz", "compute", 20.0, lambda f: f.device_state.clock_mhz if f.device_state else None),
    ("Link, share of its full bandwidth", "%", "copy", 5.0, _link),
    _of("cpus_used", "host", 0.15, "CPUs this job uses", ""),
    _of("foreign_cpus", "host", 0.15, "CPUs other programs use", ""),
    _of("cpu_steal_pct", "host", 2.0, "CPU time taken by the hypervisor"),
    _of("throttled_s", "host", 0.05, "Stopped by a CPU quota"),
    _of("overhead_pct", "host", 0.5),
)
CONSEQUENCES = ("Utilisation", "Time in whyidle's hooks")
"""Labels of figures that move because the time does, and are no reasons."""


_LOADERS = ("planted", "pipeline", "feed")
_FOLLOWS_FROM = {
    **dict.fromkeys((*OF_LOADER, "start method of workers", "copies ahead"), _LOADERS),
    "case": ("planted",),
    "copies from": ("pin_memory", *_LOADERS),
    "device kind": ("device",),
    "CUDA": ("torch",),
    "cuDNN": ("torch",),
    "CPUs of the machine": ("host",),
    "CPUs it may use": ("host",),
}
"""Setting → others, any of which it merely follows from if they were changed as well."""

_CODE_OF = {
    "compute": "the code of the model",
    "input": "the code of the dataset",
    "host": "the code of the training loop",
}
_ELSE = {
    "compute": ("clocks and other processes of the device",),
    "input": ("a cold page cache: run each side twice", "other programs on the CPUs"),
    "copy": ("the link, and other devices on it", "what the training loop copies, and when"),
    "sync": ("calls that wait for the device (`.item()`, `.cpu()`, printing) in the training loop",),
    "host": ("other programs on the CPUs", "garbage collection"),
    "boundary": ("how often the training validates and saves", "the loader of the validation"),
}
"""What to look at that is not recorded, by the part that moved."""


@dataclass(frozen=True)
class MovedFigure:
    """A figure of both sides, the median over the runs of each. `None`: not measured."""

    name: str
    unit: str
    a: float | None
    b: float | None
    part: str
    """Part of the time that it belongs to."""
    moved: bool


@dataclass(frozen=True)
class Because:
    """What explains a change of the time per sample."""

    kind: str
    """`setting`: something that was set does; `environment`: where it ran may; `command`: words of the command may, and
    the code where that changed too; `code`: another revision of it may; `unexplained`: nothing recorded does; `none`:
    no change was shown."""
    part: str | None
    """Part of the time that moved most in the direction of the whole; `None` without a change."""
    by: tuple[Setting, ...] = ()
    """What was changed and can move the part; of several, these runs do not tell which it was."""
    look_at: tuple[str, ...] = ()
    """What to look at, where nothing recorded explains the change or several things may."""


@dataclass(frozen=True)
class FollowedAdvice:
    """An advice on side A that side B seems to have followed."""

    cause: str
    """Cause that it was for."""
    advice: Next
    is_set: bool
    """Whether B was seen to have these settings; else its finding is gone, with no setting of the loader changed."""
    measured: Estimate
    """How many times as fast B is as A."""
    kept: bool | None
    """See `Speedup.kept`."""


@dataclass(frozen=True)
class Findings:
    """Causes worth a word, of the typical run of each side."""

    appeared: tuple[Finding, ...]
    """Those of B alone."""
    vanished: tuple[Finding, ...]
    """Those of A alone."""
    stayed: tuple[tuple[Finding, Finding], ...]
    """Those of both: (as found on A, as found on B)."""


class Difference:
    """B against A.

    Raises:
        WhyidleError: they cannot be compared.
    """

    def __init__(self, a: Side, b: Side, noise: float | None = None) -> None:
        """`noise`: standard deviation between runs of one setting, as a share, where the user knows it."""
        refuse_mixed(a, b)
        self.a, self.b, self.noise = a, b, noise
        self.runs = (*a.runs, *b.runs)
        self._settings, self._environment = settings_of(a, b), environment_of(a, b)
        self._code = next((each for each in self._environment if each.name == CODE), None)
        scenarios = _changed("scenario", self._settings)
        if scenarios is not None:
            raise WhyidleError(
                f"A ran scenario {scenarios.a}, B ran scenario {scenarios.b}: their times per sample cannot be "
                "compared. Name two runs of one scenario."
            )
        self.settings = tuple(each for each in self._settings if each.worth_a_line)
        """Those that changed, are known of one side only, or may differ."""
        self.environment = tuple(each for each in self._environment if each.worth_a_line)
        """The same of what is not set."""
        self.times = times_of(a, b, noise)
        self.figures = tuple(_figures(a, b))
        """Those that were measured on either side."""
        self._most_noise = max(assumed_noise(run) for run in self.runs)
        """Standard deviation that runs are assumed to differ by at most."""
        self.crowded = noise is None and self._most_noise > RUN_NOISE
        """Whether other programs filled the CPUs meanwhile, so that intervals are wider."""
        self.emulated = a.facts.device_kind == EMULATED

    @property
    def findings(self) -> Findings:
        of_a, of_b = ({found.cause: found for found in side.typical.analysis.findings} for side in (self.a, self.b))
        return Findings(
            tuple(found for cause, found in of_b.items() if cause not in of_a),
            tuple(found for cause, found in of_a.items() if cause not in of_b),
            tuple((of_a[cause], found) for cause, found in of_b.items() if cause in of_a),
        )

    @cached_property
    def lines(self) -> tuple[MovedLine, ...] | None:
        """Lines of code that surely got slower or faster, the most first; `None` where a run has no stack samples."""
        return moved_lines(self.a, self.b, self.times.unit, self.noise)

    @cached_property
    def because(self) -> Because:
        times = self.times
        if not times.significant:
            return Because(NONE, None)
        # The part that moved most in the direction of the whole, if it surely did and makes up much of it.
        whole = times.terms[TOTAL].change.value
        shares = {name: term.change.value / whole if whole else 0.0 for name, term in times.terms.items()}
        moved = [name for name, term in times.terms.items() if name != TOTAL and term.significant]
        part = max(moved, key=lambda name: shares[name], default=None)
        if part is None or shares[part] < LEAST_OF_CHANGE:
            return Because(UNEXPLAINED, None, look_at=("no part of the time changed by more than its noise",))
        able, around = _able(self._settings, part), _able(self._environment, part)
        if able:
            # Another machine or torch can move it just as well.
            both = (*able, *around)
            return Because(SETTING, part, both, ("run again with only one of them changed",) if len(both) > 1 else ())
        if around:
            return Because(ENVIRONMENT, part, around, ("run both on the same machine, one after the other",))
        told = [
            f"{f.name}: {' → '.join('n/a' if v is None else f'{v:.3g}' for v in (f.a, f.b))} {f.unit}".rstrip()
            for f in self.figures
            if f.moved and f.part in (part, "host") and f.name not in CONSEQUENCES
        ]
        looks = (*told, *_ELSE.get(part, ()), *self._code_to_look_at(part))
        code, words = self._changed_code, tuple(each for each in self._settings if each.name.startswith(WORD))
        kind = COMMAND if words else CODE if code else UNEXPLAINED
        return Because(kind, part, (*words, *code), looks)

    @property
    def _changed_code(self) -> tuple[Setting, ...]:
        """The code, where it surely is another. It can move anything, so it is the last that is named."""
        code = self._code
        surely = code is not None and code.changed and not code.unseen and VARIES not in (code.a, code.b)
        return (code,) if code is not None and surely else ()

    def _code_to_look_at(self, part: str) -> tuple[str, ...]:
        """What of the code to look at, unless it is known to be the same on both sides."""
        code, what = self._code, _CODE_OF.get(part, "the code")
        if code is None or None in (code.a, code.b):
            return (f"{what}, which is not recorded",) if code is not None or part in _CODE_OF else ()
        if not (code.unseen or self._changed_code):
            return ()
        a, b = (str(value).partition(" ")[0] for value in (code.a, code.b))
        more = "" if (a, b) == (code.a, code.b) else "changes that are not recorded"
        return (", and ".join(filter(None, (f"{what}: `git diff {a} {b}`" if a != b else f"{what} {a}", more))),)

    @cached_property
    def promise(self) -> FollowedAdvice | None:
        """The first advice on A that B followed, and what came of it; `None` where none was seen to be, and where the
        sides do not train the same thing."""
        times = self.times
        if not times.enough or other_trainings(self._settings) or _changed("batch_size", self._settings):
            return None
        of_loader = {each.name: each for each in self._settings if each.name in OF_LOADER}
        by_settings = any(each.changed for each in of_loader.values())
        left = {each.cause: each.share for each in self.b.typical.analysis.findings}
        advised = ((each, change) for each in self.a.typical.analysis.findings for change in each.next)
        for found, change in advised:
            if change.speedup is None:
                continue
            if by_settings:
                # B has all that was advised, and A had not.
                known = [of_loader.get(name) for name in change.settings]
                has = [
                    each is not None and each.b == value
                    for each, value in zip(known, change.settings.values(), strict=True)
                ]
                followed = all(has) and any(each is not None and each.changed for each in known)
            else:
                followed = not change.settings and left.get(found.cause, 0.0) <= GONE * found.share
            if followed:
                kept = change.speedup.kept(times.speedup)
                return FollowedAdvice(found.cause or "", change, by_settings, times.speedup, kept)
        return None

    def unlike(self) -> Iterator[str]:
        """Yield what of the two sides is not alike, a sentence each."""
        if different := other_trainings(self._settings):
            said = ", ".join(f"{each.name} ({each.a}, {each.b})" for each in different)
            yield f"The two sides do not train the same thing: they differ in {said}. A difference in speed is no gain."
        if (sizes := _changed("batch_size", self._settings)) is not None:
            per = "step, since samples are not known" if self.times.unit == STEP else "sample"
            yield f"The batch sizes differ ({sizes.a}, {sizes.b}): times are per {per}."
        elif self.times.unit == STEP:
            yield "How many samples the batches hold is not known for all runs: times are per step."
        if (devices := _changed("device", self._environment)) is not None:
            yield f"The devices differ: {devices.a}, and {devices.b}."

    @property
    def notes(self) -> tuple[str, ...]:
        """What these runs cannot tell, and what is not alike, a sentence each; last what else may be the reason, where
        one is named."""
        return (*self.unlike(), *self._limits(), *self._other_reasons())

    def _limits(self) -> Iterator[str]:
        every, most = (*self._settings, *self._environment), self._most_noise
        if varies := [each.name for each in every if VARIES in (each.a, each.b)]:
            said = ", ".join(varies)
            yield f"Runs of one side differ in {said}: they are not repeats, so this explains nothing here."
        if (code := self._code) is not None and code.unseen:
            yield (
                f"Both sides ran code of one revision ({code.a}, {code.b}), with changes that are not recorded: "
                "their code may differ."
            )
        single = [side.name for side in (self.a, self.b) if len(side.runs) == 1]
        if self.noise is not None:
            yield (
                f"Runs of one setting are assumed to differ by {100 * self.noise:.3g} % (standard deviation), as you "
                "set."
            )
        elif len(single) == 2:
            yield (
                "One run of each side: the difference between runs of one setting was not measured, and is assumed to "
                f"be {100 * most:.0f} % (standard deviation). Name several runs of each side to measure it."
            )
        elif single:
            yield f"Side {single[0]} is one run: the difference between repeats is taken from the other side."
        others = {side.name: max(measured_or(r.facts.foreign_cpus) for r in side.runs) for side in (self.a, self.b)}
        if loads := [f"{used:.1f} CPUs beside {name}" for name, used in others.items() if used >= LEAST_FOREIGN_CPUS]:
            yield f"Other programs used {' and '.join(loads)}: times include that, and scatter more."
            if self.crowded:
                yield (
                    f"The CPUs were full meanwhile, so runs are assumed to differ by up to {100 * most:.0f} % and not "
                    f"by {100 * RUN_NOISE:.0f} %: half of the others' share, in the time that the job needs CPUs. "
                    "Record them again on a quiet machine."
                )
        if self.times.starts_weighed:
            yield (
                "The runs show different shares of epochs' beginnings. Each beginning that was seen stands for the "
                "others, so a run's own rate differs a little."
            )
        for run in self.runs:
            yield from doubts_of(run)
        if any(run.ranks > 1 for run in self.runs):
            yield (
                "For a job of several ranks, times are those of all ranks together, figures those of the leading rank."
            )

    def _other_reasons(self) -> Iterator[str]:
        if self.because.kind == SETTING:
            # A word that is how a setting that is known was changed is no more than that setting.
            known = [(str(x.a), str(x.b)) for x in self._settings if x.changed and not x.name.startswith(WORD)]
            words = [x for x in self._settings if x.name.startswith(WORD) and (str(x.a), str(x.b)) not in known]
            if words:
                differ = ", ".join(f"{each.name} {each.a} → {each.b}" for each in words)
                yield f"The command differs in more ({differ}){MAY_BE_PART}"
        for code in self._changed_code if self.because.kind in (SETTING, ENVIRONMENT) else ():
            yield f"The code differs too ({code.a} → {code.b}){MAY_BE_PART}"


def refuse_mixed(a: Side, b: Side) -> None:
    """Compare emulated devices with each other alone.

    Raises:
        WhyidleError: one side is emulated, or a part of it is.
    """
    kinds = {(run.facts.device_kind == EMULATED): run for run in (*a.runs, *b.runs)}
    if len(kinds) > 1:
        title = (kinds[True].info.get("device") or {}).get("title") or "an emulated device"
        raise WhyidleError(
            f"{kinds[True].folder} ran on {title}, {kinds[False].folder} on a real device: emulated and measured times "
            "are not compared. Name two runs of one kind."
        )


def doubts_of(run: Measured) -> Iterator[str]:
    """Say what speaks against taking a run for its setting."""
    if run.looked_at < LEAST_STEPS:
        yield (
            f"{run.folder} has {run.looked_at} step{'s' * (run.looked_at != 1)} after the warm-up, fewer than "
            f"{LEAST_STEPS}: they prove little."
        )
    if run.lacking:
        yield f"{run.folder}: {'; '.join(run.lacking)}. Its figures cover the recorded part."


def _changed(name: str, settings: Sequence[Setting]) -> Setting | None:
    return next((each for each in settings if each.name == name and each.changed), None)


def _figures(a: Side, b: Side) -> Iterator[MovedFigure]:
    for name, unit, part, least, read in _FIGURES:
        of_a, of_b = (median_of_known(read(run.facts) for run in side.runs) for side in (a, b))
        if of_a is not None and of_b is not None:
            moved = abs(of_b - of_a) >= max(least, LEAST_MOVED * max(abs(of_a), abs(of_b)))
            yield MovedFigure(name, unit, of_a, of_b, part, moved)
        elif of_a is not None or of_b is not None:
            yield MovedFigure(name, unit, of_a, of_b, part, False)


def _able(settings: Sequence[Setting], part: str) -> tuple[Setting, ...]:
    """Changed settings that can move the part, without those that merely follow from another of them."""
    able = [each for each in settings if each.changed and part in each.explains and VARIES not in (each.a, each.b)]
    names = {each.name for each in able}
    return tuple(each for each in able if not names & set(_FOLLOWS_FROM.get(each.name, ())))


# Lines of code that take more, or less, of the time on one side than on the other, by stack samples.
#
# A line's time is its share of the stack samples of a thread, times what a sample of the data (or a step) takes. Stack
# samples are counts, and those that follow each other may be of one call: their share varies as counts do, or as blocks
# of them do where that is more. What runs of one setting differ by comes on top. Line numbers move between two versions
# of a program, so a line is the same on both sides where file, function and text are.

MOST_LINES = 5
LEAST_LOOKS = 5
"""Stack samples that a line needs on one side to be compared: fewer are chance."""
BLOCKS = 16
"""Stretches of a run that a line's share is seen to vary over."""
TRAINING, WORKERS = "training", "workers"


@dataclass(frozen=True)
class MovedLine:
    """A line whose time surely changed, µs per unit with 95 % intervals; `change` is B less A."""

    file: str
    """As on side B, like the other words; where that has the line no longer, as on A."""
    line: int
    function: str
    code: str
    """Empty where lines of source are not kept."""
    whose: str
    """Whose time it is: that of the thread that trains, or of all `workers` together."""
    a: Estimate
    b: Estimate
    change: Estimate

    @property
    def call(self) -> Call:
        return Call(self.function, self.file, self.line, self.code)


_Line = tuple[str, str, str, str]
"""Whose, file without its folder (in which two versions differ), function, text (or number where that is unknown)."""


@dataclass(frozen=True)
class _Run:
    """Stack samples of one run in its window, counted by line and by block of consecutive samples."""

    noise: float
    time: dict[str, float]
    """By whose they are, µs per unit that all of them together stand for."""
    looks: dict[str, Values]
    """By whose they are, number by block."""
    lines: dict[_Line, Values]
    """Number by block."""
    calls: dict[_Line, Call]

    def time_in(self, line: _Line) -> tuple[float, float]:
        """(time in a line, its variance)"""
        whose = line[0]
        if whose not in self.looks:
            return 0.0, 0.0
        looks, there = self.looks[whose], self.lines.get(line, np.zeros(BLOCKS))
        count = float(looks.sum())
        # As if two more samples had been taken, of which one saw it: that none did is no proof that it takes no time.
        likely = float(there.sum() + 1) / (count + 2)
        variance = likely * (1 - likely) / count
        if count >= BLOCKS:
            variance = max(variance, float(np.var(there / looks, ddof=1)) / BLOCKS)
        value = float(there.sum()) / count * self.time[whose]
        return value, variance * self.time[whose] ** 2 + (self.noise * value) ** 2


def moved_lines(a: Side, b: Side, unit: str, noise: float | None) -> tuple[MovedLine, ...] | None:
    """Find the lines that surely changed, at most `MOST_LINES`; `None` where a run has no stack samples.

    `unit`: sample or step. `noise`: standard deviation between runs of one setting, as a share, where the user knows
    it.
    """
    of_a, of_b = ([seen for run in side.runs if (seen := _seen(run, unit, noise))] for side in (a, b))
    if (len(of_a), len(of_b)) != (len(a.runs), len(b.runs)):
        return None
    counts: list[Counter[_Line]] = [Counter(), Counter()]
    for number, side in enumerate((of_a, of_b)):
        for run in side:
            counts[number].update({line: int(looks.sum()) for line, looks in run.lines.items()})
    compared = sorted({line for side in counts for line, count in side.items() if count >= LEAST_LOOKS})
    whole = max(time_per_unit(run, unit) for run in (*a.runs, *b.runs))
    usual, sure = students_t(BLOCKS - 1), students_t(BLOCKS - 1, OUTSIDE / max(1, len(compared)))
    found = []
    for line in compared:
        (mean_a, var_a), (mean_b, var_b) = _mean(line, of_a), _mean(line, of_b)
        change, error = mean_b - mean_a, sqrt(var_a + var_b)
        # Of so many lines some differ by chance: all together they may be wrong as rarely as one is.
        if abs(change) < LEAST_PART_CHANGE * whole or abs(change) <= sure * error:
            continue
        call = next(run.calls[line] for run in (*of_b, *of_a) if line in run.calls)
        in_a, in_b = (Estimate.around(m, usual * sqrt(v)).positive() for m, v in ((mean_a, var_a), (mean_b, var_b)))
        moved = Estimate.around(change, usual * error)
        found.append(MovedLine(call.file, call.line, call.function, call.text, line[0], in_a, in_b, moved))
    found.sort(key=lambda each: -abs(each.change.value))
    return tuple(found[:MOST_LINES])


def _seen(run: Measured, unit: str, noise: float | None) -> _Run | None:
    process = leading(run.analysis, [open_run(part) for part in parts_of(run.folder)])
    every = None if process is None else looks_at(*process)
    if every is None:
        return None
    time, window = time_per_unit(run, unit), run.facts.window
    workers = run.facts.set_workers or len(np.unique(every.workers.records["process"]))
    found = _Run(assumed_noise(run) if noise is None else noise, {TRAINING: time, WORKERS: time * workers}, {}, {}, {})
    for whose, looks in ((TRAINING, every.training), (WORKERS, every.workers)):
        stacks = looks.between(window.begin_ns, window.end_ns).records["stack"].tolist()
        lines: dict[int, _Line] = {}
        for number in sorted(set(stacks)):
            if (place := place_of(looks.table.stack(number))) is not None:
                call = place[0]
                text = call.text.strip() or f"line {call.line}"
                lines[number] = (whose, PurePath(call.file).name, call.function, text)
                found.calls.setdefault(lines[number], call)
        seen = [lines[number] for number in stacks if number in lines]
        blocks = [at * BLOCKS // len(seen) for at in range(len(seen))]
        for (line, block), count in Counter(zip(seen, blocks, strict=True)).items():
            found.looks.setdefault(whose, np.zeros(BLOCKS))[block] += count
            found.lines.setdefault(line, np.zeros(BLOCKS))[block] += count
    return found if TRAINING in found.looks else None


def _mean(line: _Line, runs: Sequence[_Run]) -> tuple[float, float]:
    """(mean over the runs, variance of the mean) of the time in a line."""
    values, variances = zip(*(run.time_in(line) for run in runs), strict=True)
    between = float(np.var(values, ddof=1)) if len(runs) > 1 else 0.0
    return float(np.mean(values)), max(float(np.mean(variances)), between) / len(runs)
