"""The last records of a file as they stood at a moment of the past."""

from __future__ import annotations

from pathlib import Path

from ...errors import RecordError
from ...record.reader import RecordFile, Records
from .moments import LATE, MOST_LATE_NS, as_of, moments

LAST = 256
"""Records at the end of a file that may still lack fields which are filled in later, at most."""


class Past:
    """The last records of a complete file at any moment: finds its place by halving, and keeps nothing but the window.

    Raises:
        RecordError: no record file.
    """

    def __init__(self, path: Path, limit: int) -> None:
        self._file = RecordFile(path)
        self.header = self._file.header
        self._limit = limit
        self._count = self._file.count()
        self._t_ns = 0
        self.seen = 0
        """Records that were stored by then."""

    def go(self, t_ns: int) -> None:
        """To a moment."""
        self._t_ns, self.seen = t_ns, self._place(t_ns)

    def records(self, since_ns: int | None = None, most: int | None = None) -> Records:
        """The records that were known then, or the last of them, without what is surely older than `since_ns`."""
        limit = self._limit if most is None else min(most, self._limit)
        first = max(0, self.seen - limit, 0 if since_ns is None else self._place(since_ns - MOST_LATE_NS))
        after = self._place(self._t_ns + MOST_LATE_NS)
        return as_of(self.header.kind, self._file.read(first, max(0, after - first)), self._t_ns)[-limit:]

    def at(self, number: int) -> Records:
        return self._file.read(number, 1)

    def end_ns(self) -> int:
        """The last moment that its last records tell of, or that was filled in; 0 without any."""
        last = self._file.read(max(0, self._count - LAST), LAST)
        kind = self.header.kind
        late = LATE.get(kind.name)
        stamps = (moments(kind, last), last[late[-1]]) if late is not None else (moments(kind, last),)
        return max(int(each.max(initial=0)) for each in stamps)

    def __len__(self) -> int:
        """Records in the whole file."""
        return self._count

    def _moment(self, number: int) -> int:
        record = self._file.read(number, 1)
        if len(record) == 0:
            raise RecordError(f"{self._file.path} has become shorter since it was opened. Open the run again.")
        return int(moments(self.header.kind, record)[0])

    def _place(self, t_ns: int) -> int:
        """Of the first record after a moment."""
        low, high = 0, self._count
        while low < high:
            middle = (low + high) // 2
            if self._moment(middle) <= t_ns:
                low = middle + 1
            else:
                high = middle
        return low
