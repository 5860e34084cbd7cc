"""What the driver counts: utilisation samples, counters that wrap, two clocks."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from whyidle.capture.sampler.ring import ClockPair, UtilisationRing, WrappingCounter, clock_of

START = 1_700_000_000_000_000


def triples(ring: UtilisationRing, samples: list[tuple[int, float]], now: int) -> list[tuple[int, int | None, float]]:
    return [(w.end_us - START, w.length_us, w.percent) for w in ring.take(samples, START, now)]


def test_windows_are_differences_and_only_new_ones_count() -> None:
    ring = UtilisationRing()
    before = [(START - 100, 7.0), (START + 60, 10.0), (START + 200, 20.0)]
    assert triples(ring, before, START + 300) == [(60, 160, 10.0), (200, 140, 20.0)]
    again = [(START + 360, 40.0), (START + 200, 20.0), (START + 60, 10.0)]
    assert triples(ring, again, START + 400) == [(360, 160, 40.0)]
    assert ring.last_us == START + 360


def test_the_first_sample_of_all_has_no_known_length() -> None:
    assert triples(UtilisationRing(), [(START + 60, 10.0)], START + 100) == [(60, None, 10.0)]


def test_a_gap_longer_than_any_period_has_no_known_length() -> None:
    ring = UtilisationRing()
    samples = [(START + 10, 1.0), (START + 1_000_010, 2.0), (START + 2_000_011, 3.0)]
    assert triples(ring, samples, START + 10**7) == [
        (10, None, 1.0),
        (1_000_010, 1_000_000, 2.0),
        (2_000_011, None, 3.0),
    ]


def test_samples_from_the_future_or_beyond_100_percent_are_left_out() -> None:
    ring = UtilisationRing()
    samples = [(START + 10, 1.0), (START + 20, 101.0), (START + 30, -1.0), (START + 5000, 50.0)]
    assert triples(ring, samples, START + 100) == [(10, None, 1.0)]
    assert triples(ring, [(START + 40, 4.0)], START + 100) == [(40, 30, 4.0)]


@given(
    st.lists(st.integers(1, 1_000_000), min_size=1, max_size=60),
    st.lists(st.integers(0, 60), min_size=1, max_size=10),
    st.randoms(use_true_random=False),
)
def test_however_it_is_drained_every_sample_comes_once(
    gaps: list[int], drains: list[int], shuffle: random.Random
) -> None:
    """Overlapping drains in any order give each sample once, with lengths that add up."""
    stamps = [START + sum(gaps[: i + 1]) for i in range(len(gaps))]
    ring, seen = UtilisationRing(), []
    for upto in [*sorted(drains), len(stamps)]:
        part = [(s, 50.0) for s in stamps[:upto]]
        shuffle.shuffle(part)
        seen += ring.take(part, START, stamps[-1])
    assert [w.end_us for w in seen] == stamps
    assert [w.length_us for w in seen] == [None, *gaps[1:]]


@given(st.integers(0, 2**32 - 1), st.lists(st.integers(0, 2**32 - 1), max_size=50), st.sampled_from([32, 64]))
def test_a_wrapping_counter_counts_on(start: int, steps: list[int], bits: int) -> None:
    """A counter of 32 bits, given out as one of 32 or of 64 bits, yields the sum of its steps."""
    counter, true = WrappingCounter(), start
    assert counter.read(start, bits) == start
    for step in steps:
        true += step
        assert counter.read(true % 2**32, bits) == true


@given(st.lists(st.integers(0, 2**40), min_size=1, max_size=20))
def test_a_wide_counter_is_taken_as_it_is(steps: list[int]) -> None:
    counter, value = WrappingCounter(), 2**33
    counter.read(value, 64)
    for step in steps:
        value += step
        assert counter.read(value, 64) == value


def test_stamps_convert_by_the_pair() -> None:
    clock = ClockPair(driver_us=START, monotonic_ns=5_000_000_000)
    assert clock.monotonic(START - 2_000_000) == 3_000_000_000
    assert clock.monotonic(START + 1) == 5_000_001_000
    assert clock.driver(5_000_001_000) == START + 1


def test_stamps_are_of_the_clock_that_the_newest_lies_nearest_to() -> None:
    epoch, boot = ClockPair(START, 10**9), ClockPair(40_000_000, 10**9)
    assert clock_of(START - 139_000, (epoch, boot)) is epoch
    assert clock_of(40_000_000 - 139_000, (epoch, boot)) is boot
