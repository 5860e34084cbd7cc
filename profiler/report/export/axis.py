"""One axis of time for all that is exported of a run: seconds since its first step began, and wall-clock time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...analyse.ranks.membership import SAME_CLOCK_NS
from ...analyse.timeline.timeline import Timeline


@dataclass(frozen=True)
class Axis:
    zero_ns: int
    """When the first step of any rank began, on the monotonic clock of the first rank's host."""
    shifts: tuple[int, ...]
    """For each rank, what its clock is behind the first rank's, ns: wall clocks tell it of hosts, to milliseconds."""
    wall_ns: int | None
    """Unix time of the zero, ns; `None`: not known."""
    aligned_by_wall_clock: bool
    """Some ranks are of another host, so that they are aligned no better than wall clocks of hosts are."""

    def ns(self, number: int, stamp: int) -> int:
        """A stamp of the rank that is `number` among the timelines, as ns since the zero."""
        return stamp + self.shifts[number] - self.zero_ns


def axis_of(timelines: Sequence[Timeline]) -> Axis:
    """`timelines`: at least one."""
    first = timelines[0]
    shifts = []
    for timeline in timelines:
        apart = 0
        if timeline.host != first.host and timeline.wall_ns is not None and first.wall_ns is not None:
            apart = timeline.wall_ns - first.wall_ns
        elif timeline.wall_ns is not None and first.wall_ns is not None:
            # Hosts of one name that started at different times are different hosts.
            apart = timeline.wall_ns - first.wall_ns
            apart = 0 if abs(apart) < SAME_CLOCK_NS else apart
        shifts.append(apart)
    zero = min(int(t.steps["fetch_begin_ns"][0]) + shift for t, shift in zip(timelines, shifts, strict=True))
    wall = None if first.wall_ns is None else zero + first.wall_ns
    return Axis(zero, tuple(shifts), wall, any(shifts))
