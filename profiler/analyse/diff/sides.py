"""The two sides of a difference, one run each or several that repeat the same thing; their time per sample, by part,
and what the difference is worth.

A run is one draw: another run of the same setting differs, by more than its own steps tell (caches, placement, other
programs). So runs are the units. What runs of one setting differ by is weighed with what they are assumed to differ by
(`PAIR_PRIOR`); single runs have only the assumption, and what their blocks of steps scatter by. For a part of the time
the assumed variance is its share of the whole's, as if parts varied on their own.

How far a run's own time per sample may be from what it would settle at is told from blocks of consecutive steps. Steps
that follow each other are alike (a queue that is full stays full), so their scatter says too little. The window is cut
into blocks of many steps (batch means); where even those follow each other, the variance is widened for it. Parts are
time of the device, so blocks are cut where the device is done with a step: a host that runs ahead asks for the next
batch many steps earlier, at one cut more than at another, and that is no scatter. What happens once an epoch, its first
fetch and the time outside the steps, is rare and large: it is left out of the blocks, and varies by its own scatter.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import log, sqrt
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ...errors import WhyidleError
from ...record.comparison import is_comparison
from ...record.run import open_run, runs_within
from ...record.schema import NOT_MEASURED, StepFlag
from ..attached.attached import is_attached
from ..causes.diagnosis import LEAST_STEPS
from ..cells.batch_size import alike_in_starts
from ..intervals import Intervals, covered, intersect, subtract, union, union_of
from ..ranks.figures import rate_of
from ..ranks.figures import shares as shares_of
from ..run.analysis import Analysis, analyse, condensed, lacking_of, parts_of
from ..run.facts import Facts
from ..run.resource_usage import LEAST_FOREIGN_CPUS
from ..run.stall_breakdown import PARTS, TERMS, TOTAL
from ..run.window import Window, measured_or
from ..statistics import KNOWN_FREEDOM, PAIR_PRIOR, Estimate, median_place, students_t

SAMPLE, STEP = "sample", "step"
MOST_BLOCKS, LEAST_BLOCKS = 16, 4
"""Blocks that a run is cut into, at most; blocks whose scatter tells something, at least."""
LEAST_BLOCK_STEPS = 5
"""Steps of a block, at least."""
NOISE_OF_LOAD = 0.5
"""Standard deviation between runs on a full machine, over the share of its CPUs that other programs use, in the time
that the runs need a CPU or wait for one."""
LEAST_PART_CHANGE = 0.01
"""Change of a part, as a share of the time per sample, from which it is worth a word. Less than the sweeps'
`CONSIDERABLE_CHANGE`: it says what moved, and decides nothing."""

Values = npt.NDArray[np.float64]
Variances = Mapping[str, float]
"""Variance of a run's time per unit by term, as a share of the whole squared."""


@dataclass(frozen=True)
class Measured:
    """A run that has steps."""

    folder: Path
    analysis: Analysis
    """Without what its figures were made of (`run.analysis.condensed`)."""
    scatter: Mapping[str, Variances]
    """By unit (`SAMPLE`, `STEP`), how its time scatters within it; a unit is missing where that is not known."""
    needs_cpu: float
    """Share of the wall time, 0..1, in which the job needed a CPU or waited for one."""

    @property
    def info(self) -> dict[str, Any]:
        return self.analysis.info

    @property
    def facts(self) -> Facts:
        """Facts of the run; of a job of several ranks, those of the rank that leads it."""
        if self.analysis.facts is None:
            raise ValueError(f"{self.folder} has no steps")
        return self.analysis.facts

    @property
    def ranks(self) -> int:
        return max(1, len(self.analysis.ranks))

    @property
    def looked_at(self) -> int:
        """Steps after the warm-up that the hooks looked at."""
        return len(self.facts.window.steps)

    @cached_property
    def lacking(self) -> tuple[str, ...]:
        """What of the recording did not end, or is not there."""
        return lacking_of(self.folder, self.analysis)


