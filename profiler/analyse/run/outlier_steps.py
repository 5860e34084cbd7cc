"""Steps that computed longer than the others because of something that is known to have happened in them.

Which stretch of time belongs to which step, to compare steps with each other.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ...record.reader import Records
from ...record.schema import NOT_MEASURED, EventKind, StepFlag
from ..intervals import Intervals, clip, covered, intersect, subtract, total, union
from .events import lasting, under_way
from .stall_breakdown import Partition
from .window import Window

Stamps = npt.NDArray[np.int64]


def spans_of(window: Window, asynchronous: bool) -> tuple[Stamps, Stamps]:
    """Begin and end of each step of the window; empty where they are not known.

    On a device with a queue a step lasts from the end of the computation before it to the end of its own: with what the
    device idled before it could compute. Elsewhere from its fetch to the next.
    """
    steps = window.steps
    if not asynchronous:
        return steps["fetch_begin_ns"], steps["step_end_ns"]
    ends = window.all_steps["device_end_ns"]
    known = np.where(ends == NOT_MEASURED, window.begin_ns, ends)
    before = np.maximum.accumulate(np.concatenate(([window.begin_ns], known)))[-len(steps) - 1 : -1]
    end = steps["device_end_ns"]
    # Steps that were let pass lie before this one: only its own computation is known to be its.
    alone = (steps["skipped"] > 0) & (steps["device_begin_ns"] != NOT_MEASURED)
    begin = np.where(alone, steps["device_begin_ns"], before)
    return np.where(end == NOT_MEASURED, 0, begin), np.where(end == NOT_MEASURED, 0, end)


def per_step(window: Window, intervals: Intervals, asynchronous: bool) -> npt.NDArray[np.float64]:
    """How much of each step's span the set covers, ns."""
    return covered(intervals, *spans_of(window, asynchronous)).astype(np.float64)


LEAST_OTHERS = 3
"""Ordinary steps that odd ones are compared with, at least."""
LEAST_OTHERS_SHARE = 0.1
"""Ordinary steps for each odd one, at least."""
LEAST_TIMES = 1.5
"""Time of a step with new shapes over what its size explains, from which it is slow for being new."""
SIZE_EXPLAINS = 2
"""Power of a batch's size by which its step may take longer than another: attention is quadratic."""
MOST_RETRIED = 0.7
"""Retries a step up to which the slowest steps are taken for those that retried; with more, nearly every step did."""
CLEARLY_SLOWER = 1.2
"""Time of the steps that retried over that of others, from which they are taken for those, where nothing but their
length tells them."""
LEAST_IDLE = 0.05
"""Share of the time that the device idles within the steps, by the driver's utilisation, from which retries at nearly
every step are its reason. Less than `UTILISATION_BELOW`, since here something is known to have happened."""
LOOKS_NS = 250_000_000
"""How long a retry of the allocator lies before it is told, at most: it is asked up to 5 times a second."""

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class OutlierSteps:
    """Steps that computed longer than others, and what they cost beyond ordinary ones, ns over the window."""

    hit: int
    """Steps that are so."""
    of: int
    """Steps that were looked at."""
    compute_ns: float
    """Time they cost while the device computed."""
    host_ns: float
    """Time they cost while the device idled behind the host."""
    times: float | None
    """An odd step's computation over that of an ordinary one, or over what its size explains where that is more;
    medians. `None` without ordinary ones."""
    longest_ns: float
    """Computation of the longest odd step."""
    usual_ns: float | None
    """Computation of an ordinary step, the median; `None` without any."""
    count: int = 0
    """How often the allocator tried again, or the compiler was at work."""
    compiling_ns: float = 0.0
    """Part of `compute_ns` and `host_ns` in which torch's compiler was at work."""

    @property
    def total_ns(self) -> float:
        return self.compute_ns + self.host_ns


def shape_churn(window: Window, events: Records, parts: Partition, asynchronous: bool) -> OutlierSteps | None:
    """Steps with input shapes not seen before, or in which torch's compiler was at work; `None` if there are none.

    New shapes count as far as they take longer than their size explains: unusual lengths are both new and long.
    """
    flags = window.steps["flags"]
    elements = (flags >> StepFlag.ELEMENTS_SHIFT) & StepFlag.MOST_ELEMENTS
    new = (flags & StepFlag.NEW_SHAPE) != 0
    compiling = subtract(_lasting(window, events, EventKind.COMPILE), _lasting(window, events, EventKind.BOUNDARY))
    compiled = per_step(window, compiling, asynchronous) > 0
    known = ((flags & StepFlag.SHAPE_KNOWN) != 0) | compiled
    direct = (
        parts.of_all_steps("compute", float(total(intersect(compiling, parts.computing)))),
        parts.of_all_steps("host", float(total(intersect(compiling, parts.hosting)))),
    )
    count = len(compiling)
    ordinary = ~new & ~compiled & (known | compiled.any())
    sized = ordinary & (elements > 0)
    odd, explained = compiled, np.ones(len(elements))
    if sized.any():
        larger = np.maximum(1.0, elements / np.median(elements[sized]))
        odd, explained = compiled | (new & (elements > 0)), np.where(compiled, 1.0, larger**SIZE_EXPLAINS)
    if not odd.any():
        return None
    found = _beyond(window, parts, odd, ordinary, asynchronous, explained)
    if found is not None and (found.times is None or found.times < LEAST_TIMES):
        found = None
    if found is None or (not asynchronous and sum(direct) > found.total_ns):
        # Work that the device had queued meanwhile is not told from the compiler's time.
        times, usual = (None, None) if found is None else (found.times, found.usual_ns)
        longest = float(covered(compiling, *_ends(compiling)).max(initial=0))
        found = OutlierSteps(int(compiled.sum()), len(odd), *direct, times, longest, usual)
    return _with(found, count, min(sum(direct), found.total_ns)) if found.total_ns > 0 else None


