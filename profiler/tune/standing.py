"""What all blocks so far say of each setting, and which of them to take.

The log rate of a block is taken for the sum of what its settings make
it, what its round made it, and noise. The baseline has a block in every round, so least squares tell the three apart.
A handful of blocks prove nothing about noise; its variance is weighed with an assumed one (`BLOCK_PRIOR`).
"""

from __future__ import annotations

import random
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import exp, inf, isfinite, log, log2, nan, sqrt
from statistics import fmean, median
from typing import TypeVar

import numpy as np

from ..analyse.statistics import BLOCK_PRIOR, OUTSIDE, Estimate, LeastSquares, students_t
from ..record.tuning import Block, LoaderSettings

Order = TypeVar("Order")

WORTH_TUNING = 0.03
"""Gain of throughput, as a share, below which nothing is tuned: neither are settings searched nor another micro-batch
proposed. Less than `causes.finding.LEAST_GAIN`, since it is measured here and not read off one recording."""
TOLL = 0.02
"""Log rate that each doubling of workers must gain, beyond the interval."""
TOLL_BEYOND = 0.05
"""The same, of workers beyond one a CPU: they take memory and time to start, and only wait."""
LEAST_FREEDOM = 2
"""Degrees of freedom from which on the noise counts as measured."""
UNSEEN = 0.15
"""As `UNSURE`, as long as how noisy the machine is was only assumed: one block is no reason to drop a setting."""
UNSURE = 0.4
"""Share of cases in which the intervals that settings are picked by miss the truth."""
NOT_THE_LOADER = 0.05
"""Log rate below the baseline from which blocks without a loader count as disturbed."""
TOO_NOISY = 0.15
"""Standard deviation of the log rate between blocks of one setting, drift removed, from which nothing is ranked."""
LEAST_PROOFS = 2
"""Rounds after a setting was picked, to say from them alone by how much it is faster."""


@dataclass(frozen=True)
class SearchPlan:
    """What a search may try, and how much it may cost."""

    baseline: LoaderSettings
    """The program's own settings."""
    batch_size: int
    """Samples in a batch of the baseline."""
    budget_s: float
    batches_per_epoch: int | None = None
    """Batches of the baseline in an epoch; `None`: not known, and rates are those within an epoch."""
    cuda: bool = False
    out_of_order: bool = False
    """Whether batches may come in another order than the program's."""
    pipelines: tuple[str, ...] = ()
    """Other loaders of a scenario that may be tried."""
    fixed: Mapping[str, str] = field(default_factory=dict)
    """Settings that other values cannot be tried of, and why; `num_workers` means that there can be no workers."""
    most_workers: int = 64
    most_candidates: int = 7
    """Settings in the first round, the baseline among them and other pipelines not."""
    most_rounds: int = 6
    most_blocks: int = 28
    block_s: float = 1.0
    least_steps: int = 20
    """Steps in a block, and of whatever is returned."""
    seed: int = 0
    cpus: float = inf
    """CPUs that the program may use; infinite where that is not known."""


@dataclass(frozen=True)
class Entry:
    """One order and its answer. Seconds are those since the search began."""

    settings: LoaderSettings
    round: int
    """Number of the round; its blocks followed each other, so that drift of the machine hits them alike."""
    began_s: float
    ended_s: float
    block: Block | None = None
    """`None` where the settings failed."""
    error: str | None = None
    out_of_memory: bool = False

    @property
    def cost_s(self) -> float:
        return self.ended_s - self.began_s


def shuffled(orders: Sequence[Order], seed: int) -> list[Order]:
    """Give an order of a round's blocks that the seed fixes."""
    order = list(orders)
    random.Random(seed).shuffle(order)
    return order


