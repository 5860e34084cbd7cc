"""How large a batch should be, of sizes whose times and memory are known."""

from __future__ import annotations

from dataclasses import replace

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


def test_the_line_gives_back_the_times_it_was_made_of_and_names_a_size_that_is_off_it() -> None:
    rates = rates_of(4e6, 50e3, [8, 16, 32, 64, 128])
    line = step_time(rates)
    assert (line.alpha_ns, line.beta_ns, line.half) == pytest.approx((4e6, 50e3, 80))
    assert line.off_line == ()
    assert line.at(100) == pytest.approx(9e6)
    assert line.alpha_share(80) == pytest.approx(0.5)
    assert (line.launch_bound(40), line.launch_bound(320)) == (True, False)
    slow = rates[64].value * 0.8
    bent = step_time(rates_of(4e6, 50e3, [8, 16, 32, 128, 256]) | {64: Estimate(slow, slow * 0.99, slow * 1.01)})
    assert (64 in bent.off_line, 8 in bent.off_line) == (True, False)


def test_steps_of_nothing_but_samples_have_no_fixed_part() -> None:
    rates = rates_of(0, 50e3, [8, 16, 32])
    # Larger batches even a little slower: the best line would begin below zero.
    slower = rates[32].value * 0.97
    line = step_time(rates | {32: Estimate(slower, slower, slower)})
    assert (line.alpha_ns, line.half) == (0, 0)
    assert line.beta_ns == pytest.approx(50e3, rel=0.03)
    assert step_time(rates_of(4e6, 50e3, [8, 16])) is None
    assert step_time(rates_of(4e6, -10.0, [8, 16, 32])) is None


SIZES = [16, 64, 256, 1024, 4096]
# As measured of a ConvNeXt on an H100.
FALLING = {size: Estimate(x, x * 0.99, x * 1.01) for size, x in {64: 113.0, 160: 97.0, 216: 122.0, 256: 90.0}.items()}


@pytest.mark.parametrize(
    ("rates", "earliest", "size", "latest", "best"),
    [
        # X(B) / X(4096) with B_half = 80: 0.170, 0.453, 0.777, 0.945, 1.
        (rates_of(4e6, 50e3, SIZES), 1024, 4096, 4096, 4096),
        (rates_of(4e6, 50e3, SIZES, spread=0.03), 1024, 4096, 4096, 4096),
        (FALLING, 216, 216, 216, 216),
        (FALLING | {32: Estimate(117.0, 116.0, 118.0)}, 32, 32, 32, 216),
    ],
)
def test_the_knee_is_the_smallest_size_within_five_percent_of_the_best(
    rates: dict[int, Estimate], earliest: int, size: int, latest: int, best: int
) -> None:
    found = knee(rates)
    assert (found.earliest, found.batch_size, found.latest, found.best) == (earliest, size, latest, best)
    assert knee({}) is None


def test_a_memory_line_says_what_fits() -> None:
    line = memory_line({size: 500 * MB + 20 * MB * size for size in (8, 16, 32)})
    assert line.straight
    assert line.base == pytest.approx(500 * MB)
    assert line.largest_within(8_500 * MB) == 400
    assert line.largest_within(100 * MB) == 0
    # What the fit comes to on one processor, and not on another.
    rounded = replace(line, base=500 * MB - 1e-7, slope=20 * MB + 1e-8)
    assert rounded.largest_within(8_500 * MB) == 400
    assert rounded.largest_within(8_500 * MB - 1000) == 399


def test_a_bent_memory_line_is_not_trusted_far_and_memory_that_does_not_grow_bounds_nothing() -> None:
    bent = memory_line({size: 500 * MB + MB * size**2 for size in (8, 16, 32)})
    assert not bent.straight
    assert bent.largest_within(10**12) == 64
    flat = memory_line({8: 500 * MB, 16: 500 * MB, 32: 499 * MB})
    assert flat.largest_within(1000 * MB) is None
    assert memory_line({8: MB}) is None


def test_the_learning_rate_note_knows_both_rules() -> None:
    note = learning_rate_note(64, 256)
    assert all(words in note for words in ("by 4 for SGD", "by 2 for Adam", "not measured"))
