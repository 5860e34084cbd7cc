"""Statistics against published tables; interval sets against a slow and obvious implementation."""

from __future__ import annotations

import itertools
from math import inf, isnan, log, nan
from statistics import fmean, median

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from whyidle.analyse.intervals import Intervals, clip, complement, covered, intersect, subtract, total, union, union_of
from whyidle.analyse.statistics import (
    ONE_RUN_REACH,
    Estimate,
    LeastSquares,
    NoisePrior,
    Range,
    median_of_known,
    median_place,
    range_of,
    students_t,
    wilson,
)
from whyidle.record.schema import NOT_MEASURED

FIGURES = st.floats(1e-3, 1e6, allow_subnormal=False)
MANY = st.lists(FIGURES, min_size=1, max_size=12)


# NIST/SEMATECH e-Handbook of Statistical Methods, 1.3.6.7.2: critical values of Student's t, two-sided.
@pytest.mark.parametrize(
    ("freedom", "outside", "published"),
    [
        (2, 0.05, 4.303),
        (5, 0.05, 2.571),
        (10, 0.05, 2.228),
        (30, 0.05, 2.042),
        (1000, 0.05, 1.962),
        (10, 0.10, 1.812),
        (10, 0.02, 2.764),
        (30, 0.01, 2.750),
    ],
)
def test_students_t_is_that_of_the_tables(freedom: float, outside: float, published: float) -> None:
    assert students_t(freedom, outside) == pytest.approx(published, rel=0.032)
    if freedom >= 5:
        assert students_t(freedom, outside) == pytest.approx(published, rel=0.006)


# Newcombe 1998, "Two-sided confidence intervals for the single proportion", table I, method 3.
@pytest.mark.parametrize(
    ("hits", "of", "low", "high"),
    [
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0, 0.1611),
        (1, 29, 0.0061, 0.1718),
        (29, 29, 1 - 0.1170, 1.0),
    ],
)
def test_the_interval_of_a_rate_is_wilsons_as_published(hits: int, of: int, low: float, high: float) -> None:
    found = wilson(hits / of, of)
    assert (found.low, found.high) == (pytest.approx(low, abs=1e-4), pytest.approx(high, abs=1e-4))


@given(st.floats(0, 1), st.integers(1, 10_000))
def test_the_interval_of_a_rate_holds_it_and_narrows_with_cases(share: float, cases: int) -> None:
    found = wilson(share, cases)
    assert 0 <= found.low <= share <= found.high <= 1
    wider = wilson(share, max(1, cases // 4))
    assert wider.high - wider.low >= found.high - found.low - 1e-12


@given(st.floats(-5, 5), st.floats(0, 5))
def test_an_estimated_logarithm_becomes_a_ratio_with_the_same_certainty(value: float, reach: float) -> None:
    ratio = Estimate.around(value, reach).exp()
    assert 0 < ratio.low <= ratio.value <= ratio.high
    assert log(ratio.high / ratio.value) == pytest.approx(reach, abs=1e-9)


def test_what_cannot_be_negative_has_no_bound_below_zero_and_unknown_bounds_stay_unknown() -> None:
    assert wilson(0.0, 0) == Estimate(0.0, 0.0, 1.0)
    assert Estimate(1.0, -2.0, 4.0).positive() == Estimate(1.0, 0.0, 4.0)
    assert Estimate(1.0, 0.5, 1.5).positive() == Estimate(1.0, 0.5, 1.5)
    assert isnan(Estimate(1.0, nan, nan).positive().low)
    assert Estimate(1.0, 0.5, 1.5).above_zero
    assert Estimate(-1.0, -1.5, -0.5).below_zero
    assert not Estimate(1.0, -0.5, 2.5).above_zero
    assert not Estimate(1.0, -inf, inf).below_zero


@given(MANY)
def test_a_range_holds_its_middle_and_every_repeat(values: list[float]) -> None:
    for middle in (median, fmean):
        found = range_of(values, middle)
        assert found.low <= found.value * (1 + 1e-12)
        assert found.value <= found.high * (1 + 1e-12)
        assert (found.low, found.high, found.repeats) == (min(values), max(values), len(values))
        assert found.repeated == (len(values) > 1)


@given(MANY, MANY)
def test_a_ratio_of_medians_is_within_what_the_repeats_allow(one: list[float], other: list[float]) -> None:
    of_one, of_other = range_of(one, median), range_of(other, median)
    ratio = of_one.over(of_other)
    assert ratio.low <= ratio.value * (1 + 1e-12)
    assert ratio.value <= ratio.high * (1 + 1e-12)
    assert all(ratio.low * (1 - 1e-12) <= a / b <= ratio.high * (1 + 1e-12) for a in one for b in other)
    assert of_other.over(of_one).value == pytest.approx(1 / ratio.value)


def test_ranges_meet_where_they_overlap_and_a_single_run_reaches_some_percent() -> None:
    assert Range(100, 90, 110, 3).meets(Range(120, 108, 130, 3))
    assert not Range(100, 90, 107, 3).meets(Range(120, 108, 130, 3))
    single = Range(100, 100, 100, 1)
    assert single.meets(Range(100 * (1 + ONE_RUN_REACH), 105, 105, 1))
    assert not single.meets(Range(112, 112, 112, 1))
    assert Range(100 * (1 + ONE_RUN_REACH), 105, 105, 1).meets(single)


@given(st.lists(FIGURES | st.none(), max_size=12))
def test_the_place_of_the_median_is_that_of_the_value_with_as_many_below_as_above(values: list[float | None]) -> None:
    place = median_place(values)
    known = [value for value in values if value is not None]
    if place is None:
        assert not known
        assert median_of_known(values) is None
        assert range_of(known, median) is None
        return
    found = values[place]
    assert found is not None
    assert found == sorted(known)[(len(known) - 1) // 2]
    assert median_of_known(values) == pytest.approx(median(known))


@given(st.floats(0, 10), st.integers(0, 100))
def test_the_pooled_variance_lies_between_what_was_seen_and_what_is_assumed(seen_noise: float, freedom: int) -> None:
    prior = NoisePrior(0.03, 2.0)
    variance = float(prior.variance(np.array(freedom * seen_noise**2), freedom))
    ends = sorted((seen_noise**2, 0.03**2))
    assert ends[0] * (1 - 1e-9) <= variance <= ends[1] * (1 + 1e-9) or freedom == 0
    if freedom == 0:
        assert variance == pytest.approx(0.03**2)


@given(st.integers(0, 2**32 - 1))
def test_least_squares_find_what_made_the_values_and_count_what_is_left(seed: int) -> None:
    source = np.random.default_rng(seed)
    design = np.column_stack([np.ones(9), np.arange(9.0), source.normal(size=9)])
    truth = source.normal(size=(3, 2))
    solved = LeastSquares(design, design @ truth)
    assert solved.coefficients == pytest.approx(truth, abs=1e-8)
    assert solved.squares == pytest.approx(np.zeros(2), abs=1e-12)
    assert solved.freedom == 6
    # Columns that say the same leave as much freedom as one of them.
    same = LeastSquares(np.ones((5, 2)), np.arange(5.0))
    assert (same.freedom, float(same.squares)) == (4, pytest.approx(10))


spans = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)), max_size=12)