class BlockFit:
    """Log rates of arms, drift of the rounds removed. Blocks are (arm, round, log rate)."""

    def __init__(self, blocks: Sequence[tuple[Hashable, Hashable, float]]) -> None:
        self._blocks = blocks
        self.arms = list(dict.fromkeys(arm for arm, _, _ in blocks))
        numbers = list(dict.fromkeys(number for _, number, _ in blocks))[1:]
        columns = [*((0, arm) for arm in self.arms), *((1, number) for number in numbers)]
        rows = np.array([[float(block[which] == value) for which, value in columns] for block in blocks])
        solved = LeastSquares(rows, np.array([rate for _, _, rate in blocks]))
        self.freedom = solved.freedom
        self.noise = float(np.sqrt(BLOCK_PRIOR.variance(solved.squares, self.freedom)))
        """Standard deviation between blocks of one arm, the assumed one weighed in."""
        self.seen_noise = sqrt(solved.squares / self.freedom) if self.freedom > 0 else None
        """The same without what is assumed."""
        self._means, self._spread = solved.coefficients, solved.covariance * self.noise**2
        self._seen = np.linalg.pinv(rows) @ rows

    def ratio(self, one: Hashable, other: Hashable, outside: float = OUTSIDE) -> Estimate:
        """Give the log of how much faster one arm is than another; infinitely wide where no rounds connect the two.

        Args:
            outside: share of cases in which the interval misses the truth.
        """
        weight = np.zeros(len(self._spread))
        if one != other:
            weight[self.arms.index(one)], weight[self.arms.index(other)] = 1.0, -1.0
        if not np.allclose(weight @ self._seen, weight, atol=1e-6):
            return Estimate(nan, -inf, inf)
        error = sqrt(max(0.0, float(weight @ self._spread @ weight)))
        return self.around(float(weight @ self._means), error, outside)

    def rate(self, arm: Hashable, own: Hashable, ratio: Estimate | None = None) -> Estimate:
        """Give the rate of an arm: the mean of the baseline `own`, drift and all, times the ratio of the two.

        Args:
            ratio: log of it; `None`: by all blocks.
        """
        logs = [rate for each, _, rate in self._blocks if each == own]
        if ratio is None:
            ratio = self.ratio(arm, own) if arm != own else self.around(0.0, self.noise / sqrt(len(logs)))
        return ratio.shifted(fmean(logs)).exp()

    def around(self, mean: float, error: float, outside: float = OUTSIDE) -> Estimate:
        """Give an estimate with a standard error that follows from this noise."""
        return Estimate.around(mean, error * students_t(self.freedom + BLOCK_PRIOR.freedom, outside))


def cost(settings: LoaderSettings, baseline: LoaderSettings) -> tuple[int, int, bool, bool, int]:
    """Give the order in which equally fast settings are preferred.

    Workers come first: each takes memory, time to start, and CPU from others. Then batches held ahead, a thread that
    pins, another loader, and last any change at all.
    """
    names = ("num_workers", "prefetch_factor", "pin_memory", "in_order", "persistent_workers")
    changed = sum(getattr(settings, name) != getattr(baseline, name) for name in names)
    other = settings.pipeline != baseline.pipeline
    return settings.num_workers, settings.outstanding, settings.pin_memory, other, changed


def toll(faster: LoaderSettings, than: LoaderSettings, cpus: float = inf) -> float:
    """Give the log rate that one setting must gain over another for its workers.

    Args:
        cpus: of the machine; workers beyond them only help to wait.
    """
    doublings = [log2(max(each.num_workers, 0) + 1) for each in (faster, than)]
    beyond = [log2(max(1.0, each.num_workers / cpus)) for each in (faster, than)]
    return max(0.0, TOLL * (doublings[0] - doublings[1]) + (TOLL_BEYOND - TOLL) * (beyond[0] - beyond[1]))


