"""The gradient noise scale, estimated from how large gradients of small and of large batches are.

A batch of B samples has a gradient of E|g_B|^2 = |G|^2 + tr(Sigma) / B: that of all data, and the noise of the samples
drawn. Two sizes tell the two apart (McCandlish et al. 2018, appendix A); several do by least squares. The noise scale
tr(Sigma) / |G|^2 is the batch beyond which more samples bring little. It changes as training goes on, and one estimate
holds for no more than the steps that it was taken from.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

LEAST_STEPS = 8
"""Of each size."""
RESAMPLED = 1000
QUANTILES = (0.05, 0.95)
CLIPPED = 1e-3
"""Gradients whose norms are this close, most of them, were clipped to it."""

Values = npt.NDArray[np.float64]


@dataclass(frozen=True)
class NoiseScale:
    """In samples, with a 90 % interval."""

    estimate: float
    low: float
    high: float
    steps: int


def noise_scale(gradients: Iterable[tuple[int, float]], seed: int = 0) -> NoiseScale | str:
    """The noise scale from (samples, |g|^2) of optimizer steps; or why it cannot be told, a clause."""
    of: dict[int, list[float]] = {}
    for samples, square in gradients:
        if not np.isfinite(square):
            return "gradients are not finite"
        of.setdefault(samples, []).append(square)
    if not of:
        return "no gradients were seen"
    squares = {size: np.array(found) for size, found in sorted(of.items()) if len(found) >= LEAST_STEPS}
    if len(squares) < 2:
        return f"gradients of two batch sizes are needed, {LEAST_STEPS} steps of each"
    if any(_clipped(found) for found in squares.values()):
        return "gradients are clipped to a norm"
    sizes = np.array(list(squares), dtype=float)
    draws = np.random.default_rng(seed)
    found = _fit(sizes, np.array([[each.mean()] for each in squares.values()]), squares)
    drawn = np.array([each[draws.integers(0, len(each), (len(each), RESAMPLED))].mean(0) for each in squares.values()])
    gradient, noise = _fit(sizes, drawn, squares)
    if np.quantile(noise, QUANTILES[0]) <= 0:
        return "larger batches have no clearly smaller gradients, so that noise cannot be told from chance"
    if np.quantile(gradient, QUANTILES[0]) <= 0:
        return f"noise drowns the gradient of even {int(sizes[-1])} samples: the scale is larger than that"
    low, high = np.quantile(noise / gradient, QUANTILES)
    steps = sum(map(len, squares.values()))
    return NoiseScale(float(found[1][0] / found[0][0]), float(low), float(high), steps)


def _fit(sizes: Values, means: Values, squares: dict[int, Values]) -> tuple[Values, Values]:
    """|G|^2 and tr(Sigma) for each column of means. Each size's mean counts by how well it is known: its error is about
    in proportion to it, and falls with the root of the steps."""
    weights = np.array([np.sqrt(len(each)) / each.mean() for each in squares.values()])
    design = np.column_stack([np.ones(len(sizes)), 1 / sizes]) * weights[:, None]
    (gradient, noise), *_ = np.linalg.lstsq(design, means * weights[:, None], rcond=None)
    return gradient, noise


def _clipped(squares: Values) -> bool:
    return bool((squares > (1 - 2 * CLIPPED) * squares.max()).mean() > 0.5)