def made(pairs: list[tuple[int, int]]) -> Intervals:
    begin, end = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    return union(begin, end)


def ticks(pairs: list[tuple[int, int]]) -> set[int]:
    return {t for b, e in pairs for t in range(b, e)}


def ticks_of(intervals: Intervals) -> set[int]:
    flat = [(int(b), int(e)) for b, e in intervals]
    assert all(b < e for b, e in flat)
    assert all(one[1] < other[0] or one[1] == other[0] for one, other in itertools.pairwise(flat))
    return ticks(flat)


@given(spans, spans)
def test_union_intersection_and_difference(one: list[tuple[int, int]], other: list[tuple[int, int]]) -> None:
    assert ticks_of(made(one)) == ticks(one)
    assert total(made(one)) == len(ticks(one))
    assert ticks_of(union_of(made(one), made(other))) == ticks(one) | ticks(other)
    assert ticks_of(intersect(made(one), made(other))) == ticks(one) & ticks(other)
    assert ticks_of(subtract(made(one), made(other))) == ticks(one) - ticks(other)


@given(spans, st.integers(0, 60), st.integers(0, 60))
def test_clip_and_complement_share_the_window(pairs: list[tuple[int, int]], begin: int, end: int) -> None:
    window = set(range(begin, end))
    assert ticks_of(clip(made(pairs), begin, end)) == ticks(pairs) & window
    assert ticks_of(complement(made(pairs), begin, end)) == window - ticks(pairs)


@given(spans, st.lists(st.tuples(st.integers(-5, 70), st.integers(-5, 70)), max_size=40))
def test_what_is_covered_of_stretches_in_any_order(
    pairs: list[tuple[int, int]], stretches: list[tuple[int, int]]
) -> None:
    begin, end = np.array(stretches, dtype=np.int64).reshape(-1, 2).T
    assert covered(made(pairs), begin, end).tolist() == [len(ticks(pairs) & set(range(b, e))) for b, e in stretches]


def test_of_a_stamp_that_was_not_measured_there_is_no_interval() -> None:
    begin = np.array([NOT_MEASURED, 3, 7], dtype=np.int64)
    end = np.array([5, NOT_MEASURED, 9], dtype=np.int64)
    assert union(begin, end).tolist() == [[7, 9]]
