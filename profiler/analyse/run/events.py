"""Events that last: checkpoints, validations, garbage collections, phases of the program's own."""

from __future__ import annotations

from ...record.reader import Records
from ...record.schema import NOT_MEASURED
from ..intervals import Intervals, union


def lasting(events: Records, what: int) -> Records:
    """Those of a kind whose end is known."""
    which: Records = events[(events["what"] == what) & (events["end_ns"] != NOT_MEASURED)]
    return which


def under_way(lasted: Records) -> Intervals:
    """When they were under way."""
    return union(lasted["t_ns"], lasted["end_ns"])