@dataclass(frozen=True)
class Side:
    """Runs that repeat the same thing."""

    name: str
    """`A` or `B`."""
    runs: tuple[Measured, ...]

    @cached_property
    def typical(self) -> Measured:
        """The run whose throughput is the median (the lower of the two middle ones)."""
        return self.runs[median_place([rate_of(run.analysis) or 0.0 for run in self.runs]) or 0]

    @property
    def facts(self) -> Facts:
        return self.typical.facts

    @property
    def info(self) -> dict[str, Any]:
        return self.typical.info

    @property
    def folders(self) -> list[str]:
        return [str(run.folder) for run in self.runs]

    @property
    def steps(self) -> int:
        """Steps of all runs, after the warm-up."""
        return sum(run.facts.window.count for run in self.runs)

    @property
    def rates(self) -> list[float]:
        """Samples/s of each run that knows them, of all its ranks."""
        return [rate for run in self.runs if (rate := rate_of(run.analysis)) is not None and run.facts.samples_known]


def in_both(one: Side, other: Side) -> Path | None:
    """Find a run that is on both sides, as the other one names it; `None` where there is none."""
    named = {run.folder.resolve() for run in one.runs}
    return next((run.folder for run in other.runs if run.folder.resolve() in named), None)


def side_of(name: str, paths: Sequence[Path]) -> Side:
    """Open and analyse the runs of a side. `COMPARISON/CELL` stands for all rounds of that cell.

    Raises:
        WhyidleError: one is no run, is named twice, or has no steps to compare.
    """
    return Side(name, tuple(measured(folder, analysed(folder)) for folder in folders_of(paths)))


def folders_of(paths: Sequence[Path]) -> list[Path]:
    """List the run folders that are meant, each once.

    Raises:
        WhyidleError: one is named twice.
    """
    folders: list[Path] = []
    for path in paths:
        # A cell of a comparison that is named without a round stands for all of its rounds.
        beside = [] if path.exists() or not is_comparison(path.parent) else runs_within(path.parent)
        folders += [folder for folder in beside if folder.name.rpartition("-r")[0] == path.name] or [path]
    twice = {folder for folder in folders if sum(folder.resolve() == other.resolve() for other in folders) > 1}
    if twice:
        raise WhyidleError(f"{min(twice)} is named twice on one side; repeats are runs of their own.")
    return folders


def measured(folder: Path, analysis: Analysis) -> Measured:
    """Make a run to compare, which holds on to little memory, however long it was.

    Raises:
        WhyidleError: it has no step.
    """
    if analysis.facts is None:
        raise WhyidleError(f"{folder} holds no step of a training, so nothing to compare. Name another run.")
    return Measured(folder, condensed(analysis), scatter_of(analysis.facts), _needs_cpu(analysis.facts))


def analysed(folder: Path) -> Analysis:
    """Analyse a run, which may hold no step; of a job on several hosts, the folder around its run folders is named.

    Raises:
        WhyidleError: there is no run that was recorded from within.
    """
    parts = parts_of(folder)
    if len(parts) > 1 and is_comparison(folder):
        names = list(dict.fromkeys(part.name.rpartition("-r")[0] or part.name for part in parts))
        raise WhyidleError(
            f"{folder} is a comparison of {len(names)} cells. Name one of them, such as {folder / names[0]}"
            f"{f' or {folder / names[1]}' if len(names) > 1 else ''}."
        )
    runs = [open_run(part) for part in parts]
    for run in runs:
        if is_attached(run):
            raise WhyidleError(
                f"{run.folder} was recorded from outside, which tells neither steps nor samples. Record the training "
                "with `whyidle run -- python train.py …` instead."
            )
    return analyse(*runs)


