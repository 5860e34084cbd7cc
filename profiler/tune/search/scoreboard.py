"""Where a search stands: what all blocks so far say of each setting.

How settings compare, from blocks in interleaved rounds. The log rate of a block is taken for the sum of what its
settings make it, what its round made it (the machine's drift hits all blocks of a round alike), and noise. The
baseline has a block in every round, so least squares tell the three apart although few settings are in all rounds.

A handful of blocks prove nothing about noise. Its variance, one for all settings, is therefore weighed with an
assumed one (`BLOCK_PRIOR`).

What is reported comes from blocks alone. To decide what to measure next, and which of several settings that blocks
cannot tell apart to take, the model's predictions count as one more observation of each setting, with the error
that the model has been found to have.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import exp, inf, isfinite, log, nan, pi, sqrt
from statistics import NormalDist, median
from typing import Any

import numpy as np

from ...analyse.statistics import BLOCK_PRIOR, OUTSIDE, Estimate, LeastSquares, Values, students_t
from ...record.tuning import LoaderSettings
from .candidates import Arm, Entry, SearchPlan, arm_of, cost

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


HELD = "held"
"""The arm of blocks without a loader."""
SAME = 0.015
"""Log rates that differ by no more are the same."""
LEAST_PROOFS = 2
"""Rounds after a setting was picked, to say from them alone by how much it is faster."""


@dataclass(frozen=True)
class Best:
    winner: Arm
    """The cheapest of those that are as fast as the fastest."""
    leader: Arm
    """The fastest, as far as blocks and model know."""


class Standing:
    """Raises ValueError where the baseline has no block yet."""

    def __init__(
        self, entries: Sequence[Entry], plan: SearchPlan, predicted: Mapping[Arm, float] | None = None
    ) -> None:
        self._plan = plan
        self.own = arm_of(plan.baseline)
        self._entries = [entry for entry in entries if entry.block is not None]
        self._starts = self._median_starts()
        steady, whole = [], []
        for entry in self._entries:
            assert entry.block is not None
            arm = HELD if entry.held else arm_of(entry.settings)
            # A persistent variant of the baseline is only run to see how its passes begin.
            rate = entry.block.samples_per_s
            steady.append(BlockRate(arm, entry.round, log(rate)))
            start = 0.0 if entry.held else self.start_ns(self._as_first_run(arm_of(entry.settings)))
            whole.append(BlockRate(arm, entry.round, log(self._with_start(rate, start))))
        if not any(each.arm == self.own for each in whole):
            raise ValueError("the baseline has no block")
        self._whole = whole
        self.measured = BlockFit(whole)
        self.steady = BlockFit(steady)
        logs = {arm: log(rate) for arm, rate in (predicted or {}).items() if rate > 0}
        self.weighed = BlockFit(whole, logs)
        own_rates = [each.log_rate for each in whole if each.arm == self.own]
        self.own_log = sum(own_rates) / len(own_rates)
        own_steady = [each.log_rate for each in steady if each.arm == self.own]
        self.own_steady_log = sum(own_steady) / len(own_steady)

    @property
    def arms(self) -> list[Arm]:
        """That rounds connect with the baseline: not one whose only block is in a round that was broken off."""
        found = [arm for arm in self.measured.arms if isinstance(arm, LoaderSettings)]
        return [arm for arm in found if isfinite(self.measured.ratio(arm, self.own).error)]

    def blocks(self, arm: Arm) -> int:
        return sum(not entry.held and arm_of(entry.settings) == arm for entry in self._entries)

    def steps(self, arm: Arm) -> int:
        return sum(
            entry.block.batches
            for entry in self._entries
            if entry.block is not None and not entry.held and arm_of(entry.settings) == arm
        )

    def eligible(self, arm: Arm) -> bool:
        """Whether it was run long enough to be returned."""
        return arm == self.own or (self.blocks(arm) >= 2 and self.steps(arm) >= self._plan.least_steps)

    def gain(self, arm: Arm, proven_from: int | None = None) -> LogRatio:
        """Against the baseline, from blocks alone.

        A setting is picked because its blocks were fast, which they were partly by luck. Where it was raced on
        against the baseline afterwards, from the round `proven_from` on, only those rounds count. Else the interval is
        wide enough for whichever of the arms is picked.
        """
        if proven_from is not None and arm != self.own:
            pairs = self._pairs(arm, proven_from)
            if len(pairs) >= LEAST_PROOFS:
                mean, error = sum(pairs) / len(pairs), self.measured.noise * sqrt(2 / len(pairs))
                return self.measured.around(mean, error)
        picked_of = max(1, len(self.arms) - 1)
        return self.measured.ratio(arm, self.own, OUTSIDE / picked_of)

    def _pairs(self, arm: Arm, first: int) -> list[float]:
        """Log ratio to the baseline in each round that holds both."""
        rounds: dict[Hashable, dict[Hashable, float]] = {}
        for each in self._whole:
            if isinstance(each.round, int) and each.round >= first:
                rounds.setdefault(each.round, {})[each.arm] = each.log_rate
        return [of[arm] - of[self.own] for of in rounds.values() if arm in of and self.own in of]

    def own_level(self) -> LogRatio:
        """Log rate of the baseline itself, drift and all: the mean of its blocks."""
        error = self.measured.noise / sqrt(self.blocks(self.own))
        return self.measured.around(self.own_log, error)

    def best(self, among: Iterable[Arm]) -> Best:
        """Blocks and model weighed."""
        logs = {arm: self.weighed.ratio(arm, self.own).value for arm in among}
        leader = max(logs, key=lambda arm: logs[arm])
        ties = [arm for arm, value in logs.items() if value >= logs[leader] - SAME]
        return Best(min(ties, key=lambda arm: cost(arm, self._plan.baseline)), leader)

    def promise(self, arm: Arm, over: Arm, margin: float) -> float:
        """By how much `arm` is expected to beat `over` beyond a margin, times that beating it is not sure: the expected
        loss of never looking at it again."""
        between = self.weighed.ratio(arm, over)
        z = (between.value - margin) / between.error
        return between.error * (exp(-z * z / 2) / sqrt(2 * pi) + z * NormalDist().cdf(z))

    def steady_rates(self) -> dict[Arm, float]:
        """Samples/s within epochs, drift removed."""
        return {arm: exp(self.own_steady_log + self.steady.ratio(arm, self.own).value) for arm in self.arms}

    def start_ns(self, settings: LoaderSettings) -> float:
        """Of a pass over the data with them; where it was not measured, the longest of the others."""
        if settings in self._starts:
            return self._starts[settings]
        return max(self._starts.values(), default=0.0) if settings.num_workers else 0.0

    def start_known(self, settings: LoaderSettings) -> bool:
        return settings in self._starts

    def epoch_gain(self, one: LoaderSettings, other: LoaderSettings) -> float:
        """Log of how much faster `one` passes over an epoch than `other` of the same arm, by how their passes begin."""
        rate = self.steady_rates()[arm_of(one)]
        return log(self._with_start(rate, self.start_ns(one)) / self._with_start(rate, self.start_ns(other)))

    def start_share(self) -> float:
        """Of an epoch with the baseline, that goes into its beginning; 0 where an epoch's length is not known."""
        rate = exp(self.own_steady_log)
        return 1 - self._with_start(rate, self.start_ns(self._plan.baseline)) / rate

    def _with_start(self, rate: float, start_ns: float) -> float:
        samples = self._plan.samples_per_epoch
        return rate if samples is None else samples / (samples / rate + start_ns / 1e9)

    def _as_first_run(self, arm: Arm) -> LoaderSettings:
        if arm == self.own:
            return self._plan.baseline
        return next(entry.settings for entry in self._entries if not entry.held and arm_of(entry.settings) == arm)

    def _median_starts(self) -> dict[LoaderSettings, float]:
        starts: dict[LoaderSettings, list[int]] = {}
        restarts: dict[LoaderSettings, list[int]] = {}
        for entry in self._entries:
            if entry.block is None or entry.held:
                continue
            if entry.block.start_ns is not None:
                starts.setdefault(entry.settings, []).append(entry.block.start_ns)
            if entry.block.restart_ns is not None and entry.settings.persistent_workers:
                restarts.setdefault(entry.settings, []).append(entry.block.restart_ns)
        return {settings: float(median(each)) for settings, each in (starts | restarts).items()}
