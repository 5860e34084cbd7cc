"""Where a search stands: what all blocks so far say of each setting."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import exp, isfinite, log, pi, sqrt
from statistics import NormalDist, median

from ...analyse.statistics import OUTSIDE
from ...record.tuning import LoaderSettings
from .block_fit import BlockFit, BlockRate, LogRatio
from .candidates import cost
from .history import Arm, Entry, arm_of
from .plan import SearchPlan

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
