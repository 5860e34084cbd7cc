"""A recording that is being made, as it stands, for all in a command that show it: read and judged once for them."""

from __future__ import annotations

from pathlib import Path

from ..analyse.recent.reader import RecentReader
from ..analyse.recent.snapshot import Snapshot


class SharedReader:
    """Nothing is read before somebody asks. What one makes of a snapshot, or fails to, is nothing to the others."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._reader: RecentReader | None = None

    def snapshot(self) -> Snapshot:
        """As `RecentReader.snapshot`; the reader is made at the first call that succeeds in it.

        Raises:
            RecordError: not a run folder, or it is gone.
        """
        self._reader = self._reader or RecentReader(self.folder)
        return self._reader.snapshot()
