"""Sets of time as sorted, disjoint intervals: int64 arrays `[n, 2]` of (begin, end) in ns, contiguous.

A day's training has millions of them: each function is a few of numpy's over all of it.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from ..record.schema import NOT_MEASURED

Intervals = npt.NDArray[np.int64]

EMPTY: Intervals = np.empty((0, 2), dtype=np.int64)
BLOCK = 1 << 16
"""Steps that are looked at together where single values of all of them would need much memory: half a megabyte each."""


def union(begin: npt.NDArray[np.int64], end: npt.NDArray[np.int64]) -> Intervals:
    """The set covered by intervals in any order, overlapping or not; empty ones vanish, and so do those of which a
    stamp was not measured."""
    keep = (end > begin) & (begin != NOT_MEASURED)
    if not keep.all():
        begin, end = begin[keep], end[keep]
    if len(begin) == 0:
        return EMPTY
    if (begin[1:] > end[:-1]).all():
        # As most are: in order, and apart.
        return _pairs(begin, end)
    if (begin[1:] < begin[:-1]).any():
        order = np.argsort(begin, kind="stable")
        begin, end = begin[order], end[order]
    reach = np.maximum.accumulate(end)
    starts = np.concatenate(([True], begin[1:] > reach[:-1]))
    last = np.concatenate((np.flatnonzero(starts)[1:] - 1, [len(begin) - 1]))
    return _pairs(begin[starts], reach[last])


def _pairs(begin: npt.NDArray[np.int64], end: npt.NDArray[np.int64]) -> Intervals:
    """`np.stack` along the last axis, at a third of its cost for the few intervals of a short recording."""
    pairs = np.empty((len(begin), 2), dtype=np.int64)
    pairs[:, 0], pairs[:, 1] = begin, end
    return pairs


def union_of(one: Intervals, other: Intervals) -> Intervals:
    """What either set covers."""
    if len(one) == 0 or len(other) == 0:
        return other if len(one) == 0 else one
    both = np.concatenate((one, other))
    return union(both[:, 0], both[:, 1])


def clip(intervals: Intervals, begin: int, end: int) -> Intervals:
    """The part within [begin, end)."""
    if len(intervals) == 0 or end <= begin:
        return EMPTY
    first = int(np.searchsorted(intervals[:, 1], begin, side="right"))
    stop = int(np.searchsorted(intervals[:, 0], end, side="left"))
    within = intervals[first:stop]
    if len(within) == 0 or (within[0, 0] >= begin and within[-1, 1] <= end):
        return within
    return np.clip(within, begin, end)


def complement(intervals: Intervals, begin: int, end: int) -> Intervals:
    """What of [begin, end) the set leaves out."""
    return subtract(np.array([[begin, end]]), intervals) if end > begin else EMPTY


def intersect(one: Intervals, other: Intervals) -> Intervals:
    """What both sets cover."""
    if len(one) == 0 or len(other) == 0:
        return EMPTY
    # For each interval of `one`, the run of intervals of `other` that overlap it.
    first = np.searchsorted(other[:, 1], one[:, 0], side="right")
    stop = np.searchsorted(other[:, 0], one[:, 1], side="left")
    counts = np.maximum(stop - first, 0)
    left = np.repeat(np.arange(len(one)), counts)
    within = np.arange(len(left)) - np.repeat(np.cumsum(counts) - counts, counts)
    right = first[left] + within
    return _pairs(np.maximum(one[left, 0], other[right, 0]), np.minimum(one[left, 1], other[right, 1]))


def subtract(one: Intervals, other: Intervals) -> Intervals:
    """What of `one` the other set leaves out."""
    if len(one) == 0 or len(other) == 0:
        return one
    begin, end = int(one[0, 0]), int(one[-1, 1])
    inside = clip(other, begin, end)
    starts = np.concatenate(([begin], inside[:, 1]))
    ends = np.concatenate((inside[:, 0], [end]))
    keep = ends > starts
    return intersect(one, _pairs(starts[keep], ends[keep]))


def total(intervals: Intervals) -> int:
    """Covered time, ns."""
    return int((intervals[:, 1] - intervals[:, 0]).sum())


def covered(intervals: Intervals, begin: npt.NDArray[np.int64], end: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """How much of each stretch [begin, end) the set covers, ns; 0 of empty ones."""
    if len(intervals) == 0:
        return np.zeros(len(begin), dtype=np.int64)
    before = np.concatenate(([0], np.cumsum(intervals[:, 1] - intervals[:, 0])))

    def until(at: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        place = np.searchsorted(intervals[:, 0], at, side="right")
        last = np.maximum(place - 1, 0)
        into = np.minimum(at, intervals[last, 1]) - intervals[last, 0]
        return np.where(place > 0, before[last] + np.maximum(0, into), 0)

    return np.where(end > begin, until(end) - until(begin), 0)


def inside(intervals: Intervals, at: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Which of these moments the set covers."""
    if len(intervals) == 0:
        return np.zeros(len(at), dtype=bool)
    place = np.searchsorted(intervals[:, 0], at, side="right") - 1
    return np.asarray((place >= 0) & (at < intervals[np.maximum(place, 0), 1]))


def blocks(count: int) -> Iterator[slice]:
    """So many things in blocks, one after the other."""
    for first in range(0, count, BLOCK):
        yield slice(first, min(count, first + BLOCK))
