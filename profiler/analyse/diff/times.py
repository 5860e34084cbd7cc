"""Time per sample of two sides, by part, and what the difference is worth.

A run is one draw: another run of the same setting differs, by more than its own steps tell (caches, placement, other
programs). So runs are the units. What runs of one setting differ by is weighed with what they are assumed to differ by
(`PAIR_PRIOR`); single runs have only the assumption, and what their blocks of steps scatter by. Of a part
of the time the assumed variance is its share of the whole's, as if parts varied on their own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf, log, sqrt

import numpy as np

from ..causes.diagnosis import LEAST_STEPS
from ..cells.batch_size.terms import alike_in_starts
from ..run.resource_usage import LEAST_FOREIGN_CPUS
from ..run.stall_breakdown import PARTS, TERMS, TOTAL
from ..statistics import KNOWN_FREEDOM, PAIR_PRIOR, Estimate, students_t
from .blocks import BlockScatter
from .sides import Measured, Side

NOISE_OF_LOAD = 0.5
"""Standard deviation between runs on a full machine, over the share of its CPUs that other programs use, in the time
that the runs need a CPU or wait for one."""
LEAST_PART_CHANGE = 0.01
"""Change of a part, as a share of the time per sample, from which it is worth a word. Less than the sweeps'
`CONSIDERABLE_CHANGE`: it says what moved, and decides nothing."""
SAMPLE, STEP = "sample", "step"


@dataclass(frozen=True)
class Changed:
    """A term on both sides, µs per unit with 95 % intervals; `change` is B less A."""

    a: Estimate
    b: Estimate
    change: Estimate
    least: float
    """Change that is worth a word, at least, µs per unit."""
    enough: bool
    """Whether every run has steps enough to support a claim."""

    @property
    def significant(self) -> bool:
        """Whether it surely changed, and by enough to be worth a word."""
        away = self.change.low > 0 or self.change.high < 0
        return self.enough and away and abs(self.change.value) >= self.least


@dataclass(frozen=True)
class Times:
    """Time per sample, or step, of two sides."""

    unit: str
    """`sample`, or `step` where samples are not known."""
    terms: Mapping[str, Changed]
    """By part, where all runs know it, and `total`."""
    speedup: Estimate
    """How many times as fast B is as A."""
    within: Estimate
    """How many times as fast B is as A if these runs stood for their settings: by the scatter of their own steps alone.
    Bounds are NaN where those are too few."""
    starts_weighed: bool
    """Whether beginnings of epochs were weighed, since the runs show different shares of them."""
    enough: bool
    """Whether every run has steps enough to support a claim. The intervals are of runs that settled: those of a few
    steps differ by more."""

    @property
    def significant(self) -> bool:
        """Whether one side is surely faster."""
        return self.enough and (self.speedup.low > 1 or self.speedup.high < 1)


@dataclass(frozen=True)
class _RunTimes:
    """One run's time per unit."""

    terms: Mapping[str, float]
    """µs per unit; parts that are not known are not there."""
    spread: BlockScatter | None
    noise: float
    """Standard deviation between runs of its setting, assumed or known, as a share."""


def times_of(a: Side, b: Side, noise: float | None = None) -> Times:
    """The times of two sides. `noise`: standard deviation between runs of one setting, as a share, where the user knows
    it."""
    everyone = (*a.runs, *b.runs)
    unit = SAMPLE if all(run.facts.samples_known for run in everyone) else STEP
    runs, weighed = _runs(everyone, unit, noise)
    of_a, of_b = runs[: len(a.runs)], runs[len(a.runs) :]
    known = [term for term in TERMS if all(term in run.terms for run in runs)]
    total_a, total_b = (float(np.mean([run.terms[TOTAL] for run in side])) for side in (of_a, of_b))
    least = LEAST_PART_CHANGE * max(total_a, total_b)
    freedom = PAIR_PRIOR.freedom if noise is None else KNOWN_FREEDOM
    enough = all(run.looked_at >= LEAST_STEPS for run in everyone)
    terms = {term: _changed(term, of_a, of_b, freedom, least, enough) for term in known}
    spread, freedom = _relative(of_a, of_b, freedom)
    ratio = log(total_a / total_b)
    reach = spread * students_t(freedom)
    own = [_within(side) for side in (of_a, of_b)]
    inside = inf if None in own else sqrt(sum(each[0] for each in own if each))
    reach_inside = inside * students_t(_least_freedom(own)) if inside < inf else float("nan")
    return Times(
        unit,
        terms,
        Estimate.around(ratio, reach).exp(),
        Estimate.around(ratio, reach_inside).exp(),
        weighed,
        enough,
    )