def memory_pressure(
    window: Window, events: Records, parts: Partition, asynchronous: bool, utilisation_pct: float | None = None
) -> OutlierSteps | None:
    """Steps around the allocator's retries; `None` if there were none, or nothing to compare with.

    Where nearly every step retries, what the device idles behind the host, and within the steps by the driver's
    utilisation, is taken for it.
    """
    told = events[events["what"] == EventKind.ALLOCATOR_RETRIES]
    told = told[np.argsort(told["t_ns"], kind="stable")]
    grew = np.diff(told["value"], prepend=0)
    begin = np.maximum(told["t_ns"] - LOOKS_NS, np.concatenate((told["t_ns"][:1] - LOOKS_NS, told["t_ns"][:-1])))
    counted = (grew > 0) & (told["t_ns"] > window.begin_ns) & (told["t_ns"] <= window.end_ns)
    if not counted.any():
        return None
    looks = union(begin[counted], told["t_ns"][counted])
    steps = window.steps
    near = covered(looks, steps["fetch_begin_ns"], np.maximum(steps["step_end_ns"], steps["fetch_begin_ns"] + 1)) > 0
    retries = int(grew[counted].sum())
    found = _beyond(window, parts, near, ~near, asynchronous)
    both = per_step(window, parts.computing, asynchronous) + per_step(window, parts.hosting, asynchronous)
    if found is None and retries <= MOST_RETRIED * len(near):
        # Told so often that no step is far from one: as many of the slowest as there were retries.
        near = np.zeros(len(both), dtype=bool)
        near[np.argsort(both)[-retries:]] = True
        found = _beyond(window, parts, near, ~near, asynchronous)
        if found is not None and (found.times or 0.0) < CLEARLY_SLOWER:
            return None
    if found is None and retries > MOST_RETRIED * len(near):
        idle = 0.0 if utilisation_pct is None else parts.share("compute") - utilisation_pct / 100
        within = idle * parts.wall_ns if idle >= LEAST_IDLE else 0.0
        found = OutlierSteps(len(near), len(near), within, float(parts.host_ns), None, float(both.max()), None)
    if found is None or found.total_ns <= 0:
        return None
    return _with(OutlierSteps(**{**vars(found), "hit": min(found.hit, retries)}), retries, 0.0)


def _beyond(
    window: Window,
    parts: Partition,
    odd: Mask,
    ordinary: Mask,
    asynchronous: bool,
    explained: npt.NDArray[np.float64] | None = None,
) -> OutlierSteps | None:
    """The odd steps against the median of the ordinary ones; `None` with too few of either.

    `explained`: how many times as long as that each step may take without being odd; by default once.
    """
    computing = per_step(window, parts.computing, asynchronous)
    behind = per_step(window, parts.hosting, asynchronous)
    stamped = (window.steps["device_end_ns"] != NOT_MEASURED) | np.bool_(not asynchronous)
    odd, ordinary = odd & stamped, ordinary & stamped
    if not odd.any() or ordinary.sum() < max(LEAST_OTHERS, LEAST_OTHERS_SHARE * len(odd)):
        return None
    times_usual = np.ones(int(odd.sum())) if explained is None else explained[odd]
    beyond = {}
    for part, lengths in (("compute", computing), ("host", behind)):
        rest = lengths[odd] - times_usual * np.median(lengths[ordinary])
        # Where it is a bound, what stays below it makes up for nothing.
        seen = float(np.where(times_usual > 1, np.maximum(0.0, rest), rest).sum())
        # Of steps that nobody looked at, nothing is known to be odd.
        beyond[part] = max(0.0, seen)
    both = computing + behind
    usual = float(np.median(both[ordinary]))
    times = float(np.median(both[odd] / times_usual)) / usual if usual > 0 else None
    return OutlierSteps(
        int(odd.sum()), len(odd), beyond["compute"], beyond["host"], times, float(both[odd].max()), usual
    )


def _with(found: OutlierSteps, count: int, compiling_ns: float) -> OutlierSteps:
    return OutlierSteps(**{**vars(found), "count": count, "compiling_ns": compiling_ns})


def _lasting(window: Window, events: Records, what: int) -> Intervals:
    return clip(under_way(lasting(events, what)), window.begin_ns, window.end_ns)


def _ends(intervals: Intervals) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    return intervals[:, 0], intervals[:, 1]
