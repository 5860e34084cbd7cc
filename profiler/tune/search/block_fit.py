"""How settings compare, from blocks in interleaved rounds.

The log rate of a block is taken for the sum of what its settings make it, what its round made it (the machine's drift
hits all blocks of a round alike), and noise. The baseline has a block in every round, so least squares tell the three
apart although few settings are in all rounds.

A handful of blocks prove nothing about noise. Its variance, one for all settings, is therefore weighed with an assumed
one (`BLOCK_PRIOR`).

What is reported comes from blocks alone. To decide what to measure next, and which of several settings that blocks
cannot tell apart to take, the model's predictions count as one more observation of each setting, with the error that
the model has been found to have.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from math import inf, nan, sqrt
from typing import Any

import numpy as np

from ...analyse.statistics import BLOCK_PRIOR, OUTSIDE, Estimate, LeastSquares, Values, students_t

LEAST_MODEL_ERROR = 0.03
"""Standard deviation of a predicted log rate, at least."""


@dataclass(frozen=True)
class BlockRate:
    """One block of a setting (`arm`)."""

    arm: Hashable
    round: Hashable
    log_rate: float


@dataclass(frozen=True)
class LogRatio(Estimate):
    """Log of how much faster one is than another. Infinitely wide where no rounds connect the two."""

    error: float
    """Standard error."""


class BlockFit:
    """Log rates of arms, drift of the rounds removed. `predicted`: log rates by a model, on whatever scale.

    Raises:
        ValueError: no block.
    """

    def __init__(self, blocks: Sequence[BlockRate], predicted: Mapping[Any, float] | None = None) -> None:
        if not blocks:
            raise ValueError("no block")
        self.arms = list(dict.fromkeys(block.arm for block in blocks))
        rounds = list(dict.fromkeys(block.round for block in blocks))
        rows = np.array(
            [
                [float(b.arm == arm) for arm in self.arms] + [float(b.round == number) for number in rounds[1:]]
                for b in blocks
            ]
        )
        rates = np.array([block.log_rate for block in blocks])
        solved = LeastSquares(rows, rates)
        self.freedom = solved.freedom
        self.noise = float(np.sqrt(BLOCK_PRIOR.variance(solved.squares, self.freedom)))
        self.seen_noise = sqrt(solved.squares / self.freedom) if self.freedom > 0 else None
        """Without the assumed part."""
        self._means, self._spread = solved.coefficients, solved.covariance * self.noise**2
        self._seen = np.linalg.pinv(rows) @ rows
        known = {arm: predicted[arm] for arm in self.arms if arm in predicted} if predicted else {}
        self.model_error = nan
        if len(known) >= 2:
            self._add_model(rows / self.noise, rates / self.noise, known)

    def ratio(self, one: Hashable, other: Hashable, outside: float = OUTSIDE) -> LogRatio:
        """Between two arms; the interval misses the truth in so large a share of cases."""
        weight = np.zeros(len(self._spread))
        if one != other:
            weight[self.arms.index(one)], weight[self.arms.index(other)] = 1.0, -1.0
        if not np.allclose(weight @ self._seen, weight, atol=1e-6):
            return LogRatio(nan, -inf, inf, inf)
        mean = float(weight @ self._means)
        error = sqrt(max(0.0, float(weight @ self._spread @ weight)))
        return self.around(mean, error, outside)

    def around(self, mean: float, error: float, outside: float = OUTSIDE) -> LogRatio:
        """Something with a standard error that follows from this noise."""
        reach = error * students_t(self.freedom + BLOCK_PRIOR.freedom, outside)
        return LogRatio(mean, mean - reach, mean + reach, error)

    def _add_model(self, rows: Values, rates: Values, known: Mapping[Hashable, float]) -> None:
        """A row for each prediction: the arm's log rate, but for a scale that all predictions share."""
        at = [self.arms.index(arm) for arm in known]
        said = np.array(list(known.values()))
        off = self._means[at] - said
        centre = np.eye(len(at)) - 1 / len(at)
        # Of the scatter around the model, what the blocks' own noise explains is not the model's.
        own = float(np.trace(centre @ self._spread[np.ix_(at, at)] @ centre))
        error2 = (float(((centre @ off) ** 2).sum()) - own) / (len(at) - 1)
        self.model_error = sqrt(max(error2, LEAST_MODEL_ERROR**2))
        extra = np.zeros((len(at), rows.shape[1] + 1))
        extra[np.arange(len(at)), at] = 1 / self.model_error
        extra[:, -1] = -1 / self.model_error
        whole = np.vstack([np.hstack([rows, np.zeros((len(rows), 1))]), extra])
        values = np.concatenate([rates, said / self.model_error])
        self._spread = np.linalg.pinv(whole.T @ whole)
        self._means = self._spread @ whole.T @ values
        self._seen = np.linalg.pinv(whole) @ whole
