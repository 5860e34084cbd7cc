"""Tuning on a virtual clock: a bench whose true rates are simulated once, and a model that was told something wrong.

`loader_clock` gives the truth of a setting; a block is the truth, times the machine's drift, times noise. So hundreds
of searches cost what one grid does, and what is best is known.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from math import exp

import numpy as np

from support.loader_clock import Simulation, Spec, Times, recorded
from whyidle.analyse.predict.predict import Prediction
from whyidle.analyse.predict.replay import Workload
from whyidle.record.tuning import Block, LoaderSettings
from whyidle.tune.standing import SearchPlan
from whyidle.tune.training import BenchEnded, TrialFailed

GRID = [LoaderSettings(0), *(LoaderSettings(w, p) for w in range(1, 9) for p in (1, 2, 4, 8))]
STEPS = 120
HELD = LoaderSettings(0)


@cache
def rate(spec: Spec, settings: LoaderSettings) -> float:
    """Samples/s within an epoch."""
    steady = replace(spec, start_ns=0.0, batches_per_epoch=None)
    plain = replace(settings, pin_memory=False, persistent_workers=False, pipeline=None)
    settle = 2 + 2 * plain.outstanding
    # Every setting makes the same batches: what they differ by is not what they were given to do.
    return Simulation(_load(steady, settle + STEPS + 80), plain, settle + STEPS).rate(settle)


@cache
def _load(spec: Spec, batches: int) -> Workload:
    return replace(recorded(spec, batches, 1), host_ns=spec.hosts(np.random.default_rng(2), batches))


@cache
def held_rate(spec: Spec) -> float:
    """Samples/s without a loader."""
    nothing = _nothing
    return rate(replace(spec, cpu=nothing, wait=nothing, read=nothing), HELD)


def _nothing(rng: np.random.Generator, batches: int) -> Times:
    return np.zeros(batches)


def start_ns(spec: Spec, settings: LoaderSettings) -> float:
    return spec.start_ns * (settings.num_workers + 1) if settings.num_workers else 0.0


@cache
def truth(spec: Spec, settings: LoaderSettings) -> float:
    """Samples/s over an epoch."""
    steady = rate(spec, settings)
    if spec.batches_per_epoch is None:
        return steady
    samples = spec.batches_per_epoch * spec.batch_size
    start = 0.0 if settings.persistent_workers else start_ns(spec, settings)
    return samples / (samples / steady + start / 1e9)


@cache
def best_of(spec: Spec) -> float:
    """The truth that the best of the grid reaches, workers persistent or not."""
    kept = [replace(each, persistent_workers=True) for each in GRID if each.num_workers]
    return max(truth(spec, each) for each in (*GRID, *kept))


@dataclass
class SimulatedBench:
    spec: Spec
    seed: int = 0
    noise: float = 0.0
    """Standard deviation of the log rate of a block of a second."""
    drift: float = 0.0
    """Of what the machine's log speed wanders in a second."""
    speed: float = 1.0
    """Of this machine."""
    fails: Mapping[LoaderSettings, TrialFailed | BenchEnded | KeyboardInterrupt] = field(default_factory=dict)
    interrupt_after: int | None = None
    """Blocks, before Ctrl-C."""
    no_held: bool = False
    faster: Callable[[LoaderSettings], float] = lambda settings: 1.0
    """What the loader's clock knows nothing of: pinning, other pipelines."""
    run: list[LoaderSettings] = field(default_factory=list)
    closed: list[LoaderSettings] = field(default_factory=list)
    asked: list[tuple[float, float]] = field(default_factory=list)
    """When each block was asked for, and how many seconds it was to last."""
    _now: float = 0.0
    _wandered: float = 0.0

    def __post_init__(self) -> None:
        self._rng = np.random.default_rng((self.seed, 7))
        self.open: set[LoaderSettings] = set()

    @property
    def baseline(self) -> LoaderSettings:
        return self.spec.baseline

    def now(self) -> float:
        return self._now

    def measure(self, settings: LoaderSettings, seconds: float) -> Block:
        if settings.held:
            return self._alone(seconds)
        self.run.append(settings)
        self.asked.append((self._now, seconds))
        if self.interrupt_after is not None and len(self.run) > self.interrupt_after:
            raise KeyboardInterrupt
        if settings in self.fails:
            self._now += 0.5
            raise self.fails[settings]
        begins = None
        if settings not in self.open:
            self.open.add(settings)
            begins = start_ns(self.spec, settings)
            self._now += begins / 1e9
        steady = rate(self.spec, settings) * self.faster(settings)
        block = self._block(settings, steady, seconds, 2 * settings.outstanding)
        restarts = 0 if settings.persistent_workers else None
        return replace(block, start_ns=None if begins is None else int(begins), restart_ns=restarts)

    def _alone(self, seconds: float) -> Block:
        if self.no_held:
            raise TrialFailed("no batch can be kept")
        self.asked.append((self._now, seconds))
        return self._block(self.baseline, held_rate(self.spec), seconds, 2)

    def close(self, settings: LoaderSettings) -> None:
        self.closed.append(settings)
        self.open.discard(settings)

    def _block(self, settings: LoaderSettings, steady: float, seconds: float, settle: int) -> Block:
        batch_s = self.spec.batch_size / steady
        batches = max(20, 3 * settings.num_workers, round(seconds / batch_s))
        lasts = (settle + batches) * batch_s
        self._wandered += self.drift * np.sqrt(lasts) * self._rng.normal()
        noise = self.noise / np.sqrt(max(1.0, batches * batch_s))
        slower = exp(self._wandered + noise * self._rng.normal()) / self.speed
        begin = self._now + settle * batch_s * slower
        self._now = begin + batches * batch_s * slower
        share = max(0.0, 1 - steady / held_rate(self.spec))
        span = int((self._now - begin) * 1e9)
        return Block(
            settings,
            batches,
            batches * self.spec.batch_size,
            int(begin * 1e9),
            int(begin * 1e9) + span,
            int(share * span),
        )


