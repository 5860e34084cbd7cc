"""The statistics of whyidle: figures with their intervals, what repeats differ by, and the quantiles behind both.

Two kinds of bounds are told apart. An `Estimate` has a 95 % confidence interval, from a model of the noise. A `Range`
is nothing but what repeats of one thing came to: the lowest and the highest of them.

Few repeats say little about noise, and two that agree by luck prove nothing. The variance that was seen is therefore
weighed with an assumed one, as if that had been seen as well (Smyth 2004, moderated t): see `NoisePrior`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from math import exp, sqrt
from statistics import NormalDist
from typing import Self

import numpy as np
import numpy.typing as npt

OUTSIDE = 0.05
"""Share of cases in which an interval misses the truth."""
Z95 = 1.96
"""Standard errors to either side of a 95 % interval where noise is normal and its variance known."""
Z90 = 1.645
"""Standard deviations to either side of a 90 % interval of a normal value."""
SCATTER_SD = 0.05
"""Standard deviation of the log of a factor beyond all that is counted, as two runs of one thing differ: measured, see
docs/measurements/promises.md."""

Values = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Estimate:
    """A figure with its 95 % confidence interval. Bounds that are not known are NaN."""

    value: float
    low: float
    high: float

    @classmethod
    def around(cls, value: float, reach: float) -> Estimate:
        """A figure with an interval that reaches as far to either side."""
        return Estimate(value, value - reach, value + reach)

    @property
    def above_zero(self) -> bool:
        return self.low > 0

    @property
    def below_zero(self) -> bool:
        return self.high < 0

    def shifted(self, by: float) -> Estimate:
        return Estimate(self.value + by, self.low + by, self.high + by)

    def exp(self) -> Estimate:
        """Of an estimated logarithm: the figure itself."""
        return Estimate(exp(self.value), exp(self.low), exp(self.high))

    def positive(self) -> Self:
        """Of a figure that cannot be negative: the part of the interval from 0 on."""
        return replace(self, low=0.0) if self.low < 0 else self


@dataclass(frozen=True)
class Speedup:
    """The rate of a training over what it was, with a 90 % interval."""

    value: float
    low: float
    high: float
    to_try: bool = False
    """Whether the run does not show that anything is gained: then the interval begins at 1, however much it may be."""

    def kept(self, measured: Estimate) -> bool | None:
        """Whether what came lies in the interval; `None` where it does not, but its own interval reaches into it."""
        if self.low <= measured.value <= self.high:
            return True
        return None if measured.low <= self.high and measured.high >= self.low else False

    def no_more_than(self, most: float) -> Speedup:
        return replace(self, value=min(self.value, most), low=min(self.low, most), high=min(self.high, most))

    def maybe_none(self) -> Speedup:
        """The same where it is not known that anything is gained."""
        return replace(self, low=min(1.0, self.low), to_try=True)


def scattered(most: float) -> float:
    """The upper end of a limit that was measured."""
    return most * exp(Z90 * SCATTER_SD)


ONE_RUN_REACH = 0.05
"""How far the range of a single run is taken to reach, as a share of its figure: single runs differ by as much for no
reason. About what 19 of 20 runs stay within if runs differ by `RUN_NOISE`, rounded down."""


@dataclass(frozen=True)
class Range:
    """A figure of runs that repeat each other (their median or mean), and the lowest and highest of them."""

    value: float
    low: float
    high: float
    repeats: int

    @property
    def repeated(self) -> bool:
        return self.repeats > 1

    def over(self, other: Range) -> Range:
        """This figure over another one; the bounds are what the repeats of either allow at most."""
        repeats = max(self.repeats, other.repeats)
        return Range(self.value / other.value, self.low / other.high, self.high / other.low, repeats)

    def divided_by(self, number: float) -> Range:
        return Range(self.value / number, self.low / number, self.high / number, self.repeats)

    def meets(self, other: Range) -> bool:
        """Whether two ranges meet, so that neither figure is clearly the larger one."""
        return min(self.most, other.most) >= max(self.least, other.least)

    @property
    def least(self) -> float:
        """The lower bound; of runs that do not differ, a single one above all, lower by `ONE_RUN_REACH`."""
        return self.low if self.low < self.high else self.low / (1 + ONE_RUN_REACH)

    @property
    def most(self) -> float:
        """The upper bound; of runs that do not differ, a single one above all, higher by `ONE_RUN_REACH`."""
        return self.high if self.low < self.high else self.high * (1 + ONE_RUN_REACH)


def range_of(values: Iterable[float], middle: Callable[[Sequence[float]], float]) -> Range | None:
    """The range of repeats around their `middle` (`median`, `fmean`); `None` where there are none."""
    known = list(values)
    return Range(float(middle(known)), min(known), max(known), len(known)) if known else None


def median_of_known(values: Iterable[float | None]) -> float | None:
    """The median without what is not known, `None` or NaN; `None` where nothing is."""
    known = [value for value in values if value is not None and value == value]
    return float(np.median(known)) if known else None


def median_place(values: Sequence[float | None]) -> int | None:
    """Where the median stands among values, the lower of the two middle ones; `None` where nothing is known."""
    known = sorted((value, place) for place, value in enumerate(values) if value is not None)
    return known[(len(known) - 1) // 2][1] if known else None


@dataclass(frozen=True)
class NoisePrior:
    """What repeats of one setting are assumed to differ by before any was seen."""

    noise: float
    """Standard deviation between repeats, as a share of the figure."""
    freedom: float
    """Degrees of freedom that the assumption weighs as much as."""

    def variance(self, squares: Values, seen: float) -> Values:
        """The variance of repeats, from squares of residuals of so many degrees of freedom, weighed with what was
        assumed."""
        pooled: Values = (squares + self.freedom * self.noise**2) / (seen + self.freedom)
        return pooled


RUN_NOISE = 0.03
"""Standard deviation between runs of one setting on an ordinary machine, as a share of the time per sample."""
SWEEP_PRIOR = NoisePrior(RUN_NOISE, 2.0)
"""Of runs in a sweep over batch sizes, which has several runs to learn from."""
PAIR_PRIOR = NoisePrior(RUN_NOISE, 5.0)
"""Of two runs that are compared, each of which may be the only one of its setting. Two degrees of freedom would leave
those with intervals of 18 %; this many keep the two of one setting apart in few cases (docs/commands/diff.md)."""
BLOCK_PRIOR = NoisePrior(0.04, 2.0)
"""Of blocks of about a second within one training: shorter than runs, so they differ by more. With less, intervals held
the truth of simulated searches in 77 to 88 % of cases."""
KNOWN_FREEDOM = 1000.0
"""Degrees of freedom of a variance that the user says is known."""


class LeastSquares:
    """Coefficients that explain values best, and what they leave unexplained. Of several columns of values each is
    explained by itself."""

    def __init__(self, design: Values, values: Values) -> None:
        """`design`: a row for each value, a column for each coefficient."""
        self.covariance = np.linalg.pinv(design.T @ design)
        """Of the coefficients, for noise of variance 1."""
        self.coefficients: Values = self.covariance @ design.T @ values
        self.freedom: int = len(design) - int(np.linalg.matrix_rank(design))
        """Degrees of freedom that the residuals have."""
        self.squares: Values = ((values - design @ self.coefficients) ** 2).sum(axis=0)
        """Sum of the squared residuals, by column."""


def students_t(freedom: float, outside: float = OUTSIDE) -> float:
    """The quantile of Student's t that is exceeded to either side in a share `outside` of cases, by the expansion of
    Fisher and Cornish: within 3 % for 95 % intervals from two degrees of freedom on."""
    z = NormalDist().inv_cdf(1 - outside / 2)
    return (
        z
        + (z**3 + z) / (4 * freedom)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * freedom**3)
    )


def wilson(share: float, n: float) -> Estimate:
    """The rate behind a share, 0..1, that was seen in `n` independent cases (Wilson's interval, which holds at 0 and
    at 1, too)."""
    if n <= 0:
        return Estimate(share, 0.0, 1.0)
    z2 = Z95 * Z95
    middle = (share + z2 / (2 * n)) / (1 + z2 / n)
    half = Z95 * sqrt(share * (1 - share) / n + z2 / (4 * n * n)) / (1 + z2 / n)
    # At 0 and at 1 the formula gives just that, but for rounding.
    return Estimate(share, max(0.0, min(share, middle - half)), min(1.0, max(share, middle + half)))


def theil_sen(times: Values, values: Values) -> tuple[Estimate, float]:
    """How fast values rise with time, and Kendall's tau, -1 to 1: whether they rise all along, noise or not.

    The rate is the median of the slopes between all pairs (Theil, Sen): up to a quarter of the values may be anything.
    Its 95 % interval is by Kendall's variance, wider where what is left follows itself. At least three values.
    """
    one, other = np.triu_indices(len(values), 1)
    apart = times[other] > times[one]
    one, other = one[apart], other[apart]
    slopes = np.sort((values[other] - values[one]) / (times[other] - times[one]))
    rate = float(np.median(slopes))
    tau = float(np.sign(slopes).mean())
    rest = values - rate * times
    rest = rest - np.median(rest)
    squares = float((rest**2).sum())
    follows = min(0.9, max(0.0, float((rest[1:] * rest[:-1]).sum()) / squares)) if squares else 0.0
    n = len(values)
    spread = Z95 * sqrt(n * (n - 1) * (2 * n + 5) / 18 * (1 + follows) / (1 - follows))
    low = max(0, round((len(slopes) - spread) / 2))
    high = min(len(slopes) - 1, round((len(slopes) + spread) / 2))
    return Estimate(rate, float(slopes[low]), float(slopes[high])), tau
