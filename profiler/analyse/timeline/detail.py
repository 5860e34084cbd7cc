"""Which stretches of a long run are kept in full, and which batches beside them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from ..intervals import Intervals, covered, union
from .bins import idle_of, parts_of
from .timeline import Timeline

Stamps = npt.NDArray[np.int64]

SEARCHED = 2000
"""Bins among which the worst stretch is looked for."""


@dataclass(frozen=True)
class DetailSpan:
    begin_ns: int
    end_ns: int
    why: str
    """`whole`, `begin`, `worst` or `end`."""


def stretches_of(timeline: Timeline, budget: int) -> list[DetailSpan]:
    """What can be shown span by span with about `budget` spans and batches: the whole window if it has no more, else
    its begin, its end, and where the device idled most, a third each. By time, without overlap.
    """
    begins = [spans[:, 0] for spans in timeline.parts.values()]
    begins += [timeline.steps["fetch_begin_ns"], timeline.lanes.batches["begin_ns"]]
    at = _Begins(begins, timeline.begin_ns, timeline.end_ns)
    if len(at) <= budget:
        return [DetailSpan(timeline.begin_ns, timeline.end_ns, "whole")]
    third = max(1, budget // 3)
    begin, end = at.numbers(np.array([third, len(at) - third])).tolist()
    first = DetailSpan(timeline.begin_ns, begin, "begin")
    last = DetailSpan(end, timeline.end_ns, "end")
    worst = _worst(timeline, at, third, first.end_ns, last.begin_ns)
    return [first, last] if worst is None else [first, worst, last]


class _Begins:
    """Moments of several kinds as if they were sorted together: of a day there are millions, and few are asked for."""

    def __init__(self, kinds: Sequence[Stamps], begin: int, end: int) -> None:
        """Those within [begin, end)."""
        in_order = (each if (each[1:] >= each[:-1]).all() else np.sort(each) for each in kinds)
        self._kinds = [np.ascontiguousarray(each[slice(*np.searchsorted(each, (begin, end)))]) for each in in_order]
        self._from, self._to = begin, end

    def __len__(self) -> int:
        return sum(map(len, self._kinds))

    def before(self, at: Stamps, side: Literal["left", "right"] = "left") -> Stamps:
        """How many there are before these moments; to the `right`, with those at them."""
        found = np.zeros(len(at), dtype=np.int64)
        for each in self._kinds:
            found += np.searchsorted(each, at, side=side)
        return found

    def numbers(self, which: Stamps) -> Stamps:
        """Those of these numbers, from 0 on, in the order of time."""
        low, high = np.full(len(which), self._from), np.full(len(which), self._to)
        while (low < high).any():
            middle = (low + high) // 2
            enough = self.before(middle, "right") > which
            low, high = np.where(enough, low, middle + 1), np.where(enough, middle, high)
        return low


def _worst(timeline: Timeline, at: _Begins, count: int, begin: int, end: int) -> DetailSpan | None:
    """Within [begin, end), the stretch of so many spans in which the device idled most for its length."""
    edges_ns, parts = parts_of(timeline, SEARCHED)
    room = np.flatnonzero((edges_ns[:-1] >= begin) & (edges_ns[1:] <= end))
    if len(room) == 0:
        return None
    from_ns = edges_ns[room]
    until = np.minimum(at.numbers(np.minimum(at.before(from_ns) + count, len(at) - 1)), end)
    so_far = np.concatenate(([0], np.cumsum(idle_of(parts, len(edges_ns) - 1)))).astype(np.float64)
    idle = np.interp(until, edges_ns, so_far) - np.interp(from_ns, edges_ns, so_far)
    length = until - from_ns
    share = np.where(length > 0, idle / np.maximum(length, 1), -1)
    best = int(np.argmax(share))
    return DetailSpan(int(from_ns[best]), int(until[best]), "worst") if share[best] > 0 else None


def overlapping(begin_ns: Stamps, end_ns: Stamps, stretches: list[DetailSpan]) -> npt.NDArray[np.bool_]:
    """Which of the spans reach into one of the stretches."""
    inside = np.zeros(len(begin_ns), dtype=bool)
    for stretch in stretches:
        inside |= (end_ns > stretch.begin_ns) & (begin_ns < stretch.end_ns)
    return inside


def kept_spans(spans: Intervals, stretches: list[DetailSpan]) -> Intervals:
    return spans[overlapping(spans[:, 0], spans[:, 1], stretches)]


def kept_batches(timeline: Timeline, stretches: list[DetailSpan], further: int) -> Stamps:
    """Places in `timeline.lanes.batches`: all of the stretches, and of the others those that held up the training
    longest and those that took longest, at most `further` together."""
    lanes = timeline.lanes
    begin, end = lanes.batches["begin_ns"], lanes.batches["end_ns"]
    chosen = overlapping(begin, end, stretches)
    # What was made for the warm-up, and for steps that did not come, lies beside the window: there is little of it.
    chosen |= (end <= timeline.begin_ns) | (begin >= timeline.end_ns)
    within = (end > timeline.begin_ns) & (begin < timeline.end_ns)
    for telling in (lanes.blocked_end_ns - lanes.blocked_begin_ns, end - begin):
        others = np.flatnonzero(within & ~chosen & (telling > 0))
        chosen[others[np.argsort(telling[others])[::-1][: further // 2]]] = True
    return np.flatnonzero(chosen)


def busy_of_workers(timeline: Timeline, count: int) -> dict[int, npt.NDArray[np.float64]]:
    """Maker → the share of each of `count` equal bins of the window in which it made batches, 0..1."""
    edges = np.linspace(timeline.begin_ns, timeline.end_ns, count + 1).astype(np.int64)
    batches = timeline.lanes.batches
    busy = {}
    for worker in timeline.lanes.workers:
        mine = batches[batches["worker"] == worker]
        made = covered(union(mine["begin_ns"], mine["end_ns"]), edges[:-1], edges[1:])
        busy[worker] = made / np.maximum(1, np.diff(edges))
    return busy
