"""Statistics against published tables, against what simulations give, and against what must always hold."""

from __future__ import annotations

from math import inf, isnan, log, nan
from statistics import fmean, median

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from whyidle.analyse.statistics import (
    BLOCK_PRIOR,
    ONE_RUN_REACH,
    PAIR_PRIOR,
    RUN_NOISE,
    SWEEP_PRIOR,
    Estimate,
    LeastSquares,
    NoisePrior,
    Range,
    mean_estimate,
    median_of_known,
    median_place,
    range_of,
    students_t,
    wilson,
)

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


@given(st.floats(2, 500), st.floats(0.001, 0.5))
def test_students_t_is_larger_the_less_is_known_and_the_surer_one_wants_to_be(freedom: float, outside: float) -> None:
    assert students_t(freedom, outside) > students_t(freedom + 1, outside) > 0
    assert students_t(freedom, outside) > students_t(freedom, outside * 1.01)


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
        assert found is not None
        assert found.low <= found.value * (1 + 1e-12)
        assert found.value <= found.high * (1 + 1e-12)
        assert (found.low, found.high, found.repeats) == (min(values), max(values), len(values))
        assert found.repeated == (len(values) > 1)


@given(MANY, MANY)
def test_a_ratio_of_medians_is_within_what_the_repeats_allow(one: list[float], other: list[float]) -> None:
    of_one, of_other = range_of(one, median), range_of(other, median)
    assert of_one is not None
    assert of_other is not None
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


def test_runs_are_assumed_to_differ_by_the_same_wherever_runs_are_compared() -> None:
    assert SWEEP_PRIOR.noise == PAIR_PRIOR.noise == RUN_NOISE < BLOCK_PRIOR.noise


@pytest.mark.parametrize("prior", [SWEEP_PRIOR, PAIR_PRIOR])
def test_intervals_from_pooled_noise_hold_the_truth_about_as_often_as_they_say(prior: NoisePrior) -> None:
    """Of two runs and two others of a setting, on a machine as it is assumed to be."""
    source = np.random.default_rng(3)
    held = []
    for _ in range(2000):
        a, b = source.normal(0, prior.noise, (2, 2))
        squares = np.array(((a - a.mean()) ** 2).sum() + ((b - b.mean()) ** 2).sum())
        error = float(np.sqrt(prior.variance(squares, 2)))
        held.append(abs(a.mean() - b.mean()) <= students_t(2 + prior.freedom) * error)
    assert np.mean(held) >= 0.94


@given(st.integers(0, 2**32 - 1))
def test_least_squares_find_what_made_the_values_and_count_what_is_left(seed: int) -> None:
    source = np.random.default_rng(seed)
    design = np.column_stack([np.ones(9), np.arange(9.0), source.normal(size=9)])
    truth = source.normal(size=(3, 2))
    solved = LeastSquares(design, design @ truth)
    assert solved.coefficients == pytest.approx(truth, abs=1e-8)
    assert solved.squares == pytest.approx(np.zeros(2), abs=1e-12)
    assert solved.freedom == 6


def test_columns_that_say_the_same_leave_as_much_freedom_as_one_of_them() -> None:
    same = np.ones((5, 2))
    solved = LeastSquares(same, np.arange(5.0))
    assert solved.freedom == 4
    assert float(solved.squares) == pytest.approx(10)


# "Student", The probable error of a mean, 1908: by how many hours ten patients slept longer with one drug than another.
SLEEP = (1.2, 2.4, 1.3, 1.3, 0.0, 1.0, 1.8, 0.8, 4.6, 1.4)


def test_the_mean_of_students_own_patients_has_the_interval_of_the_textbooks() -> None:
    found = mean_estimate(SLEEP)
    assert found.value == pytest.approx(1.58)
    assert (found.low, found.high) == (pytest.approx(0.70, abs=0.01), pytest.approx(2.46, abs=0.01))


def test_two_values_tell_nothing_of_how_sure_their_mean_is() -> None:
    found = mean_estimate([1.0, 3.0])
    assert found.value == 2.0
    assert isnan(found.low)
    assert isnan(found.high)
