"""Batch-size advice of trainings that are made up, on a clock of their own."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field, replace

import pytest

from whyidle.record.tuning import Block, LoaderSettings
from whyidle.tune.batch.advise import Question, advise
from whyidle.tune.batch.ladder import Probe, ProbeOutcome
from whyidle.tune.batch.sizes import sizes_to_measure
from whyidle.tune.bench.bench import BenchEnded, TrialFailed
from whyidle.tune.search.result import BatchAdvice

GB = 1 << 30
OWN = LoaderSettings(2, 2, batch_size=32)


@dataclass
class Simulated:
    """A training whose steps take a known time."""

    step_ns: Callable[[int], float]
    noise: float = 0.01
    wait_share: float = 0.0
    limit: int = 10**9
    """Size from which it runs out of memory."""
    cannot_keep: int = 10**9
    """Size from which batches cannot be kept."""
    dies_after: int = 10**9
    clock: float = 0.0
    asked: list[LoaderSettings] = field(default_factory=list)
    closed: list[LoaderSettings] = field(default_factory=list)
    draws: random.Random = field(default_factory=lambda: random.Random(1))
    baseline = OWN
    batches_per_epoch = None

    def now(self) -> float:
        return self.clock

    def measure(self, settings: LoaderSettings, seconds: float) -> Block:
        self.asked.append(settings)
        size = settings.batch_size
        assert size is not None
        self.clock += seconds * 1.5
        if len(self.asked) > self.dies_after:
            raise BenchEnded("the training was started 3 times and ended each time")
        if size >= self.limit:
            raise TrialFailed("out of memory", out_of_memory=True)
        took = self.step_ns(size) * self.draws.lognormvariate(0, self.noise)
        batches = max(8, round(seconds * 1e9 / took))
        elapsed = round(batches * took)
        waited = round(self.wait_share * elapsed)
        return Block(settings, batches, batches * size, 0, elapsed, waited)

    def held(self, seconds: float, batch_size: int | None = None) -> Block:
        """As if there were no loader: all but the wait."""
        if not self.wait_share:
            raise AssertionError("not asked for")
        assert batch_size is not None
        self.clock += seconds * 1.5
        if batch_size >= self.cannot_keep:
            raise TrialFailed("these batches cannot be kept")
        took = round((1 - self.wait_share) * self.step_ns(batch_size))
        return Block(replace(OWN, batch_size=batch_size), 10, 10 * batch_size, 0, 10 * took, 0, held=True)

    def close(self, settings: LoaderSettings) -> None:
        assert settings != OWN
        self.closed.append(settings)

    def probe(self, batch_size: int, seconds: float, /) -> Probe:
        self.clock += 5
        held = GB + 8 * (1 << 20) * batch_size
        if held > 6 * GB:
            return Probe(ProbeOutcome.OOM, why="out of memory", on_device=True, seconds=5)
        return Probe(ProbeOutcome.OK, 20, held, 6 * GB, True, seconds=5)

    def advise(self, budget_s: float = 120, **given: object) -> BatchAdvice:
        question = Question(OWN, 32, dataset_samples=60_000)
        return advise(lambda: nullcontext(self), self.probe, question, budget_s, now=self.now, **given)  # type: ignore[arg-type]


def affine(alpha_ns: float, beta_ns: float) -> Callable[[int], float]:
    return lambda size: alpha_ns + beta_ns * size


def test_two_answers_from_one_training() -> None:
    training = Simulated(affine(4e6, 50e3))
    found = training.advise()
    assert found.b_max is not None
    assert 480 <= found.b_max <= 576
    assert found.b_max in found.memory_bytes
    assert max(found.rates) <= found.b_max
    assert {32, found.b_max} <= found.rates.keys()
    assert found.alpha_ns == pytest.approx(4e6, rel=0.1)
    assert found.beta_ns == pytest.approx(50e3, rel=0.1)
    assert found.b_95 == found.b_max
    assert any("launch- or overhead-bound" in note for note in found.notes)
    assert any("linear" in note and "square root" in note for note in found.notes)
    assert (found.micro_batch, found.alone) == (None, {})


def test_all_sizes_are_measured_in_every_round_and_the_budget_is_kept() -> None:
    training = Simulated(affine(4e6, 50e3))
    training.advise(budget_s=70)
    counts = Counter(settings.batch_size for settings in training.asked)
    assert max(counts.values()) - min(counts.values()) <= 1
    assert max(counts.values()) >= 2
    assert training.clock < 75
    assert {replace(s, batch_size=None) for s in training.asked} == {replace(OWN, batch_size=None)}
    assert set(training.closed) == set(training.asked) - {OWN}


def test_a_smaller_batch_that_is_faster_is_proposed_with_the_same_global_one() -> None:
    """From 24 on each sample costs twice as much: caches no longer hold it."""
    training = Simulated(lambda size: 1e6 + (50e3 if size < 24 else 100e3) * size)
    raced = []

    def race(size: int) -> LoaderSettings:
        raced.append(size)
        return LoaderSettings(3, 2, batch_size=size)

    found = training.advise(race=race)
    assert (found.micro_batch, found.accumulate) == (16, 2)
    assert raced == [16]
    assert found.settings == LoaderSettings(3, 2, batch_size=16)
    assert any("keep the global batch of 32" in note for note in found.notes)


def test_a_difference_within_the_noise_proposes_nothing() -> None:
    found = Simulated(lambda size: 50e3 * size * (1.0 if size < 24 else 1.02), noise=0.08).advise()
    assert found.micro_batch is None
    assert not any("more samples/s" in note for note in found.notes)


def test_where_the_loader_binds_the_device_alone_is_measured_and_what_it_asks_of_a_loader() -> None:
    steps = affine(4e6, 50e3)
    found = Simulated(steps, wait_share=0.6, noise=0.0).advise()
    assert found.loader_bound
    assert found.b_95 is None
    assert any("waits for its loader 60 %" in note for note in found.notes)
    assert any("loader sets the pace" in note for note in found.notes)
    assert not any("launch- or overhead-bound" in note for note in found.notes)
    assert set(found.alone) == set(found.rates)
    for size, rate in found.alone.items():
        assert rate == pytest.approx(size * 1e9 / (0.4 * steps(size)), rel=1e-3)
        assert found.rates[size].value == pytest.approx(0.4 * rate, rel=0.01)
    best = max(found.alone, key=lambda size: found.alone[size])
    (told,) = [note for note in found.notes if "would have to deliver" in note]
    assert told.startswith(f"With batches that lay ready it trains most at {best}: {found.alone[best]:.0f} samples/s")
    assert told.endswith(f"it delivers {found.rates[best].value:.0f}")


def test_of_sizes_that_cannot_be_kept_nothing_is_said_of_the_device_alone() -> None:
    some = Simulated(affine(4e6, 50e3), wait_share=0.6, cannot_keep=64).advise()
    assert set(some.alone) == {size for size in some.rates if size < 64}
    none = Simulated(affine(4e6, 50e3), wait_share=0.6, cannot_keep=1).advise()
    assert none.alone == {}
    assert any("was not measured" in note for note in none.notes)


def test_sizes_that_fail_beside_the_loaders_are_named_and_left() -> None:
    training = Simulated(affine(4e6, 50e3), limit=200)
    found = training.advise()
    assert max(found.rates) < 200
    assert any(size >= 200 and why == "out of memory" for size, why in found.failed.items())
    assert max(Counter(s.batch_size for s in training.asked if (s.batch_size or 0) >= 200).values()) == 1
    ended = Simulated(affine(4e6, 50e3), dies_after=0).advise()
    assert (ended.b_max is None, ended.b_95) == (False, None)
    assert any("started 3 times" in note for note in ended.notes)


@pytest.mark.parametrize(("own", "largest"), [(16, 352), (16, 16), (32, 2048), (100, 120), (7, 56), (1, 64), (8, 12)])
def test_four_to_six_sizes_hold_the_programs_own_and_the_largest(own: int, largest: int) -> None:
    sizes = sizes_to_measure(own, largest)
    assert len(sizes) == len(set(sizes))
    assert sizes[0] == own
    assert sizes[1] == max(sizes) or max(sizes) == own
    assert 3 <= len(sizes) <= 6
    assert all(own % size == 0 for size in sizes if size < own)
    assert max(sizes) <= largest
    assert max(sizes) == largest or largest < 1.25 * own


def test_fewer_sizes_are_measured_where_each_keeps_many_workers() -> None:
    assert len(sizes_to_measure(32, 2048, workers=4)) == 6
    assert sorted(sizes_to_measure(32, 2048, workers=40)) == [16, 32, 256, 2048]


def test_what_there_was_no_time_for_is_named() -> None:
    training = Simulated(affine(4e6, 50e3))
    question = Question(OWN, 32, most=128)
    found = advise(lambda: nullcontext(training), None, question, 4.0, now=training.now)
    assert {32} < found.rates.keys()
    assert (found.b_max, max(found.rates)) == (None, 32)
    missed = {8, 16, 4} - found.rates.keys()
    assert missed
    assert any("no time to measure" in note for note in found.notes)
