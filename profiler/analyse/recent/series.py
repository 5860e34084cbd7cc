"""What was measured at odd times, on a grid of whole seconds."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ...record.reader import Records
from ...record.schema import NOT_MEASURED
from ..causes.diagnosis import LEAST_STEPS
from .snapshot import Series

RECENT_NS = 10_000_000_000
"""Length of the stretch that a live view's shares, rates and throughput are of; longer where it holds fewer steps than
a verdict needs."""
MOST_STEPS = 2000
"""Steps of that stretch that are judged, at most."""
STEPS_BEFORE = 128
"""Steps before the stretch that are read for what of them reaches into it: more than a device can be behind."""
MOST_LOOKED_AT = MOST_STEPS + 2 * STEPS_BEFORE
"""Steps that a look reads at most: those judged, those before them, and as many that the device has still to do."""
HISTORY_S = 240
"""Seconds that a series of the host or of a device goes back, a value a second."""
MAKERS_S = 60
"""Seconds that the series of a maker of batches goes back, a value a second."""


def last_steps(steps: Records) -> Records:
    """No more than is judged: the recent ones, those before them, and as many that the device has still to do."""
    steps = steps[-MOST_LOOKED_AT:]
    late = int((steps["fetch_begin_ns"] >= steps["step_end_ns"][-1:] - RECENT_NS).sum()) if len(steps) else 0
    return steps[-max(late, LEAST_STEPS) - 2 * STEPS_BEFORE :]


SECOND_NS = 1_000_000_000
LAG_NS = SECOND_NS
"""How much later than it was measured a value that a driver keeps in a ring is recorded, about."""
HELD_NS = 2_500_000_000
"""Time before it that a reading stands for, at most: since the reading before, where that is nearer."""

Stamps = npt.NDArray[np.int64]
Values = npt.NDArray[np.float64]


def grid(now_ns: int, lag_ns: int = LAG_NS, count: int = HISTORY_S) -> Stamps:
    """Edges of the last whole seconds that are surely recorded, ns; seconds of the clock, so that bars do not jump."""
    last = (now_ns - lag_ns) // SECOND_NS
    return np.arange(last - count, last + 1, dtype=np.int64) * SECOND_NS


def means(begin: Stamps, end: Stamps, value: Values, edges: Stamps) -> Values:
    """The mean of a value over as much of each second as its stretches cover; NaN where they cover none of it.

    Args:
        begin, end, value: stretches in the order of their ends, ns; what overlaps an earlier one counts there. Values
            are not negative.
    """
    nothing = np.full(len(edges) - 1, np.nan)
    if len(begin) == 0:
        return nothing
    begin = np.maximum(begin, np.concatenate((begin[:1], np.maximum.accumulate(end)[:-1])))
    known = (end > begin) & ~np.isnan(value) & (end > edges[0]) & (begin < edges[-1])
    if not known.any():
        return nothing
    length = (end[known] - begin[known]).astype(np.float64)
    points = in_turn(begin[known] - edges[0], end[known] - edges[0])
    covered, weighted = (_rising(points, by, edges) for by in (length, length * value[known]))
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(covered > 0, np.maximum(0.0, weighted) / covered, np.nan)


def sums(begin: Stamps, end: Stamps, amount: Values, edges: Stamps) -> Values:
    """How much falls into each second of what came evenly over stretches, which are in order and do not overlap."""
    points = in_turn(begin - edges[0], end - edges[0])
    return np.maximum(0.0, _rising(points, amount, edges)) if len(points) else np.zeros(len(edges) - 1)


def held(times: Stamps, readings: Stamps, edges: Stamps) -> Values:
    """Readings of something that lasts, in order: each stands for the time since the one before."""
    known = readings != NOT_MEASURED
    times, values = times[known], readings[known].astype(np.float64)
    since = np.maximum(times - HELD_NS, np.concatenate((times[:1] - SECOND_NS, times[:-1])))
    return means(since, times, values, edges)


def rates(times: Stamps, counter: Stamps, edges: Stamps) -> Values:
    """What a cumulative counter rose by, a second; nothing is known of the time in which it fell: it was reset."""
    known = counter != NOT_MEASURED
    times, counter = times[known], counter[known]
    if len(times) < 2:
        return np.full(len(edges) - 1, np.nan)
    rise = np.diff(counter).astype(np.float64)
    took = np.diff(times)
    rate = np.where((rise >= 0) & (took > 0), rise * SECOND_NS / np.maximum(1, took), np.nan)
    return means(times[:-1], times[1:], rate, edges)


def rate_since(times: Stamps, counter: Stamps, since_ns: int) -> float | None:
    """How fast a cumulative counter rose since some moment, a second; `None` with fewer than two readings, or where it
    was reset."""
    known = (counter != NOT_MEASURED) & (times >= since_ns)
    times, counter = times[known], counter[known]
    if len(times) < 2 or times[-1] <= times[0] or (np.diff(counter) < 0).any():
        return None
    return float(counter[-1] - counter[0]) * SECOND_NS / float(times[-1] - times[0])


def last_of(values: Stamps) -> int | None:
    """The last that was measured."""
    known = np.flatnonzero(values != NOT_MEASURED)
    return int(values[known[-1]]) if len(known) else None


def mean_of(values: Values) -> float | None:
    """Of what was measured."""
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else None


def told(values: Values) -> Series:
    """A series as a snapshot holds it; empty where nothing was measured."""
    return () if np.isnan(values).all() else tuple(values.tolist())


def in_turn(one: npt.NDArray[Any], other: npt.NDArray[Any]) -> Values:
    """One of these, one of those, and so on."""
    both = np.empty(2 * len(one))
    both[0::2], both[1::2] = one, other
    return both


def _rising(points: Values, amounts: Values, edges: Stamps) -> Values:
    """How much a sum rises within each second that grows by an amount over each stretch (pairs of points)."""
    until = np.cumsum(amounts)
    at = np.interp(edges - edges[0], points, in_turn(until - amounts, until))
    return np.asarray(at[1:] - at[:-1])
