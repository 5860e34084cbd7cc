"""Whether workers exclude each other while they make batches: what they are seen to wait for, and how the time that a
batch takes follows the number of workers at work.

Workers that share a lock, a connection or a rate deliver together what one of them would: a batch takes twice as long
where two are at work. Workers that each wait by themselves take as long however many there are. A lock shows in looks
at their main threads besides: one works while the others stand in the same call.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from math import sqrt

import numpy as np
import numpy.typing as npt

from ...record.reader import Records
from ...record.schema import NOT_MEASURED, ThreadState
from ...record.stacks import CallStack
from ..intervals import clip, total, union
from ..statistics import Estimate, students_t, wilson
from ..where.looks import Looks, ProcessLooks
from ..where.places import own_part, place_of
from .window import Window
from .worker_records import within

Stamps = npt.NDArray[np.int64]

LOCKS = (ThreadState.FILE_LOCK, ThreadState.SHARED_LOCK)
_POLLED = re.compile(r"/site-packages/(?:filelock|portalocker|fasteners|lockfile)/")
LEAST_LOOKS = 12
"""Looks at workers that prepare batches, below which they tell nothing."""
FEWER = 0.75
"""Workers at work over how many are usually, up to which a batch tells what fewer of them do."""
LEAST_FEWER = 5
"""Such batches, below which the run's own changes in concurrency tell nothing."""
ALIKE = 0.4
"""Scatter of the times of batches made beside as many workers as usual (the standard deviation of their logarithms), up
to which they are alike."""
LEAST_EXCLUDED = 0.2
"""Share of the looks at making workers that wait for one lock, from which that is more than now and then."""
LEAST_QUEUE = 0.6
"""Workers that wait for it on average, from which it is held nearly all the time: two workers that do nothing else
come to 1."""
PROPORTIONAL = 0.65
"""Exponent of a batch's time over workers at work, from which more workers bring next to nothing."""
SURELY_GROWS = 0.4
"""The same as the least that the scatter allows."""


@dataclass(frozen=True)
class SeenWaiting:
    """What workers that prepare batches were seen to wait for."""

    looks: int
    """At workers that prepared batches."""
    lock: Estimate
    """Share of these that stood in the lock that most of them waited for, 0..1."""
    of_file: bool
    """Whether that is a file's lock."""
    at: str
    """The line of the user's that waits for it: `data.py:39`; empty without such looks."""
    elsewhere: int | None
    """`ThreadState` that most of the other looks saw: what is done by whoever holds the lock. `None` without any."""


@dataclass(frozen=True)
class TimeGrowth:
    """How the time that a batch takes follows the number of workers at work meanwhile."""

    exponent: Estimate
    """0: not at all, they are independent; 1: in proportion, together they deliver what one would."""
    fewer_ms: float
    """What a batch took with fewer workers at work than usual, the mean."""
    usual_ms: float
    """What the other batches took."""


@dataclass(frozen=True)
class Exclusion:
    """What is known of workers in each other's way."""

    together: float
    """Workers that prepare batches at a time, on average over the time in which any does."""
    waiting: SeenWaiting | None
    """`None` where stacks were not looked at, or too rarely."""
    growth: TimeGrowth | None
    """`None` where hardly any batch was made beside fewer workers than the others."""

    @property
    def waits_for_lock(self) -> bool:
        """Whether at nearly any time some worker waits for a lock that another one holds."""
        told = self.waiting
        return told is not None and told.lock.low >= LEAST_EXCLUDED and told.lock.value * self.together >= LEAST_QUEUE

    @property
    def grows(self) -> bool:
        """Whether a batch takes so much longer the more workers are at work that more of them bring next to nothing."""
        told = self.growth
        return told is not None and told.exponent.value >= PROPORTIONAL and told.exponent.low >= SURELY_GROWS

    @cached_property
    def alone(self) -> Estimate:
        """What preparing a batch would take without exclusion, over what it takes now, 0..1."""
        if self.waits_for_lock and self.waiting is not None:
            lock = self.waiting.lock
            return Estimate(1 - lock.value, 1 - lock.high, 1 - lock.low)
        if self.growth is None:
            return Estimate(1.0, 1.0, 1.0)
        exponent = self.growth.exponent
        least, most = exponent.low, exponent.high
        return Estimate(*(self.together ** -min(1.0, max(0.0, each)) for each in (exponent.value, most, least)))


def exclusion_of(window: Window, batches: Records, looks: ProcessLooks | None = None) -> Exclusion | None:
    """What the batches of several workers tell, and the looks at these where there are any; `None` of fewer workers.

    Args:
        batches: those of the loaders that train, with their steps (`worker_records.of_training`).
    """
    made = batches[(batches["worker"] != NOT_MEASURED) & (batches["threads"] <= 1)]
    counted = within(window, made)
    if len(np.unique(made["worker"][counted])) < 2:
        return None
    begin = made["begin_ns"] - np.maximum(0, made["skipped_ns"])
    spent = float((made["end_ns"] - begin)[counted].sum())
    first, last = int(begin[counted].min()), int(made["end_ns"][counted].max())
    any_ns = total(clip(union(begin, made["end_ns"]), first, last))
    return Exclusion(
        spent / any_ns if any_ns else 1.0,
        None if looks is None else _waiting(looks.making.between(window.begin_ns, window.end_ns)),
        _growth(made, begin, counted),
    )


