"""The file that records of a ring are written to: its header, and how it is filled."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import struct
import threading
from collections.abc import Iterator
from pathlib import Path

from ..errors import RecordError
from .reader import RecordFile
from .ring import CLOSED, DONE, DROPPED, TOLD, RecordRing
from .schema import COUNTERS_OFFSET, FORMAT_VERSION, HEADER, HEADER_BYTES, MAGIC, Kind

MOST_SLOTS = 4096


class RecordSink:
    """A record file that is written to. No descriptor of it stays open, but for a slot's lock: a program may close
    descriptors that it does not know and use their numbers for files of its own.

    Raises:
        RecordError: the file cannot be made.
    """

    def __init__(
        self, folder: Path, kind: Kind, rank: int, pid: int, slot: bool = False, done: int | None = None
    ) -> None:
        """
        Args:
            pid: the process in whose name it is written.
            slot: take the first file that no living process holds, and go on behind its records. A training that
                starts its workers anew for each epoch would else leave a file for every one of them.
            done: how many records of the ring another has written already; `None`: no other wrote any.
        """
        self.kind = kind
        self._behind = 0
        """Records of the file that are not the ring's: those of workers before it."""
        self._told = 0, 0
        """Dropped and closed, as the header says."""
        self._lock = -1
        for number in range(MOST_SLOTS) if slot else (None,):
            end = "" if number is None else f".w{number}"
            self.path = folder / f"{kind.name}-{rank}-{pid}{end}.rec"
            try:
                if self._open(rank, pid, slot, done):
                    return
            except OSError as error:
                raise RecordError(
                    f"cannot write {self.path}: {os.strerror(error.errno or 0)}. Choose another folder with --out, or "
                    "free some space."
                ) from error
        raise RecordError(f"{folder} holds {MOST_SLOTS} files of workers, all in use.")

    def _open(self, rank: int, pid: int, slot: bool, done: int | None) -> bool:
        """Whether the file can be had; of one that goes on, what is written already stays."""
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        if not slot and done is None:
            flags |= os.O_EXCL
        file = os.open(self.path, flags, 0o644)
        keep = False
        try:
            if slot:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            begun = None
            with contextlib.suppress(RecordError):
                begun = RecordFile(self.path)
            if begun is not None and begun.header.kind is self.kind:
                self._told = begun.header.dropped, int(begun.header.closed)
                if slot:
                    self._behind = begun.count() - (done or 0)
            elif os.fstat(file).st_size and not slot:
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
            else:
                os.ftruncate(file, 0)
                header = (MAGIC, FORMAT_VERSION, HEADER_BYTES, self.kind.record_bytes, rank, pid, 0, 0)
                page = HEADER.pack(*header, self.kind.name.encode()).ljust(HEADER_BYTES, b"\0")
                if os.write(file, page) < HEADER_BYTES:
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            self._file = identity(file)
            keep = slot
        except BlockingIOError:
            return False
        finally:
            if keep:
                self._lock = file
            else:
                os.close(file)
        self._dropped_before = self._told[0]
        return True

    @contextlib.contextmanager
    def opened(self) -> Iterator[int]:
        """The file, by its path. Raises `OSError` if it is gone or is another one."""
        file = os.open(self.path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            if identity(file) != self._file:
                raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))
            yield file
        finally:
            os.close(file)

    def write(self, file: int, number: int, records: memoryview) -> int:
        """Records of the ring from `number` on. Returns how many had room.

        Raises:
            OSError: none had.
        """
        size = self.kind.record_bytes
        data: memoryview | bytearray = records
        if self._behind:
            data = bytearray(records)
            for at in range(0, len(data), size):
                struct.pack_into("<q", data, at, number + self._behind + at // size)
        return os.pwrite(file, data, HEADER_BYTES + (number - 1 + self._behind) * size) // size

    def is_news(self, dropped: int, closed: int) -> bool:
        """Whether the header says otherwise."""
        return self._told != (dropped + self._dropped_before, closed)

    def tell(self, file: int, dropped: int, closed: int) -> None:
        """Have the header say how many records were lost, and whether the file is complete."""
        if self.is_news(dropped, closed):
            self._told = dropped + self._dropped_before, closed
            os.pwrite(file, struct.pack("<qq", *self._told), COUNTERS_OFFSET)

    def let_go(self) -> None:
        """Another worker may have the file from now on."""
        lock, self._lock = self._lock, -1
        with contextlib.suppress(OSError):
            # Under its number the program may have a file of its own by now.
            if lock >= 0 and identity(lock) == self._file:
                os.close(lock)


class Drain:
    """Writes to a file what is new in a ring. Any thread may ask for it."""

    def __init__(self, ring: RecordRing, sink: RecordSink) -> None:
        self.ring = ring
        self.sink = sink
        self._done = ring.words[DONE]
        self._told = ring.words[TOLD]
        """Lost records that a file told of before."""
        self._turn = threading.Lock()
        self._over = False

    def __call__(self) -> None:
        """What cannot be written now waits until the next time. Never raises."""
        if self._turn.acquire(blocking=False):
            try:
                if not self._over:
                    self._write()
            finally:
                self._turn.release()

    def close(self) -> int:
        """The last time: what cannot be written is lost. Returns how many records that are. Nothing is read of the ring
        afterwards."""
        with self._turn:
            self._over = True
            self._write()
            words, done = self.ring.words, self._done
            while count := self.ring.fresh(done):
                done += count
            if lost := done - self._done:
                with contextlib.suppress(OSError), self.sink.opened() as file:
                    self.sink.tell(file, words[DROPPED] - self._told + lost, words[CLOSED])
            self.sink.let_go()
            return lost

    def _write(self) -> None:
        ring, sink = self.ring, self.sink
        closed, dropped = ring.words[CLOSED], ring.words[DROPPED] - self._told
        patched = sorted(ring.take_patched(self._done))
        count = ring.fresh(self._done)
        if not (count or patched or sink.is_news(dropped, closed)):
            return
        try:
            with sink.opened() as file:
                while patched:
                    if self._done - patched[0] < ring.capacity // 2:
                        sink.write(file, patched[0], ring.records(patched[0]))
                    del patched[0]
                while count:
                    written = sink.write(file, self._done + 1, ring.records(self._done + 1, count))
                    self._done += written
                    ring.words[DONE] = self._done
                    count = ring.fresh(self._done) if written == count else 0
                sink.tell(file, dropped, closed)
                ring.words[TOLD] = dropped + self._told
        except OSError:
            # Whoever writes next, maybe another process, finds them in the ring.
            for number in patched:
                ring.patched(number)


def identity(descriptor: int) -> tuple[int, int]:
    """Device and number of an open file."""
    status = os.fstat(descriptor)
    return status.st_dev, status.st_ino