def _needs_cpu(facts: Facts) -> float:
    """Share of the wall time, 0..1, in which the job needed a CPU or waited for one, so that other programs could hold
    it up: its thread, and the makers of batches, also where nobody waited for them, since load can change that. All of
    it where that was not measured."""
    steps = facts.window.steps
    known = steps[steps["cpu_ns"] != NOT_MEASURED]
    lasted = float((known["step_end_ns"] - known["fetch_begin_ns"]).sum())
    queued, made = facts.main_queued_ns, facts.loader.cpu_pct
    if lasted <= 0:
        return 1.0
    share = float(known["cpu_ns"].sum()) / lasted + queued / facts.parts.wall_ns
    if not facts.made_in_training:
        waited, making = facts.loader.run_queue_pct, facts.loader.worker_busy_pct
        share += min((made + waited) / 100, 1.0) * min(1.0, measured_or(making, 100.0) / 100)
    # Of what was not measured, NaN, it is all.
    return min(1.0, share)


def scatter_of(facts: Facts) -> dict[str, Variances]:
    """Find how a run scatters within itself: the variances for each unit that every block of steps has some of; nothing
    with too few steps."""
    window, parts = facts.window, facts.parts
    number = min(MOST_BLOCKS, len(window.steps) // LEAST_BLOCK_STEPS)
    if number < LEAST_BLOCKS:
        return {}
    cuts, edges = _cut(window, number, queued=facts.device_kind != "cpu")
    if len(cuts) < LEAST_BLOCKS or (np.diff(edges) <= 0).any():
        return {}
    steps = window.steps
    first = steps[((steps["flags"] & StepFlag.FIRST_OF_EPOCH) != 0) & (steps["fetch_end_ns"] != NOT_MEASURED)]
    # When the device idled behind the first fetches of epochs.
    beginnings = intersect(parts.when["input"], union(first["fetch_begin_ns"], first["fetch_end_ns"]))
    rare = union_of(parts.when["boundary"], beginnings)
    # Steps that nobody looked at are taken to be like others.
    grow = parts.wall_ns / max(1, parts.wall_ns - parts.unseen_ns)
    seen = parts.when | {part: subtract(parts.when[part], rare) for part in ("input", "boundary")}
    times = {part: grow * covered(where, edges[:-1], edges[1:]).astype(np.float64) for part, where in seen.items()}
    times[TOTAL] = np.diff(edges) - covered(rare, edges[:-1], edges[1:]).astype(np.float64)
    outside, begun = _of_rare(parts.when["boundary"]), _of_rare(beginnings)
    varied = {"boundary": outside, "input": begun, TOTAL: outside + begun}
    ran = 1.0 + np.maximum(0, steps["skipped"])
    ran[0] = 1.0
    samples = np.where(steps["samples"] == NOT_MEASURED, 0, steps["samples"]).astype(float)
    samples[1:] += np.maximum(0, steps["skipped_samples"][1:])
    by_unit = {unit: np.add.reduceat(work, cuts) for unit, work in ((SAMPLE, samples), (STEP, ran))}
    wall = float(parts.wall_ns) ** 2
    return {
        unit: {term: _of_sum(each, work) / wall + varied.get(term, 0.0) / wall for term, each in times.items()}
        for unit, work in by_unit.items()
        if not (work <= 0).any()
    }


def _cut(window: Window, number: int, *, queued: bool) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """(first step of each block, where the blocks begin and the last one ends). `queued`: the device has a queue.

    As the window itself, a block begins when its first step is asked for and the device has done all before it. Fewer
    blocks than asked for where too few steps tell when that was.
    """
    steps = window.steps
    cuts = np.linspace(0, len(steps), number + 1).round().astype(np.int64)[1:-1]
    # Steps that were let pass count to the one after them.
    begun = np.where(steps["skipped"][1:] > 0, steps["step_end_ns"][:-1], steps["fetch_begin_ns"][1:])
    if queued:
        stamped = steps["device_end_ns"][:-1] != NOT_MEASURED
        computed = (steps["flags"][:-1] & StepFlag.COMPUTED_NOTHING) == 0
        last = np.maximum.accumulate(np.where(computed, np.arange(len(stamped)), -1))
        known = np.concatenate(([0], np.flatnonzero((last < 0) | stamped[last]) + 1))
        cuts = np.unique(known[np.searchsorted(known, cuts, side="right") - 1])
        cuts = cuts[cuts > 0]
        done = np.where(stamped, steps["device_end_ns"][:-1], window.begin_ns)
        begun = np.maximum(begun, np.maximum.accumulate(done))
    edges = np.concatenate(([window.begin_ns], begun[cuts - 1], [window.end_ns]))
    return np.concatenate(([0], cuts)), edges


def _of_sum(times: Values, work: Values) -> float:
    """Variance of the sum of a block's times at given work, from the scatter of the blocks' times around it."""
    number = len(times)
    rest = times - times.sum() / work.sum() * work
    squares = float((rest**2).sum())
    if squares == 0:
        return 0.0
    follow = float((rest[1:] * rest[:-1]).sum()) / squares
    # Blocks without any relation have -1/n on average.
    widened = 1 + 2 * max(0.0, follow + 1 / number)
    return number * squares / (number - 1) * widened


def _of_rare(moments: Intervals) -> float:
    """Variance of the sum of so many moments, from their own scatter; 0 of one, which tells none."""
    return len(moments) * float(np.var(moments[:, 1] - moments[:, 0], ddof=1)) if len(moments) > 1 else 0.0


@dataclass(frozen=True)
class Changed:
    """A term on both sides, µs per unit with 95 % intervals; `change` is B less A."""

    a: Estimate
    b: Estimate
    change: Estimate
    significant: bool
    """Whether it surely changed, and by enough to be worth a word."""


@dataclass(frozen=True)
class Times:
    """Time per sample, or step, of two sides."""

    unit: str
    """`sample`, or `step` where samples are not known."""
    terms: Mapping[str, Changed]
    """By part, where all runs know it, and `total`."""
    speedup: Estimate
    """How many times as fast B is as A."""
    significant: bool
    """Whether one side is surely faster."""
    starts_weighed: bool
    """Whether beginnings of epochs were weighed, since the runs show different shares of them."""
    enough: bool
    """Whether every run has steps enough to support a claim. The intervals are of runs that settled: those of a few
    steps differ by more."""


@dataclass(frozen=True)
class _RunTimes:
    """One run's time per unit."""

    terms: Mapping[str, float]
    """µs per unit; parts that are not known are not there."""
    scatter: Variances | None
    noise: float
    """Standard deviation between runs of its setting, assumed or known, as a share."""


def times_of(a: Side, b: Side, noise: float | None = None) -> Times:
    """Compare the times of two sides. `noise`: standard deviation between runs of one setting, as a share, where the
    user knows it."""
    everyone = (*a.runs, *b.runs)
    unit = SAMPLE if all(run.facts.samples_known for run in everyone) else STEP
    runs, weighed = _runs(everyone, unit, noise)
    sides = runs[: len(a.runs)], runs[len(a.runs) :]
    whole_a, whole_b = (float(np.mean([run.terms[TOTAL] for run in side])) for side in sides)
    least = LEAST_PART_CHANGE * max(whole_a, whole_b)
    prior = PAIR_PRIOR.freedom if noise is None else KNOWN_FREEDOM
    enough = all(run.looked_at >= LEAST_STEPS for run in everyone)
    terms = {}
    for term in TERMS:
        if not all(term in run.terms for run in runs):
            continue
        (mean_a, mean_b), (var_a, var_b), freedom = _means(term, sides, prior)
        t = students_t(freedom)
        change = Estimate.around(mean_b - mean_a, t * sqrt(var_a + var_b))
        surely = (change.above_zero or change.below_zero) and abs(change.value) >= least
        of_a, of_b = (Estimate.around(m, t * sqrt(v)).positive() for m, v in ((mean_a, var_a), (mean_b, var_b)))
        terms[term] = Changed(of_a, of_b, change, enough and surely)
    (mean_a, mean_b), (var_a, var_b), freedom = _means(TOTAL, sides, prior)
    ratio = log(whole_a / whole_b)
    faster = Estimate.around(ratio, sqrt(var_a / mean_a**2 + var_b / mean_b**2) * students_t(freedom)).exp()
    significant = enough and (faster.low > 1 or faster.high < 1)
    return Times(unit, terms, faster, significant, weighed, enough)


def assumed_noise(run: Measured) -> float:
    """Standard deviation between runs of its setting, as a share: more where others filled the machine meanwhile."""
    others, cpus = run.facts.foreign_cpus, run.facts.machine_cpus
    if not cpus or not run.facts.machine_full or not others >= LEAST_FOREIGN_CPUS:
        return PAIR_PRIOR.noise
    return max(PAIR_PRIOR.noise, NOISE_OF_LOAD * min(1.0, others / cpus) * run.needs_cpu)


def time_per_unit(run: Measured, unit: str) -> float:
    """µs per unit, of all ranks together."""
    if unit == STEP:
        return run.facts.parts.wall_ns / 1e3 / run.facts.window.count
    assert run.analysis.job is not None
    return run.analysis.job.wall_ns / 1e3 / run.analysis.job.samples


def _runs(everyone: Sequence[Measured], unit: str, noise: float | None) -> tuple[list[_RunTimes], bool]:
    """Each run's terms, and whether beginnings of epochs were made to count alike in all, where they can be told."""
    alone = unit == SAMPLE and all(not run.analysis.ranks and run.facts.input_known for run in everyone)
    alike = alike_in_starts([run.facts for run in everyone]) if alone else None
    runs = []
    weighed = False
    for number, run in enumerate(everyone):
        whole, shares = time_per_unit(run, unit), shares_of(run.analysis)
        terms = {TOTAL: whole} | {part: whole * shares[part] for part in PARTS if part in shares}
        if alike is not None:
            weighed = weighed or abs(alike[number][TOTAL] - whole) > 1e-6 * whole
            terms |= {term: alike[number][term] for term in ("input", TOTAL) if term in terms}
        assumed = assumed_noise(run) if noise is None else noise
        runs.append(_RunTimes(terms, run.scatter.get(unit), assumed))
    return runs, weighed


def _means(
    term: str, sides: Sequence[Sequence[_RunTimes]], prior: float
) -> tuple[tuple[float, ...], tuple[float, ...], float]:
    """(mean of each side in µs, variance of each mean, degrees of freedom of both). `prior`: those of the assumed
    variance."""
    seen = sum(map(len, sides)) - 2
    found = []
    squares = expected = 0.0
    for side in sides:
        values = np.array([run.terms[term] for run in side])
        whole = float(np.mean([run.terms[TOTAL] for run in side]))
        assumed = float(np.mean([run.noise**2 for run in side])) * max(0.0, float(values.mean()) / whole)
        own = [run.scatter[term] for run in side if run.scatter is not None]
        squares += float(((values - values.mean()) ** 2).sum()) / whole**2
        # What runs differ by holds what their steps do; a run too short to tell is taken to vary as the assumption.
        alone = assumed + (float(np.mean(own)) if own else assumed)
        expected += prior / 2 * alone
        found.append((float(values.mean()), alone, whole, len(side)))
    # Sides have noise of their own, in proportion to what is expected; runs that were seen widen or narrow both.
    factor = (squares + expected) / (expected + seen / prior * expected) if expected else 0.0
    variances = tuple(factor * alone * whole**2 / count for _, alone, whole, count in found)
    return tuple(each[0] for each in found), variances, seen + prior
