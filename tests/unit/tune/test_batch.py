"""Batch-size advice, and the memory ladder, of trainings that are made up."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pytest

from whyidle.record.tuning import Block, LoaderSettings, MemoryUse
from whyidle.tune.batch import (
    DEVICE_MARGIN,
    Ladder,
    Probe,
    ProbeOutcome,
    Question,
    advise,
    climb,
    sizes_to_measure,
)
from whyidle.tune.result import BatchAdvice
from whyidle.tune.training import BenchEnded, TrialFailed

GB = 1 << 30
OWN = LoaderSettings(2, 2, batch_size=32)


def undecided(_size: int, _seconds: float) -> Probe:
    return Probe(ProbeOutcome.LATE)


@dataclass
class Simulated:
    """A training whose steps take a known time."""

    step_ns: Callable[[int], float]
    noise: float = 0.01
    wait_share: float = 0.0
    # Sizes from which it runs out of memory, and from which batches cannot be kept.
    limit: int = 10**9
    cannot_keep: int = 10**9
    dies_after: int = 10**9
    clock: float = 0.0
    asked: list[LoaderSettings] = field(default_factory=list)
    closed: list[LoaderSettings] = field(default_factory=list)
    draws: random.Random = field(default_factory=lambda: random.Random(1))
    baseline = OWN

    def now(self) -> float:
        return self.clock

    def measure(self, settings: LoaderSettings, seconds: float) -> Block:
        if settings.held:
            return self.alone(settings.batch_size, seconds)
        self.asked.append(settings)
        size = settings.batch_size
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

    def alone(self, batch_size: int, seconds: float) -> Block:
        """As if there were no loader: all but the wait."""
        if not self.wait_share:
            raise AssertionError("not asked for")
        self.clock += seconds * 1.5
        if batch_size >= self.cannot_keep:
            raise TrialFailed("these batches cannot be kept")
        took = round((1 - self.wait_share) * self.step_ns(batch_size))
        return Block(replace(OWN, batch_size=batch_size), 10, 10 * batch_size, 0, 10 * took, 0)

    def close(self, settings: LoaderSettings) -> None:
        assert settings != OWN
        self.closed.append(settings)

    def probe(self, batch_size: int, seconds: float, /) -> Probe:
        self.clock += 5
        held = GB + 8 * (1 << 20) * batch_size
        if held > 6 * GB:
            return Probe(ProbeOutcome.OOM, why="out of memory", seconds=5)
        return Probe(ProbeOutcome.OK, 20, MemoryUse(held, 6 * GB, True), seconds=5)

    def advise(self, budget_s: float = 120, **given: object) -> BatchAdvice:
        question = Question(OWN, dataset_samples=60_000)
        return advise(self, self.probe, question, budget_s, **given)


def affine(alpha_ns: float, beta_ns: float) -> Callable[[int], float]:
    return lambda size: alpha_ns + beta_ns * size


def test_two_answers_from_one_training() -> None:
    training = Simulated(affine(4e6, 50e3))
    found = training.advise()
    assert 480 <= found.b_max <= 576
    assert found.b_max in found.memory_bytes
    assert max(found.rates) <= found.b_max
    assert {32, found.b_max} <= found.rates.keys()
    assert found.b_95 == found.b_max
    assert found.alone == {}


def test_all_sizes_are_measured_in_every_round_and_the_budget_is_kept() -> None:
    training = Simulated(affine(4e6, 50e3))
    training.advise(budget_s=70)
    counts = Counter(settings.batch_size for settings in training.asked)
    assert max(counts.values()) - min(counts.values()) <= 1
    assert max(counts.values()) >= 2
    assert training.clock < 75
    assert {replace(s, batch_size=None) for s in training.asked} == {replace(OWN, batch_size=None)}
    assert set(training.closed) == set(training.asked) - {OWN}


def test_where_the_loader_binds_the_device_alone_is_measured_and_what_it_asks_of_a_loader() -> None:
    steps = affine(4e6, 50e3)
    found = Simulated(steps, wait_share=0.6, noise=0.0).advise()
    assert found.loader_bound
    assert found.b_95 is None
    assert any("waits for its loader 60 %" in note for note in found.notes)
    assert any("loader sets the pace" in note for note in found.notes)
    assert set(found.alone) == set(found.rates)
    for size, rate in found.alone.items():
        assert rate == pytest.approx(size * 1e9 / (0.4 * steps(size)), rel=1e-3)
        assert found.rates[size].value == pytest.approx(0.4 * rate, rel=0.01)
    best = max(found.alone, key=lambda size: found.alone[size])
    (told,) = [note for note in found.notes if "would have to deliver" in note]
    assert told.startswith(f"With batches kept in memory the training is fastest at {best}: {found.alone[best]:.0f} ")
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
    # Fewer where each keeps many workers.
    assert sorted(sizes_to_measure(32, 2048, workers=40)) == [16, 32, 256, 2048]


def test_what_there_was_no_time_for_is_named() -> None:
    training = Simulated(affine(4e6, 50e3))
    question = Question(OWN, most=128)
    found = advise(training, undecided, question, 4.0)
    assert {32} < found.rates.keys()
    assert (found.b_max, max(found.rates)) == (None, 32)
    missed = {8, 16, 4} - found.rates.keys()
    assert missed
    assert any("no time to measure" in note for note in found.notes)


MB = 1 << 20


@dataclass
class Machine:
    """What is held at a batch size, and how much there is."""

    held: Callable[[int], float]
    capacity: int
    on_device: bool = True
    retries_from: float = 1.0
    """Share of the capacity from which the allocator has to retry."""
    seconds: float = 10.0
    breaks_at: int | None = None
    late_from: int | None = None
    """Size from which too few steps are made in the time."""
    now: float = 0.0
    ran: list[int] = field(default_factory=list)

    def __call__(self, batch_size: int, seconds: float, /) -> Probe:
        self.ran.append(batch_size)
        self.now += self.seconds
        if self.breaks_at is not None and batch_size >= self.breaks_at:
            return Probe(ProbeOutcome.FAILED, why="shapes do not match", seconds=self.seconds)
        if self.late_from is not None and batch_size >= self.late_from:
            why = "it made 1 optimizer steps in 9 s"
            return Probe(ProbeOutcome.LATE, why=why, seconds=self.seconds)
        held = int(self.held(batch_size))
        if held > self.capacity:
            return Probe(ProbeOutcome.OOM, why="out of memory", seconds=self.seconds)
        retries = 3 if held > self.retries_from * self.capacity else 0
        memory = MemoryUse(held, self.capacity, self.on_device, retries)
        return Probe(ProbeOutcome.OK, 20, memory, seconds=self.seconds)

    def fits(self, batch_size: int) -> bool:
        margin = max(0.05 * self.capacity, DEVICE_MARGIN if self.on_device else 0)
        held = self.held(batch_size)
        return held + margin <= self.capacity and held <= self.retries_from * self.capacity

    def largest(self) -> int:
        size = 0
        while self.fits(size + 1):
            size += 1
        return size

    def climb(self, first: int, budget_s: float = 1e9, **limits: int) -> Ladder:
        found = climb(self, first, budget_s, now=lambda: self.now, **limits)
        assert found.b_max is None or (found.b_max in self.ran and self.fits(found.b_max))
        assert set(found.probes) == set(self.ran)
        assert len(self.ran) == len(set(self.ran))
        return found


def linear(size: int) -> float:
    return 1.5 * GB + 190 * MB * size


def stepwise(size: int) -> float:
    """Another algorithm from 96 on, which needs a workspace."""
    return linear(size) + (6 * GB if size >= 96 else 0)


def quadratic(size: int) -> float:
    return 1.5 * GB + 40 * MB * size + 2 * MB * size**2


@pytest.mark.parametrize(
    ("held", "capacity", "first"),
    [
        (linear, 40 * GB, 16),
        (linear, 8 * GB, 4),
        (stepwise, 24 * GB, 16),
        (stepwise, 40 * GB, 16),
        (quadratic, 40 * GB, 16),
        (quadratic, 40 * GB, 4),
    ],
)
def test_the_limit_is_found_within_a_fifth_soon(held: Callable[[int], float], capacity: int, first: int) -> None:
    machine = Machine(held, capacity)
    found = machine.climb(first)
    assert found.b_max >= 0.8 * machine.largest()
    assert len(machine.ran) <= 7
    assert sum(probe.outcome == ProbeOutcome.OOM for probe in found.probes.values()) <= 2
    if (held, capacity) == (linear, 40 * GB):
        assert len(machine.ran) <= 5
        assert found.failed == {}
        assert found.memory == {size: int(linear(size)) for size in sorted(machine.ran)}


def test_where_even_the_programs_own_size_does_not_fit_it_is_halved() -> None:
    machine = Machine(linear, 3 * GB)
    found = machine.climb(64)
    assert machine.ran[:4] == [64, 32, 16, 8]
    assert found.b_max == machine.largest() == 5
    assert found.failed[64] == "out of memory"
    nothing = Machine(linear, 1 * GB).climb(64)
    assert nothing.b_max is None
    assert nothing.bounded_by == "a batch of 1 does not fit (out of memory)"


def test_retries_of_the_allocator_count_as_failure() -> None:
    machine = Machine(linear, 40 * GB, retries_from=0.6)
    found = machine.climb(16)
    assert found.b_max >= 0.8 * machine.largest()
    assert any("free its caches 3 times in 20 steps" in why for why in found.failed.values())


def test_a_size_within_the_margin_is_not_returned_though_it_ran() -> None:
    machine = Machine(lambda size: 10 * GB if size < 24 else 38.5 * GB, 40 * GB)
    found = machine.climb(12)
    assert found.b_max < 24
    assert "margin" in found.failed[24]
    # A small device keeps half a gibibyte, the host five percent.
    for used, on_device, fits in ((3500, True, True), (3600, True, False), (3600, False, True)):
        assert Probe(ProbeOutcome.OK, 20, MemoryUse(used * MB, 4 * GB, on_device)).fits is fits


def test_memory_that_does_not_limit_is_limited_by_data_or_by_the_user() -> None:
    limits = [{"dataset_samples": 1000}, {"most": 100}, {"most": 10}, {}]
    few, asked, below, endless = (Machine(lambda size: GB, 40 * GB).climb(16, **each) for each in limits)
    assert [each.b_max for each in (few, asked, below, endless)] == [333, 100, 10, 16 * 64]
    assert "1000 samples" in few.bounded_by
    assert asked.bounded_by == "no larger size was asked for"


def test_no_probe_begins_that_would_not_end_in_time() -> None:
    machine = Machine(linear, 40 * GB)
    found = machine.climb(16, budget_s=25)
    assert machine.ran == [16, 32]
    assert found.b_max == 32
    assert found.bounded_by == "the time for trials ran out"
    assert Machine(linear, 40 * GB).climb(16, budget_s=0).b_max is None


def test_a_program_that_fails_for_another_reason_is_not_halved() -> None:
    machine = Machine(linear, 40 * GB, breaks_at=1)
    found = machine.climb(16)
    assert machine.ran == [16]
    assert found.b_max is None
    assert found.failed == {16: "shapes do not match"}
    later = Machine(linear, 40 * GB, breaks_at=33).climb(16)
    assert 32 <= later.b_max < 64


def test_out_of_time_is_not_out_of_memory() -> None:
    machine = Machine(linear, 64 * GB, late_from=16)
    found = machine.climb(8)
    assert machine.ran == [8, 16]
    assert found.b_max == 8
    assert found.failed == {}
    assert found.bounded_by == "a batch of 16 could not be decided (it made 1 optimizer steps in 9 s)"
    own = Machine(linear, 64 * GB, late_from=1).climb(8)
    assert (own.b_max, own.failed) == (None, {})
    assert "batch of 8 could not be decided" in own.bounded_by


@pytest.mark.parametrize(
    ("rates", "smallest"),
    [
        # As measured of a ConvNeXt on an H100: a rate need not rise with the size.
        ({4: 113.0, 8: 97.0, 16: 122.0, 32: 90.0}, 16),
        ({4: 117.0, 8: 113.0, 16: 122.0, 32: 90.0}, 4),
        ({4: 17.0, 8: 45.0, 16: 94.5, 32: 100.0}, 32),
    ],
)
def test_the_smallest_size_within_five_percent_of_the_best_is_advised(rates: dict[int, float], smallest: int) -> None:
    training = Simulated(lambda size: size * 1e9 / rates[size], noise=0.0)
    assert advise(training, undecided, Question(OWN), 100.0).b_95 == smallest
