"""Which stretches of the window nobody looked at: steps that were let pass, or that have no device stamps.

On a device with a queue the stretches are cut on the device's clock. Between the ends of two successive steps
everything is known. Where steps between them have no stamps, nothing is known from the end of the one until the
device had done all that was queued before the other (`device_before_ns`).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ...record.reader import Records
from ...record.schema import NOT_MEASURED, StepFlag
from ..intervals import EMPTY, Intervals, clip, union, union_of
from .window import Window

TOLERANCE_NS = 100_000
"""Time between putting a mark into the device's queue and its reaching it, from which it was at work in between."""
CLOCKS_APART_NS = 1_000_000
"""Time by which the device's stamps and its own word about being done may differ before they contradict each other:
between a step's begin and the question lie a clock reading and, now and then, the scheduler."""


def unseen_of(window: Window, asynchronous: bool) -> tuple[Intervals, Intervals, int]:
    """(stretches nobody looked at, those of them in which the device surely computed, steps without stamps).

    The second: where steps got no marks because the device was many steps behind, it had work all the while.
    """
    steps = window.all_steps
    if not asynchronous:
        told = np.ones(len(steps), dtype=bool)
        until = np.where(steps["skipped_end_ns"] != NOT_MEASURED, steps["skipped_end_ns"], steps["fetch_begin_ns"])
        return _unseen(window, told, np.arange(len(steps)), steps["step_end_ns"], until), EMPTY, 0
    stamped = steps["device_end_ns"] != NOT_MEASURED
    dropped = (steps["flags"] & StepFlag.MARKS_DROPPED) != 0
    # A step that computed nothing has nothing to stamp: of it all is known.
    told = stamped | ((steps["flags"] & StepFlag.COMPUTED_NOTHING) != 0)
    unresolved = int((~told & ~dropped)[len(steps) - len(window.steps) :].sum())
    kept = np.flatnonzero(stamped)
    if len(kept) == 0:
        return EMPTY, EMPTY, unresolved
    before = steps["device_before_ns"]
    known_from = np.where(before != NOT_MEASURED, before, steps["device_begin_ns"])
    unseen = _unseen(window, told, kept, steps["device_end_ns"], known_from)
    computing = _between(window, kept, steps["device_end_ns"], known_from, _behind(steps, dropped, kept))
    last = int(kept[-1])
    if window.device_done_ns is not None and last < len(steps) - 1 and dropped[last + 1 :].all():
        computing = union_of(computing, np.array([[steps["device_end_ns"][last], window.device_done_ns]]))
    return unseen, clip(computing, window.begin_ns, window.end_ns), unresolved


def disagreeing(window: Window) -> int:
    """How many steps of the window contradict, by their device stamps, what the device itself said around the fetch.

    Drained means that the step before had ended; not drained, that it had not. Both are told without any clock, so
    they check the alignment of the device's clock to the host's.
    """
    # The step before the window's first tells of that one, too.
    steps = window.all_steps[-len(window.steps) - 1 :]
    follows = np.flatnonzero(np.diff(steps["step"]) == 1)
    before, after = steps[follows], steps[follows + 1]
    usable = (before["device_end_ns"] != NOT_MEASURED) & ((after["flags"] & StepFlag.DRAINED_KNOWN) != 0)
    ended, after = before["device_end_ns"][usable], after[usable]
    wrong = np.zeros(len(after), dtype=bool)
    for flag, asked in ((StepFlag.DRAINED_AT_ENTRY, "fetch_begin_ns"), (StepFlag.DRAINED_AT_EXIT, "fetch_end_ns")):
        drained = (after["flags"] & flag) != 0
        known = after[asked] != NOT_MEASURED
        late = ended - after[asked]
        wrong |= known & ((drained & (late > CLOCKS_APART_NS)) | (~drained & (late < -CLOCKS_APART_NS)))
    return int(wrong.sum())


def _unseen(
    window: Window,
    told: npt.NDArray[np.bool_],
    kept: npt.NDArray[np.int64],
    end: npt.NDArray[np.int64],
    begin: npt.NDArray[np.int64],
) -> Intervals:
    """The stretches around the kept steps that no step tells of."""
    steps = window.all_steps
    if told.all() and not steps["skipped"].any():
        after = np.array([[end[kept[-1]], window.end_ns]])
        return clip(after, window.begin_ns, window.end_ns) if window.skipped_after else EMPTY
    missing = np.concatenate(([0], np.cumsum(~told)))
    passed = np.concatenate(([0], np.cumsum(steps["skipped"])))
    one, other = kept[:-1], kept[1:]
    apart = (missing[other] > missing[one + 1]) | (passed[other + 1] > passed[one + 1])
    inner = _between(window, kept, end, begin, apart)
    edges = []
    if missing[kept[0]] > 0:
        edges.append((window.begin_ns, int(begin[kept[0]])))
    if missing[-1] > missing[kept[-1] + 1] or window.skipped_after:
        edges.append((int(end[kept[-1]]), window.end_ns))
    outer = np.array(edges, dtype=np.int64).reshape(-1, 2)
    spans = np.concatenate((inner, outer))
    return clip(union(spans[:, 0], spans[:, 1]), window.begin_ns, window.end_ns)


def _between(
    window: Window,
    kept: npt.NDArray[np.int64],
    end: npt.NDArray[np.int64],
    begin: npt.NDArray[np.int64],
    which: npt.NDArray[np.bool_],
) -> Intervals:
    """From the end of one kept step to where the next one tells again, for some of the pairs."""
    return clip(union(end[kept[:-1]][which], begin[kept[1:]][which]), window.begin_ns, window.end_ns)


def _behind(steps: Records, dropped: npt.NDArray[np.bool_], kept: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """For each pair of successive kept steps: whether the device had work from the one to the other.

    So it is where all steps between were dropped because the device was far behind, and it still was when the
    later one began.
    """
    one, other = kept[:-1], kept[1:]
    if (other - one == 1).all():
        return np.zeros(len(one), dtype=bool)
    not_dropped = np.concatenate(([0], np.cumsum(~dropped)))
    none_else = not_dropped[other] - not_dropped[one + 1] == 0
    let_pass = np.concatenate(([0], np.cumsum(steps["skipped"])))
    none_skipped = let_pass[other + 1] - let_pass[one + 1] == 0
    late = steps["device_before_ns"][other] - steps["fetch_begin_ns"][other] > TOLERANCE_NS
    return np.asarray((other - one > 1) & none_else & none_skipped & late)
