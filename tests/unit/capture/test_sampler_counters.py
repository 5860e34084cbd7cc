"""What the driver counts: counters that wrap."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from whyidle.capture.sampler.gpu import WrappingCounter


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
