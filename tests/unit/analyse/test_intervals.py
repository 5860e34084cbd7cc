"""Interval sets against a slow and obvious implementation."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from whyidle.analyse.intervals import Intervals, clip, complement, covered, intersect, subtract, total, union, union_of
from whyidle.record.schema import NOT_MEASURED

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


@given(spans)
def test_union_covers_what_any_covers(pairs: list[tuple[int, int]]) -> None:
    assert ticks_of(made(pairs)) == ticks(pairs)
    assert total(made(pairs)) == len(ticks(pairs))


@given(spans, spans)
def test_union_intersection_and_difference(one: list[tuple[int, int]], other: list[tuple[int, int]]) -> None:
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


def test_stamps_of_records_lie_apart() -> None:
    records = np.zeros(50, dtype=[("seq", "i8"), ("begin_ns", "i8"), ("end_ns", "i8")])
    records["begin_ns"] = np.arange(0, 500, 10)
    records["end_ns"] = records["begin_ns"] + 4
    whole = union(records["begin_ns"], records["end_ns"])
    assert whole.tolist() == [[at, at + 4] for at in range(0, 500, 10)]
    # Far apart in the set, forwards and backwards.
    order = np.tile([0, 49, 1, 25], 3)
    assert covered(whole, records["begin_ns"][order], records["end_ns"][order]).tolist() == [4] * 12


def test_long_stretches_are_summed_up() -> None:
    begin = np.arange(0, 10_000, 10)
    whole = union(begin, begin + 4)
    stretches = [(0, 10_000), (5, 9_991), (12, 503), (-9, 20_000), (9_990, 9_991), (7, 170)]
    first, last = np.array(stretches).T
    assert covered(whole, first, last).tolist() == [
        sum(max(0, min(e, at + 4) - max(b, at)) for at in begin.tolist()) for b, e in stretches
    ]
