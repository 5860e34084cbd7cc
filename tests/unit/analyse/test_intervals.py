"""Interval sets against a slow and obvious implementation."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from whyidle.analyse.intervals import Intervals, clip, complement, intersect, subtract, total, union

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
def test_intersection_and_difference(one: list[tuple[int, int]], other: list[tuple[int, int]]) -> None:
    assert ticks_of(intersect(made(one), made(other))) == ticks(one) & ticks(other)
    assert ticks_of(subtract(made(one), made(other))) == ticks(one) - ticks(other)


@given(spans, st.integers(0, 60), st.integers(0, 60))
def test_clip_and_complement_share_the_window(pairs: list[tuple[int, int]], begin: int, end: int) -> None:
    window = set(range(begin, end))
    assert ticks_of(clip(made(pairs), begin, end)) == ticks(pairs) & window
    assert ticks_of(complement(made(pairs), begin, end)) == window - ticks(pairs)
