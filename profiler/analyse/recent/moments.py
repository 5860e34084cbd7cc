"""When a record came to be known: what a look at some moment sees of a recording."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ...record.reader import Records, Rows
from ...record.schema import DEVICE, EVENT, HOST, MEMORY, NOT_MEASURED, PAUSE, STACK, STEP, Kind

MOST_LATE_NS = 3_000_000_000
"""How much older a moment told by a record may be than one told by a record stored before it."""
LATE = {
    STEP.name: ("device_before_ns", "device_copy_begin_ns", "device_copy_end_ns", "device_begin_ns", "device_end_ns"),
    PAUSE.name: ("device_begin_ns", "device_end_ns"),
}
"""Fields that are filled in when the device has got there, the last one last."""


def moments(kind: Kind, records: Records) -> npt.NDArray[np.int64]:
    """CLOCK_MONOTONIC ns of the moment each record tells of: records are stored soon after it, and in this order.

    What the sampler reads from a driver's ring is up to a second old when it is stored.
    """
    if kind.name in (DEVICE.name, HOST.name, MEMORY.name, STACK.name):
        return np.asarray(records["t_ns"])
    if kind.name == EVENT.name:
        end = records["end_ns"]
        return np.where(end == NOT_MEASURED, records["t_ns"], end)
    return np.asarray(records["step_end_ns" if kind.name == STEP.name else "end_ns"])


def as_of(kind: Kind, records: Records, t_ns: int) -> Rows:
    """The records that were known at a moment, without what was filled in later."""
    known = np.asarray(records[moments(kind, records) <= t_ns])
    late = LATE.get(kind.name)
    if late is not None:
        later = known[late[-1]] > t_ns
        for name in late:
            known[name][later] = NOT_MEASURED
    return known
