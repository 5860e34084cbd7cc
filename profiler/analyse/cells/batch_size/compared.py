"""Two batch sizes of a sweep, side by side: what the rules ask about.

What several terms are at several batch sizes, and how they changed, from runs in interleaved rounds. Each term of a
run, as a share of its size's time per sample, is taken for the sum of what the size makes it, what the round made
it (the machine's drift hits all runs of a round alike), and noise. Least squares tell these apart; since all terms
have the same design, the estimates of the parts sum to that of the total.

A sweep has few runs, so their variance is weighed with what runs on an ordinary machine differ by (`SWEEP_PRIOR`):
one run of each size still has an interval, and a noisy machine widens it soon.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ...run.facts import Facts
from ...run.stall_breakdown import PARTS, TOTAL
from ...shares import MOSTLY
from ...statistics import OUTSIDE, SWEEP_PRIOR, Estimate, LeastSquares, Values, median_of_known, students_t

MOST_RUNS = 50
"""Runs of a size beyond which it is not said how many would show a change: nobody makes more."""
LEAST_WHOLE_ROUNDS = 2
"""Rounds in which every size ran, from which rounds tell a drift of the machine from noise."""


@dataclass(frozen=True)
class RunTerms:
    """What one run contributes to a sweep."""

    size: int
    round: int | None
    """Runs of the same round followed each other; `None` where that is not known."""
    terms: Mapping[str, float]
    """Time per sample of each term, `total` among them."""


class SweepFit:
    """Estimates of every term at every size.

    Raises:
        ValueError: no run.
    """

    def __init__(self, runs: Sequence[RunTerms]) -> None:
        self._sizes = sorted({run.size for run in runs})
        design = _design(runs, self._sizes)
        self._totals = {
            size: float(np.mean([run.terms[TOTAL] for run in runs if run.size == size])) for size in self._sizes
        }
        self._terms = list(runs[0].terms)
        shares = np.array([[run.terms[name] / self._totals[run.size] for name in self._terms] for run in runs])
        self._solved = LeastSquares(design, shares)
        variance = SWEEP_PRIOR.variance(self._solved.squares, self._solved.freedom)
        # A term that no run has, such as copies where the processor is the device, has no noise either.
        self._variance: Values = np.where((shares != 0).any(axis=0), variance, 0.0)
        freedom = self._solved.freedom + SWEEP_PRIOR.freedom
        self._reach = students_t(freedom)
        # The sizes that are compared are chosen by what they took, of so many pairs.
        self._reach_of_change = students_t(freedom, OUTSIDE / max(1, len(self._sizes) - 1))

    @property
    def noise(self) -> float:
        """Standard deviation that the time per sample of runs of one size is taken to have, as a share of it."""
        return float(np.sqrt(self._variance[self._terms.index(TOTAL)]))

    def at(self, size: int, term: str) -> Estimate:
        """A term at one size; all NaN where it is not known of a run."""
        return self._estimate(term, {size: self._totals[size]}, self._reach).positive()

    def change(self, smaller: int, larger: int, term: str) -> Estimate:
        """What a term grew by; its interval is for whichever two of the sizes."""
        return self._estimate(
            term, {larger: self._totals[larger], smaller: -self._totals[smaller]}, self._reach_of_change
        )

    def runs_for(self, change: float) -> int | None:
        """How many runs of each of two sizes would show so large a change of the time per sample, a share of it;
        `None` for more than `MOST_RUNS`."""
        for runs in range(2, MOST_RUNS + 1):
            spread = float(np.sqrt(2 / runs)) * self.noise
            if students_t(runs - 1 + SWEEP_PRIOR.freedom) * spread <= change:
                return runs
        return None

    def _estimate(self, term: str, weights: Mapping[int, float], quantile: float) -> Estimate:
        """A term summed over sizes, each with its weight."""
        covariance = self._solved.covariance
        weight = np.zeros(len(covariance))
        for size, factor in weights.items():
            weight[self._sizes.index(size)] = factor
        column = self._terms.index(term)
        value = float(weight @ self._solved.coefficients[:, column])
        return Estimate.around(
            value, quantile * float(np.sqrt(self._variance[column] * (weight @ covariance @ weight)))
        )


def _design(runs: Sequence[RunTerms], sizes: Sequence[int]) -> Values:
    """A column for each size, and one for each round but the last, in which the last is what makes them sum to 0.

    Rounds count where at least `LEAST_WHOLE_ROUNDS` of them hold every size.
    """
    held: dict[int | None, set[int]] = {}
    for run in runs:
        held.setdefault(run.round, set()).add(run.size)
    whole = sum(number is not None and of == set(sizes) for number, of in held.items())
    rounds = sorted(n for n in held if n is not None) if whole >= LEAST_WHOLE_ROUNDS and None not in held else []
    columns = [[float(run.size == size) for run in runs] for size in sizes]
    columns += [[float(run.round == each) - float(run.round == rounds[-1]) for run in runs] for each in rounds[:-1]]
    return np.array(columns).T


CONSIDERABLE_CHANGE = 0.05
"""Change of a term, as a share of the time per sample at the smaller size, below which it counts as none. More than
`diff`'s `LEAST_PART_CHANGE`, from which a part has a line of its own: a verdict on batch sizes rests on this."""
UNSURE = 0.10
"""Half the interval of the time per sample, as a share of it, from which runs that show no change prove none either."""