def _together(begin: Stamps, end: Stamps, since: Stamps, until: Stamps) -> npt.NDArray[np.float64]:
    """How many batches were in the making, from their begins to their ends: the mean of each time [since, until), of
    which none is empty."""
    edges = np.concatenate((begin, end))
    order = np.argsort(edges, kind="stable")
    edges = edges[order]
    count = np.cumsum(np.where(order < len(begin), np.int8(1), np.int8(-1)), dtype=np.int64)[:-1]
    del order
    count *= np.diff(edges)
    summed = np.zeros(len(edges))
    np.cumsum(count, out=summed[1:])
    del count
    # As numpy.interp takes them: it would make copies for each call.
    edges = edges.astype(np.float64)
    found: npt.NDArray[np.float64] = np.interp(until, edges, summed)
    found -= np.interp(since, edges, summed)
    del edges, summed
    found /= until - since
    return found


def _growth(made: Records, begin: Stamps, counted: npt.NDArray[np.bool_]) -> TimeGrowth | None:
    """From whole batches; the first that a worker makes in a pass costs more, whoever is at work."""
    which = counted & (made["samples"] == made["samples"][counted].max()) & ~_firsts(made)
    which &= made["end_ns"] > made["begin_ns"]
    # Waiting for a CPU is no waiting for each other.
    queued = np.where(made["run_queue_ns"] == NOT_MEASURED, 0, made["run_queue_ns"])
    worked = (made["end_ns"] - made["begin_ns"] - queued)[which]
    which[which] = worked > 0
    together = _together(begin, made["end_ns"], made["begin_ns"][which], made["end_ns"][which])
    worked = worked[worked > 0].astype(np.float64)
    if len(worked) == 0:
        return None
    fewer = together <= FEWER * float(np.median(together))
    # Where batches differ by themselves, it is not chance which are made beside many others.
    if fewer.sum() < LEAST_FEWER or float(np.log(worked[~fewer]).std()) > ALIKE:
        return None
    exponent = _slope(np.log(together), np.log(worked))
    return TimeGrowth(exponent, float(worked[fewer].mean()) / 1e6, float(worked[~fewer].mean()) / 1e6)


def _slope(x: npt.NDArray[np.float64], y: npt.NDArray[np.float64]) -> Estimate:
    """Of a line by least squares, with an interval for scatter that need not be alike everywhere."""
    beside = x - x.mean()
    squares = float((beside**2).sum())
    slope = float((beside * y).sum()) / squares
    rest = y - y.mean() - slope * beside
    free = max(1, len(x) - 2)
    error = sqrt(float(((beside * rest) ** 2).sum()) * len(x) / free) / squares
    return Estimate.around(slope, students_t(free) * error)


def _firsts(made: Records) -> npt.NDArray[np.bool_]:
    """Which batches are the first of their worker in their pass over the data."""
    passes = np.where(made["batch"] == NOT_MEASURED, 0, made["batch"] >> 32)
    keys = (made["loader"], passes, made["worker"])
    order = np.lexsort((made["begin_ns"], *keys))
    firsts = np.zeros(len(made), dtype=bool)
    firsts[order[:1]] = True
    firsts[order[1:]] = np.any([key[order[1:]] != key[order[:-1]] for key in keys], axis=0)
    return firsts


def _waiting(making: Looks) -> SeenWaiting | None:
    told = making.states()
    looks = sum(count for state, count in told.items() if state != NOT_MEASURED)
    if looks < LEAST_LOOKS:
        return None
    of_files = (making.in_state(ThreadState.FILE_LOCK), making.where(_polls).in_state(ThreadState.SLEEP))
    of_all = (of_files, (making.in_state(ThreadState.SHARED_LOCK),))
    most = max(of_all, key=lambda parts: sum(map(len, parts)))
    lines: Counter[str] = Counter()
    for stack, count in chain.from_iterable(part.stacks() for part in most):
        if (found := place_of(stack)) is not None:
            lines[f"{found[0].file.rpartition('/')[2]}:{found[0].line}"] += count
    told[ThreadState.SLEEP] -= len(of_files[1])
    others = {state: told[state] for state in told if state not in (*LOCKS, NOT_MEASURED) and told[state] > 0}
    return SeenWaiting(
        looks,
        wilson(sum(map(len, most)) / looks, looks),
        most is of_files,
        max(lines, key=lambda line: lines[line], default=""),
        max(others, key=lambda state: others[state], default=None),
    )


def _polls(stack: CallStack) -> bool:
    """Whether a worker stands in a library's lock of a file: those try again and again, and sleep in between."""
    return any(_POLLED.search(call.file) for call in own_part(stack))
