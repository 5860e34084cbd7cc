"""Events: the settings they tell, and those that last, as checkpoints, validations, garbage collections, phases of the
program's own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import numpy as np
import numpy.typing as npt

from ...record.reader import Records
from ...record.schema import NOT_MEASURED, EventKind, LoaderFlag
from ..intervals import Intervals, clip, total, union
from .window import Window

MOST_SHOWN = 8
"""Phases that have a sentence each, at most."""


def phases_of(window: Window, events: Records, names: Mapping[int, str]) -> Iterator[str]:
    """What each named phase took of the window, the longest first, a sentence each."""
    phases = lasting(events, EventKind.PHASE)
    phases = phases[(phases["end_ns"] > window.begin_ns) & (phases["t_ns"] < window.end_ns)]
    found = []
    for number in set(phases["value"].tolist()):
        mine = phases[phases["value"] == number]
        spent = total(clip(under_way(mine), window.begin_ns, window.end_ns))
        found.append((spent, len(mine), names.get(number, "without a name")))
    for spent, times, name in sorted(found, reverse=True)[:MOST_SHOWN]:
        yield (
            f'The program\'s phase "{name}" took {spent / 1e6:.0f} ms, {100 * spent / window.wall_ns:.1f} % of the '
            f"time, {times} time{'s' if times != 1 else ''}."
        )


def one_of(values: npt.NDArray[np.int64], wanted: Iterable[int]) -> npt.NDArray[np.bool_]:
    """Which of these are one of a few: numpy.isin does more than to compare, too much for each of many ranks."""
    found = np.zeros(len(values), dtype=bool)
    for each in wanted:
        found |= values == each
    return found


def lasting(events: Records, what: int) -> Records:
    """The events of a kind whose end is known."""
    which: Records = events[(events["what"] == what) & (events["end_ns"] != NOT_MEASURED)]
    return which


def last_told(events: Records, what: int) -> int | None:
    """The value of the last event of a kind."""
    told = events["value"][events["what"] == what]
    return int(told[-1]) if len(told) else None


def loader_flag(events: Records, flag: int) -> bool | None:
    """Whether this `LoaderFlag` is set of the loader that trains; `None` where that is not torch's."""
    flags = last_told(events, EventKind.LOADER_FLAGS)
    return None if flags is None else bool(flags & flag)


def own_workers(events: Records) -> int | None:
    """Worker processes of a loader within the training's data set, 0 where it has others of its own; `None`: none."""
    flags = last_told(events, EventKind.LOADER_FLAGS) or 0
    return flags // LoaderFlag.INNER_WORKER if flags & LoaderFlag.OWN_WORKERS else None


def under_way(lasted: Records) -> Intervals:
    """When any of these events was under way."""
    return union(lasted["t_ns"], lasted["end_ns"])
