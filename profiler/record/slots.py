"""Files that short-lived processes of one training continue one after another.

A training that starts its workers anew for each epoch would leave a file for every one of them. Instead each worker
takes the first *slot* file that no living process holds, and goes on where its predecessor stopped, so that there are
as many files as workers ran at a time. The lock that tells who holds a file ends with its process, however it ends.
"""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
from pathlib import Path

from ..errors import RecordError
from .reader import RecordFile
from .schema import HEADER_BYTES, Kind
from .segment import CLOSED_OFFSET, RecordWriter, cannot_write, identity

FIRST_SEGMENT_BYTES = 16 * 1024
"""Small: a worker may live for a few batches."""
MOST_SLOTS = 4096


class SlotWriter(RecordWriter):
    """As `RecordWriter`, in the name of the training process `pid`: its file's header says so.

    Raises:
        RecordError: no file can be made.
    """

    _lock = -1

    def __init__(self, folder: Path, kind: Kind, rank: int, pid: int) -> None:
        for slot in range(MOST_SLOTS):
            self._prepare(kind, folder / f"{kind.name}-{rank}-{pid}.w{slot}.rec", FIRST_SEGMENT_BYTES)
            try:
                lock = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            except OSError as error:
                raise cannot_write(self.path, error) from error
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                self._take(lock, rank, pid)
            except BlockingIOError:
                os.close(lock)
                continue
            except OSError as error:
                os.close(lock)
                raise cannot_write(self.path, error) from error
            self._lock = lock
            return
        raise RecordError(f"{folder} holds {MOST_SLOTS} files of workers, all of them in use.")

    def forked(self) -> None:
        file = self._file
        super().forked()
        if file is not None:
            self._let_go(file)

    def close(self) -> None:
        """As `RecordWriter.close`; another worker may have the file from now on."""
        file = self._file
        super().close()
        if file is not None:
            self._let_go(file)

    def _let_go(self, file: tuple[int, int]) -> None:
        with contextlib.suppress(OSError):
            # Under its number the program may have a file of its own by now.
            if identity(self._lock) == file:
                os.close(self._lock)

    def _take(self, lock: int, rank: int, pid: int) -> None:
        """Go on behind the last whole record of the file; a file cut within its header begins anew."""
        begun = None
        with contextlib.suppress(RecordError):
            begun = RecordFile(self.path)
        if begun is None or begun.header.kind.name != self.kind.name:
            os.ftruncate(lock, 0)
            self._begin_file(lock, rank, pid)
        else:
            self._take_file(lock)
            self._header.words[CLOSED_OFFSET // 8] = 0
            self.stored, self.dropped = begun.count(), begun.header.dropped
        behind = HEADER_BYTES + self.stored * self.kind.record_bytes
        self._end = behind - behind % mmap.PAGESIZE
        if self._grow():
            self._position = behind % mmap.PAGESIZE
