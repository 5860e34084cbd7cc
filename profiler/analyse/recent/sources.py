"""Where the live view's snapshots come from: a recording, and those that begin after it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Protocol

from ...errors import RecordError
from ...record.latest import latest
from .reader import RecentReader
from .snapshot import UNDER_WAY, Snapshot

NEXT_RUN_SECONDS = 15.0
"""How long to wait for another run after one has ended, when following the newest without a terminal."""
LOOK_SECONDS = 0.5
"""Between looks for a newer run."""


class SnapshotSource(Protocol):
    """Gives the state of what is looked at."""

    def look(self) -> Snapshot: ...

    @property
    def folder(self) -> Path | None:
        """Of the recording; `None` where there is none."""
        ...

    @property
    def over(self) -> bool:
        """Whether nothing new will come."""
        ...


class Following:
    """A recording, and if `next_ones` those that begin after it."""

    def __init__(self, folder: Path, next_ones: bool) -> None:
        self._reader = RecentReader(folder)
        self.next_ones = next_ones
        self._looked = 0.0
        self._ended_at: float | None = None

    @property
    def folder(self) -> Path:
        return self._reader.folder

    def look(self) -> Snapshot:
        view = self._reader.snapshot()
        if view.state in UNDER_WAY:
            self._ended_at = None
            return view
        now = time.monotonic()
        if self._ended_at is None:
            self._ended_at = now
        if self.next_ones and now - self._looked >= LOOK_SECONDS:
            self._looked = now
            newest = latest()
            if newest is not None and newest.resolve() != self._reader.folder.resolve():
                try:
                    self._reader = RecentReader(newest)
                    return self._reader.snapshot()
                except RecordError:
                    pass  # it is being made
        return view

    @property
    def over(self) -> bool:
        if self._ended_at is None:
            return False
        return not self.next_ones or time.monotonic() - self._ended_at > NEXT_RUN_SECONDS
