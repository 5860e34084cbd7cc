"""What of one rank lies within the exported stretch, on the trace's time axis."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ....analyse.timeline.timeline import Timeline
from ....record.reader import Records
from ....record.schema import NOT_MEASURED
from .events import Stamps, overlapping


@dataclass(frozen=True)
class Scene:
    """Times of the trace are ns since its zero; `low` and `high` bound the stretch."""

    timeline: Timeline
    offset_ns: int
    """To be added to the rank's stamps."""
    low: int
    high: int

    def shift(self, stamp: int) -> int:
        """A stamp on the trace's axis, whose zero nothing is before."""
        return max(0, stamp + self.offset_ns)

    def shifted(self, stamps: Stamps) -> Stamps:
        """As `shift`; of measured stamps only."""
        moved: Stamps = np.maximum(0, np.where(stamps == NOT_MEASURED, 0, stamps) + self.offset_ns)
        return moved

    def within(self, records: Records, begin: str, end: str) -> Records:
        """Those of the records whose stretch between two stamps reaches into the exported one."""
        chosen: Records = records[self.covers(records[begin], records[end])]
        return chosen

    def covers(self, begin: Stamps, end: Stamps) -> Stamps:
        """Places of the recorded stretches that reach into the exported one; both stamps must be known.

        What was over before the trace's zero reaches into nothing: `shifted` would put it at the zero.
        """
        known = (begin != NOT_MEASURED) & (end != NOT_MEASURED)
        inside = overlapping(begin + self.offset_ns, end + self.offset_ns, self.low, self.high)
        return np.flatnonzero(known & inside)

    @cached_property
    def steps(self) -> Records:
        """Those that begin within the stretch."""
        begin = self.timeline.steps["fetch_begin_ns"] + self.offset_ns
        chosen: Records = self.timeline.steps[(begin >= self.low) & (begin < self.high)]
        return chosen

    @cached_property
    def pauses(self) -> Records:
        return self.within(self.timeline.pauses, "begin_ns", "end_ns")

    @property
    def events(self) -> Records:
        return self.timeline.events