def predicts(spec: Spec) -> Callable[[Sequence[LoaderSettings]], list[Prediction]]:
    """Predict by the simulator itself, of a training that may be another one than the one that is measured."""

    def one(settings: LoaderSettings) -> Prediction:
        value = truth(spec, settings)
        stall = max(0.0, 1 - value / held_rate(spec))
        return Prediction(settings, value, value * 0.85, value * 1.15, stall, "workers")

    return lambda settings: [one(each) for each in settings]


@cache
def scaled(spec: Spec, times: float) -> Spec:
    """With batches that take so many times as long to make."""
    if times == 1.0:
        return spec

    def longer(make: Callable[[np.random.Generator, int], Times]) -> Callable[[np.random.Generator, int], Times]:
        return lambda rng, batches: times * make(rng, batches)

    return replace(spec, cpu=longer(spec.cpu), wait=longer(spec.wait), read=longer(spec.read))


@cache
def biased(spec: Spec) -> Spec:
    """What a recording may get wrong: making 15 % too short, hand-off twice as long, more CPUs than there are."""
    return replace(scaled(spec, 0.85), handoff_ns=2 * spec.handoff_ns, cpus=1.5 * spec.cpus, contention=0.0)


def plan_of(spec: Spec, budget_s: float = 120.0, **given: object) -> SearchPlan:
    usual = {"most_workers": 8}
    return SearchPlan(spec.baseline, spec.batch_size, budget_s, spec.batches_per_epoch, **(usual | given))  # type: ignore[arg-type]


def regret(spec: Spec, chosen: LoaderSettings) -> float:
    """By how much it is below the best of the grid."""
    return 1 - truth(spec, chosen) / best_of(spec)


def least_workers(spec: Spec, share: float = 0.98) -> int:
    """That reach so much of the grid's best."""
    return min(each.num_workers for each in GRID if truth(spec, each) >= share * best_of(spec))
