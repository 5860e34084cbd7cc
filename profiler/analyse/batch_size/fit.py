"""What several terms are at several batch sizes, and how they changed, from runs in interleaved rounds.

Each term of a run, as a share of its size's time per sample, is taken for the sum of what the size makes it, what the
round made it (the machine's drift hits all runs of a round alike), and noise. Least squares tell these apart; since all
terms have the same design, the estimates of the parts sum to that of the total.

A sweep has few runs, and two that happen to agree prove nothing about noise. Its variance is therefore weighed with
what runs on an ordinary machine differ by, as if that had been seen in `ASSUMED_RUNS` further runs (Smyth 2004,
moderated t): one run of each size still has an interval, and a noisy machine widens it soon.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from .result import TOTAL, Estimate

ASSUMED_NOISE = 0.03
"""Standard deviation of a term between runs of the same size, as a share of the time per sample."""
ASSUMED_RUNS = 2.0
"""Degrees of freedom that this weighs as much as."""
CONFIDENCE = 0.95

Values = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Measured:
    """One run."""

    size: int
    round: int | None
    """Runs of the same round followed each other; `None` where that is not known."""
    terms: Mapping[str, float]
    """Time per sample of each term, `total` among them."""


class Fit:
    """Estimates of every term at every size.

    Raises:
        ValueError: no run.
    """

    def __init__(self, runs: Sequence[Measured]) -> None:
        self._sizes = sorted({run.size for run in runs})
        design = _design(runs, self._sizes)
        self._totals = {
            size: float(np.mean([run.terms[TOTAL] for run in runs if run.size == size])) for size in self._sizes
        }
        self._terms = list(runs[0].terms)
        shares = np.array([[run.terms[name] / self._totals[run.size] for name in self._terms] for run in runs])
        self._spread = np.linalg.pinv(design.T @ design)
        self._means = self._spread @ design.T @ shares
        seen = max(0, len(runs) - int(np.linalg.matrix_rank(design)))
        squares = ((shares - design @ self._means) ** 2).sum(axis=0)
        self._variance: Values = (squares + ASSUMED_RUNS * ASSUMED_NOISE**2) / (seen + ASSUMED_RUNS)
        self._reach = _students_t(seen + ASSUMED_RUNS)

    @property
    def sizes(self) -> list[int]:
        return self._sizes

    @property
    def noise(self) -> float:
        """Standard deviation of the time per sample between runs of a size, as a share of it."""
        return float(np.sqrt(self._variance[self._terms.index(TOTAL)]))

    def at(self, size: int, term: str) -> Estimate:
        """A term at one size."""
        return self._estimate(term, {size: self._totals[size]})

    def change(self, smaller: int, larger: int, term: str) -> Estimate:
        """What a term grew by."""
        return self._estimate(term, {larger: self._totals[larger], smaller: -self._totals[smaller]})

    def _estimate(self, term: str, weights: Mapping[int, float]) -> Estimate:
        """Of a sum over sizes."""
        weight = np.zeros(len(self._spread))
        for size, factor in weights.items():
            weight[self._sizes.index(size)] = factor
        column = self._terms.index(term)
        mean = float(weight @ self._means[:, column])
        reach = self._reach * float(np.sqrt(self._variance[column] * (weight @ self._spread @ weight)))
        return Estimate(mean, mean - reach, mean + reach)


def _design(runs: Sequence[Measured], sizes: Sequence[int]) -> Values:
    """A column for each size, and one for each round but the last, in which the last is what makes them sum to 0."""
    numbers = [run.round for run in runs]
    rounds = sorted({number for number in numbers if number is not None}) if None not in numbers else []
    columns = [[float(run.size == size) for run in runs] for size in sizes]
    columns += [[float(run.round == each) - float(run.round == rounds[-1]) for run in runs] for each in rounds[:-1]]
    return np.array(columns).T


def _students_t(freedom: float) -> float:
    """The two-sided quantile of Student's t, by the expansion of Fisher and Cornish: within 3 % from 2 on."""
    z = NormalDist().inv_cdf(0.5 + CONFIDENCE / 2)
    return (
        z
        + (z**3 + z) / (4 * freedom)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * freedom**3)
    )
