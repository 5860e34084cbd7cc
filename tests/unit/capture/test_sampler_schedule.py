"""The sampler's timing, with a virtual clock."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from whyidle.capture.sampler.schedule import Beat, Cadence

PERIOD = 200_000_000


def run(beat: Beat, samples: int, delays: list[int] | None = None) -> tuple[list[int], list[int]]:
    """Waits as told, is woken `delays` too late, and returns (times, lateness)."""
    now, times, late = beat.planned_ns, [], []
    for i in range(samples):
        now += beat.wait_ns(now) + (delays[i % len(delays)] if delays else 0)
        times.append(now)
        late.append(beat.taken(now))
    return times, late


def test_mean_period_is_kept_and_gaps_are_bounded() -> None:
    times, late = run(Beat(PERIOD, 0, random.Random(1)), 5000)
    gaps = np.diff(times)
    assert gaps.min() >= PERIOD / 2
    assert gaps.max() <= PERIOD * 3 / 2
    assert gaps.mean() == pytest.approx(PERIOD, rel=0.02)
    assert set(late) == {0}


@pytest.mark.parametrize("step", [PERIOD, PERIOD // 2, PERIOD // 3, PERIOD * 2, 7_000_000])
def test_phase_within_a_step_is_uniform(step: int) -> None:
    """A strict period would see one phase (or three) of a step that divides it or is divided by it."""
    times, _ = run(Beat(PERIOD, 0, random.Random(2)), 20_000)
    counts, _ = np.histogram(np.array(times) % step, bins=10, range=(0, step))
    # Neighbouring phases of long steps are correlated, so the bound is loose: a locked beat fills one bin.
    assert counts.min() > 1700
    assert counts.max() < 2300


@given(st.lists(st.integers(0, 5 * PERIOD), min_size=1, max_size=30), st.integers(0, 2**32))
def test_lateness_is_the_delay_and_missed_plans_are_left_out(delays: list[int], seed: int) -> None:
    times, late = run(Beat(PERIOD, 1000, random.Random(seed)), 30, delays)
    # Late by what the waker was late.
    assert late == [delays[i % len(delays)] for i in range(30)]
    assert all(b > a for a, b in itertools.pairwise(times))


def test_after_a_stall_there_is_no_burst() -> None:
    beat = Beat(PERIOD, 0, random.Random(3))
    assert beat.taken(100 * PERIOD) == 100 * PERIOD
    assert beat.wait_ns(100 * PERIOD) >= PERIOD // 2


def test_cadence_keeps_its_period_and_puts_costly_work_off() -> None:
    cadence = Cadence(10, first_ns=5, share=0.01)
    assert [t for t in range(40) if cadence.due(t)] == [5, 15, 25, 35]
    cadence.cost(100, 3)
    assert next(t for t in range(500) if cadence.due(t)) == 400
