"""The last records of a file that grows."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ...record.reader import Follower, Records
from ...record.schema import DEVICE, EVENT, HOST, MEMORY, NOT_MEASURED, PAUSE, STACK, STEP, Kind

MOST_LATE_NS = 3_000_000_000
"""How much older a moment told by a record may be than one told by a record stored before it."""
STACKS_LATE_NS = 20_000_000_000
"""The same of stack samples: those at a process are stored when a stretch of them is over."""
LATE = {
    STEP.name: ("device_before_ns", "device_copy_begin_ns", "device_copy_end_ns", "device_begin_ns", "device_end_ns"),
    PAUSE.name: ("device_begin_ns", "device_end_ns"),
}
"""Fields that are filled in when the device has got there, the last one last."""


def moments(kind: Kind, records: Records) -> npt.NDArray[np.int64]:
    """CLOCK_MONOTONIC ns of the moment each record tells of: records are stored soon after it, and in this order."""
    if kind.name in (DEVICE.name, HOST.name, MEMORY.name, STACK.name):
        return np.asarray(records["t_ns"])
    if kind.name == EVENT.name:
        end = records["end_ns"]
        return np.where(end == NOT_MEASURED, records["t_ns"], end)
    return np.asarray(records["step_end_ns" if kind.name == STEP.name else "end_ns"])


class Tail:
    """The newest `limit` records of a file, at least; a look reads only what is new.

    Raises:
        RecordError: no record file, or its header is not written yet.
    """

    def __init__(self, path: Path, limit: int) -> None:
        self._follower = Follower(path, limit)
        self.header = self._follower.header
        self._limit = limit
        self._rows = np.empty(0, dtype=self.header.kind.dtype)
        self._begin = self._end = 0
        self._fresh = 0
        """Records taken in since they were last read again."""

    @property
    def seen(self) -> int:
        """Records in the file so far."""
        return self._follower.seen

    def look(self) -> Records:
        """Take in what is new, and return it."""
        fresh = self._follower.new()[-self._limit :]
        if len(fresh) == 0:
            return fresh
        if self._end == 0:
            # Of thousands of files of a job that has ended there is nothing else to come.
            self._rows = fresh
        else:
            if self._end + len(fresh) > len(self._rows):
                self._make_room(len(fresh))
            self._rows[self._end : self._end + len(fresh)] = fresh
        self._end += len(fresh)
        self._fresh += len(fresh)
        self._begin = max(self._begin, self._end - self._limit)
        return fresh

    def refresh(self, late: int) -> None:
        """Read again what had not all its late fields: what is new since the last time, and `late` records before."""
        count = min(late + self._fresh, self._end - self._begin)
        with suppress(OSError):  # of a file that is gone, what was read stays
            again = self._follower.latest(count)
            if len(again) == count:
                if not self._rows.flags.writeable:
                    self._rows = self._rows.copy()
                self._rows[self._end - count : self._end] = again
                self._fresh = 0

    def records(self, since_ns: int | None = None, most: int | None = None) -> Records:
        """The last ones, without what is surely older than `since_ns`. Valid until the next look."""
        begin = self._begin if most is None else max(self._begin, self._end - most)
        rows = self._rows[begin : self._end]
        if since_ns is None:
            return rows
        late = STACKS_LATE_NS if self.header.kind.name == STACK.name else MOST_LATE_NS
        return rows[int(np.searchsorted(moments(self.header.kind, rows), since_ns - late)) :]

    def at(self, number: int) -> Records:
        """One record of the file by its number, from 0; empty where there is none."""
        place = self._end - (self.seen - number)
        if self._begin <= place < self._end:
            return self._rows[place : place + 1]
        try:
            return self._follower.at(number)
        except OSError:
            return self._rows[:0]

    def _make_room(self, more: int) -> None:
        """Twice what is to be kept: so a record is moved once in a while, not at each look."""
        kept = self._rows[max(self._begin, self._end + more - self._limit) : self._end]
        rows = self._rows
        if 2 * (len(kept) + more) > len(rows) or not rows.flags.writeable:
            rows = np.empty(min(2 * self._limit, 4 * (len(kept) + more)), dtype=rows.dtype)
        rows[: len(kept)] = kept.copy()
        self._rows, self._begin, self._end = rows, 0, len(kept)
