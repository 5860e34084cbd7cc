"""How large a batch should be, of sizes whose times and memory are known."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from whyidle.analyse.statistics import Estimate
from whyidle.tune.batch.batch_choice import knee, learning_rate_note, memory_line, step_time

MB = 1_000_000


def rates_of(alpha_ns: float, beta_ns: float, sizes: list[int], spread: float = 0.01) -> dict[int, Estimate]:
    """Samples/s of steps that take alpha + beta B exactly."""
    found = {}
    for size in sizes:
        rate = size * 1e9 / (alpha_ns + beta_ns * size)
        found[size] = Estimate(rate, rate * (1 - spread), rate * (1 + spread))
    return found


def test_the_line_gives_back_the_times_it_was_made_of() -> None:
    line = step_time(rates_of(4e6, 50e3, [8, 16, 32, 64, 128]))
    assert line is not None
    assert line.alpha_ns == pytest.approx(4e6)
    assert line.beta_ns == pytest.approx(50e3)
    assert line.half == pytest.approx(80)
    assert line.off_line == ()
    assert line.at(100) == pytest.approx(9e6)


def test_a_batch_at_half_of_b_half_is_launch_bound_and_one_far_beyond_it_is_not() -> None:
    line = step_time(rates_of(4e6, 50e3, [8, 16, 32, 64, 128]))
    assert line is not None
    assert line.alpha_share(80) == pytest.approx(0.5)
    assert line.launch_bound(40)
    assert not line.launch_bound(320)


def test_a_size_that_is_off_the_line_is_named() -> None:
    rates = rates_of(4e6, 50e3, [8, 16, 32, 64, 128, 256])
    slow = rates[64].value * 0.8
    rates[64] = Estimate(slow, slow * 0.99, slow * 1.01)
    line = step_time(rates)
    assert line is not None
    assert 64 in line.off_line
    assert 8 not in line.off_line


def test_steps_of_nothing_but_samples_have_no_fixed_part() -> None:
    rates = rates_of(0, 50e3, [8, 16, 32])
    # Larger batches even a little slower: the best line would begin below zero.
    slower = rates[32].value * 0.97
    line = step_time(rates | {32: Estimate(slower, slower, slower)})
    assert line is not None
    assert line.alpha_ns == 0
    assert line.half == 0
    assert line.beta_ns == pytest.approx(50e3, rel=0.03)


def test_there_is_no_line_from_two_sizes_nor_where_size_costs_nothing() -> None:
    assert step_time(rates_of(4e6, 50e3, [8, 16])) is None
    assert step_time(rates_of(4e6, -10.0, [8, 16, 32])) is None


def test_the_knee_is_the_smallest_size_within_five_percent_of_the_best() -> None:
    rates = rates_of(4e6, 50e3, [16, 64, 256, 1024, 4096])
    found = knee(rates)
    # X(B) / X(4096) with B_half = 80: 0.170, 0.453, 0.777, 0.945, 1.
    assert found is not None
    assert (found.batch_size, found.best) == (4096, 4096)
    wider = knee(rates_of(4e6, 50e3, [16, 64, 256, 1024, 4096], spread=0.03))
    assert wider is not None
    assert (wider.earliest, wider.batch_size, wider.latest) == (1024, 4096, 4096)


def test_the_knee_of_rates_that_fall_again_lies_before_the_largest() -> None:
    """As measured of a ConvNeXt on an H100: 113, 97, 122 images/s."""
    measured = {64: 113.0, 160: 97.0, 216: 122.0, 256: 90.0}
    rates = {size: Estimate(rate, rate * 0.99, rate * 1.01) for size, rate in measured.items()}
    found = knee(rates)
    assert found is not None
    assert (found.batch_size, found.best) == (216, 216)
    nearly = knee(rates | {32: Estimate(117.0, 116.0, 118.0)})
    assert nearly is not None
    assert (nearly.batch_size, nearly.best) == (32, 216)
    assert knee({}) is None


def test_a_memory_line_says_what_fits() -> None:
    line = memory_line({size: 500 * MB + 20 * MB * size for size in (8, 16, 32)})
    assert line is not None
    assert line.straight
    assert line.base == pytest.approx(500 * MB)
    assert line.largest_within(8_500 * MB) == 400
    assert line.largest_within(100 * MB) == 0
    # What the fit comes to on one processor, and not on another.
    rounded = replace(line, base=500 * MB - 1e-7, slope=20 * MB + 1e-8)
    assert rounded.largest_within(8_500 * MB) == 400
    assert rounded.largest_within(8_500 * MB - 1000) == 399


def test_a_bent_memory_line_is_not_trusted_beyond_twice_what_was_measured() -> None:
    line = memory_line({size: 500 * MB + MB * size**2 for size in (8, 16, 32)})
    assert line is not None
    assert not line.straight
    assert line.largest_within(10**12) == 64


def test_memory_that_does_not_grow_bounds_nothing() -> None:
    line = memory_line({8: 500 * MB, 16: 500 * MB, 32: 499 * MB})
    assert line is not None
    assert line.largest_within(1000 * MB) is None
    assert memory_line({8: MB}) is None


def test_the_learning_rate_note_knows_both_rules() -> None:
    note = learning_rate_note(64, 256)
    assert "by 4 for SGD" in note
    assert "by 2 for Adam" in note
    assert "not measured" in note


def test_noise_of_a_few_percent_moves_b_half_little() -> None:
    draws = np.random.default_rng(3)
    found = []
    for _ in range(200):
        exact = rates_of(4e6, 50e3, [16, 32, 64, 128, 256, 512])
        noisy = {
            size: Estimate(rate, rate, rate)
            for size, known in exact.items()
            for rate in [known.value * math.exp(draws.normal(0, 0.02))]
        }
        line = step_time(noisy)
        assert line is not None
        found.append(line.half)
    assert np.median(found) == pytest.approx(80, rel=0.05)
    assert np.quantile(np.abs(np.array(found) / 80 - 1), 0.9) < 0.15
