"""How large a batch should be, from what sizes took and held: pure arithmetic.

A step of B samples takes T(B) = alpha + beta B: what it costs whatever its size (launches, Python, the optimizer), and
what each sample adds. Then a batch of alpha / beta samples, B_half, trains at half of the rate that no batch exceeds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ...analyse.statistics import Estimate

NEAR_BEST = 0.95
"""Of the best rate, that is as good as it."""
OFF_LINE = 0.05
"""Distance of a rate from the line, as a share of it, that is worth a word."""
LAUNCH_BOUND = 0.30
"""Share of a step that its size does not matter to, from which a batch is too small for the machine."""
MEMORY_RESIDUAL = 0.03
"""Distance of a measured memory from the line from which that is no line."""
EXTRAPOLATED = 2
"""Times the largest measured size that such a line is trusted to."""
ROUNDING = 1e-6
"""Samples."""


Rates = Mapping[int, Estimate]
"""Samples/s of each batch size that was measured."""


@dataclass(frozen=True)
class StepTime:
    """T(B) = alpha + beta B, ns."""

    alpha_ns: float
    """>= 0."""
    beta_ns: float
    """Of a sample; > 0."""
    off_line: tuple[int, ...]
    """Sizes whose rate is further than `OFF_LINE` from it."""

    @property
    def half(self) -> float:
        """B_half: the batch that reaches half of the rate of an infinite one."""
        return self.alpha_ns / self.beta_ns

    def at(self, batch_size: int) -> float:
        return self.alpha_ns + self.beta_ns * batch_size

    def alpha_share(self, batch_size: int) -> float:
        return self.alpha_ns / self.at(batch_size)

    def launch_bound(self, batch_size: int) -> bool:
        """Whether a larger batch would cost little more."""
        return self.alpha_share(batch_size) > LAUNCH_BOUND


def step_time(rates: Rates) -> StepTime | None:
    """The line through what steps took, by least squares of its relative errors; `None` from fewer than three sizes.

    Where the best line would have a negative part, which no step has, it is the best of those without that part.
    `None` too where larger batches take no longer, so that there is no time of a sample.
    """
    if len(rates) < 3:
        return None
    sizes = np.array(list(rates), dtype=float)
    times = sizes * 1e9 / np.array([rate.value for rate in rates.values()])
    alpha, beta = _relative_line(sizes, times)
    if alpha < 0:
        ratio = sizes / times
        alpha, beta = 0.0, float(ratio.sum() / (ratio**2).sum())
    if beta <= 0:
        return None
    off = np.abs(times / (alpha + beta * sizes) - 1) > OFF_LINE
    return StepTime(alpha, beta, tuple(sorted({int(size) for size in sizes[off]})))


@dataclass(frozen=True)
class Knee:
    """The smallest size that is as good as the best."""

    batch_size: int
    earliest: int
    """The smallest that could be it, by the ends of the intervals."""
    latest: int
    """The smallest that surely is it."""
    best: int
    """The size with the best rate."""


def knee(rates: Rates) -> Knee | None:
    """Only measured sizes count: a rate need not rise with the size. `None` of no rates."""
    if not rates:
        return None
    best = max(sorted(rates), key=lambda size: rates[size].value)
    least = NEAR_BEST * rates[best].value

    def smallest(of: Callable[[Estimate], float]) -> int:
        return next(size for size in sorted(rates) if size == best or of(rates[size]) >= least)

    return Knee(
        smallest(lambda rate: rate.value), smallest(lambda rate: rate.high), smallest(lambda rate: rate.low), best
    )


@dataclass(frozen=True)
class MemoryLine:
    """M(B) = base + slope B, bytes."""

    base: float
    slope: float
    largest: int
    """Size that was measured."""
    straight: bool
    """Whether all that was measured lies on it."""

    def at(self, batch_size: int) -> float:
        return self.base + self.slope * batch_size

    def largest_within(self, nbytes: float) -> int | None:
        """The largest size that should fit, as far as the line is to be trusted; `None` where memory does not grow."""
        if self.slope <= 0:
            return None if self.straight else EXTRAPOLATED * self.largest
        # A line through exact points is off by a few bytes, which must not cost a whole sample.
        fits = math.floor((nbytes - self.base) / self.slope + ROUNDING)
        return max(0, fits if self.straight else min(fits, EXTRAPOLATED * self.largest))


def memory_line(points: Mapping[int, int]) -> MemoryLine | None:
    """The line through what sizes held. `None` from one size.

    From two sizes nothing tells whether it is straight; it is taken for it, and what follows has to be tried anyway.
    """
    if len(points) < 2:
        return None
    sizes = np.array(sorted(points), dtype=float)
    held = np.array([points[int(size)] for size in sizes], dtype=float)
    base, slope = _relative_line(sizes, held)
    straight = bool((np.abs(base + slope * sizes - held) <= MEMORY_RESIDUAL * held).all())
    return MemoryLine(base, slope, int(sizes[-1]), straight)


def learning_rate_note(before: int, after: int) -> str:
    """What a change of the global batch asks of the learning rate, in words: nothing is changed for accuracy here."""
    ratio = after / before
    return (
        f"A global batch of {after} instead of {before} changes the training. Rules of thumb multiply the learning "
        f"rate by {ratio:.2g} for SGD (linear, with a warm-up) and by {math.sqrt(ratio):.2g} for Adam (square root). "
        "Accuracy was not measured"
    )


Values = npt.NDArray[np.float64]


def _relative_line(x: Values, y: Values) -> tuple[float, float]:
    """(a, b) of y = a + b x with the least sum of squared relative errors."""
    design = np.column_stack([1 / y, x / y])
    (a, b), *_ = np.linalg.lstsq(design, np.ones(len(y)), rcond=None)
    return float(a), float(b)
