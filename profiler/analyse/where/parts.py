"""In which part of its step a training was at the moments when it was looked at, by the host's stamps."""

from __future__ import annotations

from enum import IntEnum

import numpy as np
import numpy.typing as npt

from ...record.reader import Records
from ...record.schema import NOT_MEASURED, EventKind, PauseKind, StepFlag
from ..intervals import inside, union
from ..run.events import lasting, under_way
from ..run.window import plausible
from .looks import Looks

Stamps = npt.NDArray[np.int64]


class StepPart(IntEnum):
    """A part of a training's time, in the order in which they follow each other. Those of a step are the thread's: a
    device with a queue may still compute the step before."""

    BEFORE_FIRST = 0
    FETCH = 1
    ARRIVAL = 2
    COMPUTE = 3
    ARRIVAL_OR_COMPUTE = 4
    """Of runs in which the model's call was never told from the arrival of the batch."""
    AFTER_OPTIMIZER = 5
    OUTSIDE = 6
    AFTER_LAST = 7
    UNKNOWN = 8
    """In steps that the hooks did not look at, and where a loop's fetches are not seen."""

    @property
    def words(self) -> str:
        return _WORDS[self]


_WORDS = {
    StepPart.BEFORE_FIRST: "before the first step",
    StepPart.FETCH: "in fetch",
    StepPart.ARRIVAL: "between arrival and forward",
    StepPart.COMPUTE: "forward and backward",
    StepPart.ARRIVAL_OR_COMPUTE: "between arrival and optimizer",
    StepPart.AFTER_OPTIMIZER: "between optimizer and fetch",
    StepPart.OUTSIDE: "outside steps",
    StepPart.AFTER_LAST: "after the last step",
    StepPart.UNKNOWN: "not known",
}


def by_part(looks: Looks, steps: Records, events: Records, pauses: Records) -> dict[StepPart, Looks]:
    """Looks at the thread that trains, by the part of its step that each fell into; parts without any are left out.

    `steps`, `events`, `pauses`: of its process, as they were recorded.
    """
    parts = parts_at(looks.records["t_ns"], steps, events, pauses)
    return {part: looks.kept(parts == part) for part in StepPart if (parts == part).any()}


def parts_at(at: Stamps, steps: Records, events: Records, pauses: Records) -> npt.NDArray[np.int64]:
    """The `StepPart` at each of these moments."""
    steps = plausible(steps)
    steps = steps[np.argsort(steps["fetch_begin_ns"], kind="stable")]
    if len(steps) == 0:
        return np.full(len(at), StepPart.UNKNOWN, dtype=np.int64)
    edges, follows = _edges(steps, _last_ns(steps, events))
    place = np.searchsorted(steps["fetch_begin_ns"], at, side="right") - 1
    within = (at[:, None] >= edges[np.maximum(place, 0)]).sum(axis=1)
    parts: npt.NDArray[np.int64] = follows[np.maximum(place, 0), within]
    further = pauses[pauses["what"] == PauseKind.FETCH]
    parts[inside(union(further["begin_ns"], further["end_ns"]), at)] = StepPart.FETCH
    parts[inside(under_way(lasting(events, EventKind.BOUNDARY)), at)] = StepPart.OUTSIDE
    # Where the first steps were not recorded, starting is not told from them.
    whole = steps["step"][0] <= 0 and steps["skipped"][0] <= 0
    parts[place < 0] = StepPart.BEFORE_FIRST if whole else StepPart.UNKNOWN
    return parts


def _edges(steps: Records, last_ns: int) -> tuple[Stamps, npt.NDArray[np.int64]]:
    """Per step the moments at which its parts end, in their order; and the part before, between and after these.

    The last of a step's edges is where it is known again what follows, up to the next step's fetch.
    """
    count = len(steps)
    end, fetched = steps["step_end_ns"], steps["fetch_end_ns"] != NOT_MEASURED
    seen = (steps["flags"] & StepFlag.FORWARD_SEEN) != 0
    arrived = np.where(fetched, steps["fetch_end_ns"], steps["fetch_begin_ns"])
    forward = np.where(seen & (steps["forward_begin_ns"] != NOT_MEASURED), steps["forward_begin_ns"], arrived)
    backward = steps["backward_begin_ns"]
    # Without a fetch that was seen, batches may come from anywhere before the backward pass.
    forward = np.where(fetched, forward, np.where(backward != NOT_MEASURED, backward, end))
    optimized = np.where(steps["optimizer_end_ns"] != NOT_MEASURED, steps["optimizer_end_ns"], end)
    passed = steps["skipped"][1:] > 0
    lost = np.diff(steps["step"]) > 1
    later = np.where(steps["skipped_end_ns"] != NOT_MEASURED, steps["skipped_end_ns"], steps["fetch_begin_ns"])[1:]
    again = np.where(passed, later, np.where(lost, steps["fetch_begin_ns"][1:], end[:-1]))
    edges = np.stack((arrived, forward, optimized, end, np.append(again, max(last_ns, int(end[-1])))), axis=1)
    edges = np.maximum.accumulate(edges, axis=1)

    computes = StepPart.COMPUTE if seen.any() else StepPart.ARRIVAL_OR_COMPUTE
    fed = np.append(fetched[1:], fetched[-1])
    follows = np.empty((count, 6), dtype=np.int64)
    follows[:, 0] = StepPart.FETCH
    follows[:, 1] = np.where(fetched, StepPart.ARRIVAL, StepPart.UNKNOWN)
    follows[:, 2] = np.where(fetched, computes, StepPart.COMPUTE)
    follows[:, 3] = np.where(fed, StepPart.AFTER_OPTIMIZER, StepPart.UNKNOWN)
    follows[:, 4] = StepPart.UNKNOWN
    follows[:, 5] = StepPart.OUTSIDE
    follows[-1, 5] = StepPart.AFTER_LAST
    return edges, follows


def _last_ns(steps: Records, events: Records) -> int:
    """When the last step ended, looked at or not."""
    skipped = events["t_ns"][events["what"] == EventKind.SKIPPED_STEPS]
    return int(max(steps["step_end_ns"].max(), skipped.max(initial=NOT_MEASURED)))
