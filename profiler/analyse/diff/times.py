"""Time per sample of two sides, by part, and what the difference is worth.

A run is one draw: another run of the same setting differs, by more than its own steps tell (caches, placement, other
programs). So runs are the units. What runs of one setting differ by is weighed with what they are assumed to differ by
(`PAIR_PRIOR`); single runs have only the assumption, and what their blocks of steps scatter by. For a part of the time
the assumed variance is its share of the whole's, as if parts varied on their own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import log, sqrt

import numpy as np

from ..causes.diagnosis import LEAST_STEPS
from ..cells.batch_size import alike_in_starts
from ..ranks.figures import shares as shares_of
from ..run.resource_usage import LEAST_FOREIGN_CPUS
from ..run.stall_breakdown import PARTS, TERMS, TOTAL
from ..statistics import KNOWN_FREEDOM, PAIR_PRIOR, Estimate, students_t
from .sides import SAMPLE, STEP, Measured, Side, Variances

NOISE_OF_LOAD = 0.5
"""Standard deviation between runs on a full machine, over the share of its CPUs that other programs use, in the time
that the runs need a CPU or wait for one."""
LEAST_PART_CHANGE = 0.01
"""Change of a part, as a share of the time per sample, from which it is worth a word. Less than the sweeps'
`CONSIDERABLE_CHANGE`: it says what moved, and decides nothing."""


@dataclass(frozen=True)
class Changed:
    """A term on both sides, µs per unit with 95 % intervals; `change` is B less A."""

    a: Estimate
    b: Estimate
    change: Estimate
    significant: bool
    """Whether it surely changed, and by enough to be worth a word."""


@dataclass(frozen=True)
class Faster(Estimate):
    """How many times as fast B is as A."""

    significant: bool
    """Whether one side is surely faster."""


@dataclass(frozen=True)
class Times:
    """Time per sample, or step, of two sides."""

    unit: str
    """`sample`, or `step` where samples are not known."""
    terms: Mapping[str, Changed]
    """By part, where all runs know it, and `total`."""
    speedup: Faster
    starts_weighed: bool
    """Whether beginnings of epochs were weighed, since the runs show different shares of them."""
    enough: bool
    """Whether every run has steps enough to support a claim. The intervals are of runs that settled: those of a few
    steps differ by more."""

    @property
    def significant(self) -> bool:
        return self.speedup.significant


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
    return Times(unit, terms, Faster(faster.value, faster.low, faster.high, significant), weighed, enough)


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
