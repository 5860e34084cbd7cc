"""The memory ladder on memories that are made up."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from whyidle.tune.batch.ladder import DEVICE_MARGIN, Ladder, Probe, ProbeOutcome, climb

MB = 1 << 20
GB = 1 << 30


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
            why = "1 optimizer steps were made in 9 s"
            return Probe(ProbeOutcome.LATE, 1, 1 * GB, self.capacity, self.on_device, why=why, seconds=self.seconds)
        held = int(self.held(batch_size))
        if held > self.capacity:
            return Probe(ProbeOutcome.OOM, 0, None, None, self.on_device, why="out of memory", seconds=self.seconds)
        retries = 3 if held > self.retries_from * self.capacity else 0
        return Probe(ProbeOutcome.OK, 20, held, self.capacity, self.on_device, retries, seconds=self.seconds)

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
    assert found.b_max is not None
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
    assert found.b_max is not None
    assert found.b_max >= 0.8 * machine.largest()
    assert any("free its caches 3 times in 20 steps" in why for why in found.failed.values())


def test_a_size_within_the_margin_is_not_returned_though_it_ran() -> None:
    machine = Machine(lambda size: 10 * GB if size < 24 else 38.5 * GB, 40 * GB)
    found = machine.climb(12)
    assert found.b_max is not None
    assert found.b_max < 24
    assert "margin" in found.failed[24]
    # A small device keeps half a gibibyte, the host five percent.
    assert Probe(ProbeOutcome.OK, 20, 3500 * MB, 4 * GB, True).fits
    assert not Probe(ProbeOutcome.OK, 20, 3600 * MB, 4 * GB, True).fits
    assert Probe(ProbeOutcome.OK, 20, 3600 * MB, 4 * GB, False).fits


def test_memory_that_does_not_limit_is_limited_by_data_or_by_the_user() -> None:
    limits = [{"dataset_samples": 1000}, {"most": 100}, {"most": 10}, {}]
    few, asked, below, endless = (Machine(lambda size: GB, 40 * GB).climb(16, **each) for each in limits)
    assert [each.b_max for each in (few, asked, below, endless)] == [333, 100, 10, 16 * 64]
    assert "1000 samples" in few.bounded_by
    assert asked.bounded_by == "no larger one was asked for"


def test_no_probe_begins_that_would_not_end_in_time() -> None:
    machine = Machine(linear, 40 * GB)
    found = machine.climb(16, budget_s=25)
    assert machine.ran == [16, 32]
    assert found.b_max == 32
    assert found.bounded_by == "the time for trying was over"
    assert Machine(linear, 40 * GB).climb(16, budget_s=0).b_max is None


def test_a_program_that_fails_for_another_reason_is_not_halved() -> None:
    machine = Machine(linear, 40 * GB, breaks_at=1)
    found = machine.climb(16)
    assert machine.ran == [16]
    assert found.b_max is None
    assert found.failed == {16: "shapes do not match"}
    later = Machine(linear, 40 * GB, breaks_at=33).climb(16)
    assert later.b_max is not None
    assert 32 <= later.b_max < 64


def test_out_of_time_is_not_out_of_memory() -> None:
    machine = Machine(linear, 64 * GB, late_from=16)
    found = machine.climb(8)
    assert machine.ran == [8, 16]
    assert found.b_max == 8
    assert found.failed == {}
    assert found.bounded_by == "whether a batch of 16 fits was not found out (1 optimizer steps were made in 9 s)"
    own = Machine(linear, 64 * GB, late_from=1).climb(8)
    assert (own.b_max, own.failed) == (None, {})
    assert "batch of 8 fits was not found out" in own.bounded_by