class Standing:
    """What all blocks so far say of each setting; the baseline has a block."""

    def __init__(self, entries: Sequence[Entry], plan: SearchPlan) -> None:
        self.plan = plan
        self.own, self.held = plan.baseline, plan.baseline.without_loader()
        self.blocks: dict[LoaderSettings, list[Block]] = {}
        """Blocks of each setting."""
        for entry in entries:
            if entry.block is not None and not entry.settings.held:
                self.blocks.setdefault(entry.settings, []).append(entry.block)
        self.failed = {entry.settings for entry in entries if entry.block is None}
        """Settings that did not work at last."""
        self._rows: list[tuple[LoaderSettings, int, float]] = []
        for entry in entries:
            if entry.block is not None:
                rate = entry.block.samples_per_s
                rate = rate if entry.settings.held else self.with_start(entry.settings, rate)
                self._rows.append((entry.settings, entry.round, log(rate)))
        self.fit = BlockFit(self._rows)
        self.own_log = fmean(rate for arm, _, rate in self._rows if arm == self.own)
        """Mean log rate of the baseline, drift and all."""

    @property
    def settings(self) -> list[LoaderSettings]:
        """Settings that work and that rounds connect with the baseline: none whose only block is in a round that was
        broken off."""
        able = [each for each in self.blocks if each == self.own or each not in self.failed]
        return [each for each in able if isfinite(self.fit.ratio(each, self.own).low)]

    def eligible(self, settings: LoaderSettings) -> bool:
        """Tell whether it was run long enough to be returned."""
        blocks = self.blocks[settings]
        steps = sum(block.batches for block in blocks)
        return settings == self.own or (len(blocks) >= 2 and steps >= self.plan.least_steps)

    def start_ns(self, settings: LoaderSettings) -> float:
        """Give what beginning a pass over the data takes; the longest of the others where it was not measured."""

        def of(each: LoaderSettings) -> float | None:
            blocks = self.blocks.get(each, ())
            again = [block.restart_ns for block in blocks] if each.persistent_workers else []
            starts = [start for start in again if start is not None] or [
                block.start_ns for block in blocks if block.start_ns is not None
            ]
            return float(median(starts)) if starts else None

        own = of(settings) if settings.num_workers else 0.0
        return max((of(each) or 0.0 for each in self.blocks), default=0.0) if own is None else own

    def with_start(self, settings: LoaderSettings, rate: float) -> float:
        """Give the samples/s over an epoch from those within it; the same where an epoch's length is not known."""
        if self.plan.batches_per_epoch is None:
            return rate
        samples = self.plan.batches_per_epoch * self.plan.batch_size
        return samples / (samples / rate + self.start_ns(settings) / 1e9)

    def ratio(self, one: LoaderSettings, other: LoaderSettings) -> Estimate:
        """Give the log of how much faster one is, with the interval that settings are picked by."""
        return self.fit.ratio(one, other, UNSURE if self.fit.freedom >= LEAST_FREEDOM else UNSEEN)

    def gain(self, settings: LoaderSettings, proven_from: int | None = None) -> Estimate:
        """Give the log gain over the baseline: from the rounds since it was picked (from `proven_from` on), as it was
        picked because its blocks were fast; else wide enough for whichever of the settings is picked."""
        if proven_from is not None and settings != self.own:
            pairs: dict[int, dict[Hashable, float]] = {}
            for arm, number, rate in self._rows:
                if number >= proven_from:
                    pairs.setdefault(number, {})[arm] = rate
            logs = [of[settings] - of[self.own] for of in pairs.values() if settings in of and self.own in of]
            if len(logs) >= LEAST_PROOFS:
                return self.fit.around(fmean(logs), self.fit.noise * sqrt(2 / len(logs)))
        return self.fit.ratio(settings, self.own, OUTSIDE / max(1, len(self.settings) - 1))

    def pick(self, among: Iterable[LoaderSettings]) -> tuple[LoaderSettings, LoaderSettings]:
        """Give the setting to take, and the fastest, of these and the baseline, as far as they were measured.

        The cheapest is taken (`cost`) that the fastest does not beat: beyond the interval between the two, and by more
        than its additional workers have to earn (`toll`).
        """
        run = [self.own, *(each for each in self.settings if each in set(among))]
        fastest = max(run, key=lambda each: self.fit.ratio(each, self.own).value)
        unbeaten = [each for each in run if not self.earned(fastest, each)]
        return min(unbeaten, key=lambda each: cost(each, self.own)), fastest

    def earned(self, faster: LoaderSettings, than: LoaderSettings) -> bool:
        """Tell whether a setting is worth its workers: faster than another beyond the interval, and by their `toll`."""
        return self.ratio(faster, than).low > toll(faster, than, self.plan.cpus)

    @property
    def noisy(self) -> bool:
        """Whether the machine's own changes are larger than what is to be told apart."""
        return (self.fit.seen_noise or 0.0) > TOO_NOISY and self.fit.freedom >= LEAST_FREEDOM

    @property
    def headroom(self) -> float | None:
        """Gain with a loader that takes no time, as a share; `None`: not measured."""
        return exp(self.fit.ratio(self.held, self.own).value) - 1 if self.held in self.fit.arms else None

    def nothing_to_gain(self, stall_share: float) -> bool | None:
        """Tell whether a loader that takes no time would not help; `None`: not sure yet.

        Two things tell: blocks without a loader, and the time that the baseline's blocks spent in fetches, which is
        known without noise, and which is all that a loader could save as long as it does not slow the training itself.

        Args:
            stall_share: what the replay expects of that time, for where batches cannot be held.
        """
        enough = log(1 + WORTH_TUNING)
        if self.held not in self.fit.arms:
            return -log(max(1e-9, 1 - stall_share)) < enough
        gain = self.fit.ratio(self.held, self.own, outside=0.1)
        share = fmean(block.wait_ns / (block.end_ns - block.begin_ns) for block in self.blocks[self.own])
        waits = -log(max(1e-9, 1 - share))
        # Batches that lie ready cannot slow a training: much slower blocks tell of the machine, not of the loader.
        believable = gain.value > -NOT_THE_LOADER
        if (gain.high < enough and believable) or (waits < enough and gain.value < enough):
            return True
        return None if waits < enough or gain.value < enough else False