def assumed_noise(run: Measured) -> float:
    """Standard deviation between runs of its setting, as a share: more where others filled the machine meanwhile."""
    others, cpus = run.facts.foreign_cpus, run.facts.machine_cpus
    if others is None or not cpus or not run.facts.machine_full or others < LEAST_FOREIGN_CPUS:
        return PAIR_PRIOR.noise
    return max(PAIR_PRIOR.noise, NOISE_OF_LOAD * min(1.0, others / cpus) * run.needs_cpu)


def _runs(everyone: Sequence[Measured], unit: str, noise: float | None) -> tuple[list[_RunTimes], bool]:
    """Each run's terms; beginnings of epochs count alike in all where they can be told."""
    facts = [run.facts for run in everyone]
    alone = unit == SAMPLE and all(run.analysis.job is None and run.facts.input_known for run in everyone)
    alike = alike_in_starts(facts) if alone else None
    runs = []
    weighed = False
    for number, run in enumerate(everyone):
        whole, shares = time_per_unit(run, unit), _shares(run)
        terms = {TOTAL: whole} | {part: whole * shares[part] for part in PARTS if part in shares}
        if alike is not None:
            weighed = weighed or abs(alike[number][TOTAL] - whole) > 1e-6 * whole
            terms |= {term: alike[number][term] for term in ("input", TOTAL) if term in terms}
        spread = run.scatter(unit == SAMPLE)
        runs.append(_RunTimes(terms, spread, assumed_noise(run) if noise is None else noise))
    return runs, weighed


def _shares(run: Measured) -> Mapping[str, float]:
    job = run.analysis.job
    return run.facts.shares if job is None else job.shares


def time_per_unit(run: Measured, unit: str) -> float:
    """µs per unit, of all ranks together."""
    job, facts = run.analysis.job, run.facts
    if unit == STEP:
        return facts.parts.wall_ns / 1e3 / facts.window.count
    return job.wall_ns / 1e3 / job.samples if job is not None else facts.parts.wall_ns / 1e3 / facts.samples


def _changed(
    term: str, a: Sequence[_RunTimes], b: Sequence[_RunTimes], prior: float, least: float, enough: bool
) -> Changed:
    (mean_a, var_a), (mean_b, var_b), freedom = _means(term, a, b, prior)
    t = students_t(freedom)
    return Changed(
        Estimate.around(mean_a, t * sqrt(var_a)).positive(),
        Estimate.around(mean_b, t * sqrt(var_b)).positive(),
        Estimate.around(mean_b - mean_a, t * sqrt(var_a + var_b)),
        least,
        enough,
    )


def _means(
    term: str, a: Sequence[_RunTimes], b: Sequence[_RunTimes], prior: float
) -> tuple[tuple[float, float], tuple[float, float], float]:
    """(mean, variance of the mean) of each side in µs, and the degrees of freedom of both. `prior`: those of the
    assumed variance."""
    seen = len(a) + len(b) - 2
    found = []
    squares = expected = 0.0
    for side in (a, b):
        values = np.array([run.terms[term] for run in side])
        whole = float(np.mean([run.terms[TOTAL] for run in side]))
        share = max(0.0, float(values.mean()) / whole)
        assumed = float(np.mean([run.noise**2 for run in side]))
        own = [run.spread.variance[term] for run in side if run.spread is not None]
        squares += float(((values - values.mean()) ** 2).sum()) / whole**2
        # What runs differ by holds what their steps do; a run too short to tell is taken to vary as the assumption.
        alone = assumed * share + (float(np.mean(own)) if own else assumed * share)
        expected += prior / 2 * alone
        found.append((float(values.mean()), alone, whole, len(side)))
    ends = []
    for mean, alone, whole, number in found:
        # Sides have noise of their own, in proportion to what is expected; runs that were seen widen or narrow both.
        factor = (squares + expected) / (expected + seen / prior * expected) if expected else 0.0
        ends.append((mean, factor * alone * whole**2 / number))
    return ends[0], ends[1], seen + prior


def _relative(a: Sequence[_RunTimes], b: Sequence[_RunTimes], prior: float) -> tuple[float, float]:
    """Standard error of the log of the ratio of both totals, and its degrees of freedom."""
    (mean_a, var_a), (mean_b, var_b), freedom = _means(TOTAL, a, b, prior)
    return sqrt(var_a / mean_a**2 + var_b / mean_b**2), freedom


def _within(side: Sequence[_RunTimes]) -> tuple[float, float] | None:
    """(relative variance of the side's mean by its runs' own steps, degrees of freedom)."""
    spreads = [run.spread for run in side if run.spread is not None]
    if len(spreads) < len(side):
        return None
    return float(np.mean([s.variance[TOTAL] for s in spreads])) / len(side), sum(s.freedom for s in spreads)


def _least_freedom(own: Sequence[tuple[float, float] | None]) -> float:
    return min((each[1] for each in own if each is not None), default=KNOWN_FREEDOM)
