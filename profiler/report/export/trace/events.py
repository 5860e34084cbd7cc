"""Trace events (the Trace Event Format's JSON), and tracks that make them when asked for.

Times are µs with three digits after the point, so that nanoseconds are kept. Complete events ("X") of one track
never overlap: what does gets a track of its own beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from ....record.files import plain

Event = dict[str, Any]
Stamps = npt.NDArray[np.int64]
"""ns since the zero of the trace."""
Make = Callable[[int], Iterator[Event]]


@dataclass(frozen=True)
class EventSource:
    """Events to be written in order of time: number `i` of them is due at `at_ns[i]`, and made when it is written."""

    at_ns: Stamps
    """Ascending."""
    make: Make


@dataclass
class Tracks:
    """Processes and threads of a trace, each said once. Numbers are made up; the names tell the real ones."""

    metadata: list[Event] = field(default_factory=list)
    sources: list[EventSource] = field(default_factory=list)
    _numbers: int = 0
    _flows: int = 0

    def process(self, name: str) -> int:
        self._numbers += 1
        pid = self._numbers
        self._say(pid, 0, "process_name", {"name": str(plain(name))})
        self._say(pid, 0, "process_sort_index", {"sort_index": pid})
        return pid

    def thread(self, pid: int, name: str) -> int:
        self._numbers += 1
        tid = self._numbers
        self._say(pid, tid, "thread_name", {"name": str(plain(name))})
        self._say(pid, tid, "thread_sort_index", {"sort_index": tid})
        return tid

    def add(self, at_ns: Stamps, make: Make) -> None:
        """`at_ns` in any order; `make` gets the place in it."""
        if len(at_ns) == 0:
            return
        order = np.argsort(at_ns, kind="stable")
        self.sources.append(EventSource(at_ns[order], lambda i: make(int(order[i]))))

    def slices(
        self,
        pid: int,
        name: str,
        begin: Stamps,
        end: Stamps,
        label: Callable[[int], str],
        args: Callable[[int], dict[str, Any]] | None = None,
    ) -> npt.NDArray[np.int64]:
        """Complete events: on one track, or on as many as it takes that none overlap. The track of each."""
        if len(begin) == 0:
            return np.empty(0, dtype=np.int64)
        lanes = lanes_of(begin, end)
        tids = np.array(
            [self.thread(pid, name if n == 0 else f"{name} ({n + 1})") for n in range(int(lanes.max()) + 1)]
        )
        threads = np.asarray(tids[lanes], dtype=np.int64)

        def make(i: int) -> Iterator[Event]:
            told = args(i) if args is not None else None
            yield complete(pid, int(threads[i]), int(begin[i]), int(end[i]), label(i), told)

        self.add(begin, make)
        return threads

    def counter(self, pid: int, name: str, unit: str, at: Stamps, values: npt.NDArray[np.float64]) -> None:
        """What was not measured (NaN) makes no event: viewers go on showing the value before."""
        known = np.isfinite(values)
        at, values = at[known], values[known]

        def make(i: int) -> Iterator[Event]:
            told = {unit: round(float(values[i]), 6)}
            yield {"ph": "C", "pid": pid, "tid": 0, "ts": us(int(at[i])), "name": name, "args": told}

        self.add(at, make)

    def flow(self) -> int:
        """A number that no other flow has."""
        self._flows += 1
        return self._flows

    def _say(self, pid: int, tid: int, what: str, args: dict[str, Any]) -> None:
        self.metadata.append({"ph": "M", "pid": pid, "tid": tid, "ts": 0, "name": what, "args": args})


def us(ns: int) -> float:
    return ns / 1000


def complete(
    pid: int, tid: int, begin_ns: int, end_ns: int, name: str, args: dict[str, Any] | None = None, category: str = ""
) -> Event:
    event: Event = {
        "ph": "X",
        "pid": pid,
        "tid": tid,
        "ts": us(begin_ns),
        "dur": us(end_ns - begin_ns),
        "name": str(plain(name)),
    }
    if category:
        event["cat"] = category
    if args:
        event["args"] = known(args)
    return event


def instant(pid: int, tid: int, at_ns: int, name: str) -> Event:
    return {"ph": "i", "s": "p", "pid": pid, "tid": tid, "ts": us(at_ns), "name": str(plain(name))}


def known(args: dict[str, Any]) -> dict[str, Any]:
    """What was not measured is left out; texts cannot act on a terminal."""
    return {name: plain(value) for name, value in args.items() if value is not None}


def lanes_of(begin: Stamps, end: Stamps) -> npt.NDArray[np.int64]:
    """For each slice the first lane on which nothing overlaps it, in order of their begins."""
    lanes = np.zeros(len(begin), dtype=np.int64)
    order = np.lexsort((end, begin))
    if (begin[order][1:] >= end[order][:-1]).all():
        return lanes
    free: list[int] = []
    for place in order.tolist():
        starts, ends = int(begin[place]), int(end[place])
        lane = next((n for n, until in enumerate(free) if until <= starts), len(free))
        if lane == len(free):
            free.append(ends)
        else:
            free[lane] = ends
        lanes[place] = lane
    return lanes


def overlapping(begin: Stamps, end: Stamps, low: int, high: int) -> npt.NDArray[np.bool_]:
    """Which of these stretches reach into [low, high)."""
    return np.asarray((begin < high) & (end >= low) & (end >= begin))