@dataclass(frozen=True)
class Compared:
    """Two batch sizes of a sweep."""

    fit: SweepFit
    smaller: int
    larger: int
    before: Sequence[Facts]
    """The runs of the smaller size."""
    after: Sequence[Facts]
    """The runs of the larger size."""

    def times(self, term: str) -> tuple[float, float]:
        """A term at both sizes, µs per sample."""
        return self.fit.at(self.smaller, term).value, self.fit.at(self.larger, term).value

    def change(self, term: str) -> Estimate:
        """What a term grew by from the smaller to the larger size, µs per sample."""
        return self.fit.change(self.smaller, self.larger, term)

    def values(self, value: Callable[[Facts], float | None]) -> tuple[float, float] | None:
        """A figure of both sizes, the median over their runs; `None` unless both are known."""
        before, after = (median_of_known(value(run) for run in runs) for runs in (self.before, self.after))
        return None if before is None or after is None else (before, after)

    @property
    def slower(self) -> bool:
        """Whether a sample surely takes longer at the larger size, and considerably so."""
        return self._rose(TOTAL)

    @property
    def faster(self) -> bool:
        """Whether a sample surely takes less time at the larger size, and considerably so."""
        change = self.change(TOTAL)
        return change.high < 0 and -change.value > self._least

    @property
    def unsure(self) -> bool:
        """Whether the runs differ by too much to tell slower from faster."""
        return not self.slower and not self.faster and self.reach > UNSURE

    @property
    def reach(self) -> float:
        """Half the interval of the total's change, as a share of the time per sample."""
        change = self.change(TOTAL)
        return (change.high - change.value) / self.times(TOTAL)[0]

    @cached_property
    def risen(self) -> list[str]:
        """The parts that surely grew, the one that did most first."""
        rose = [part for part in PARTS if self._rose(part)]
        return sorted(rose, key=lambda part: -self.change(part).value)

    @property
    def grew(self) -> str | None:
        """The part that grew most, of those that surely did."""
        return self.risen[0] if self.risen else None

    @property
    def waiter(self) -> str:
        """Who waits for data, in a sentence."""
        return self.after[0].waiter

    @property
    def growth(self) -> float:
        """What the part that grew most grew by, µs per sample; 0 where none did."""
        return self.change(self.grew).value if self.grew is not None else 0.0

    def is_due_to(self, *names: str) -> bool:
        """Whether these terms together grew by most of `growth`; not if one of them is not known."""
        return sum(self.change(name).value for name in names) >= MOSTLY * self.growth

    def _rose(self, term: str) -> bool:
        change = self.change(term)
        return change.low > 0 and change.value > self._least

    @property
    def _least(self) -> float:
        return CONSIDERABLE_CHANGE * self.times(TOTAL)[0]
