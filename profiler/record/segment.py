"""One file of fixed-size records: stored into a ring in memory, and written from there to the file.

A store is one copy of the body and one of `seq`: no system call, no lock, nothing that gives up the GIL. The ring is
memory that nothing outside can take away, so that no file's fate (cut, full, gone, on a server that hangs) reaches the
program that stores. The sampler has the same memory and takes what is new into the run folder, five times a second
(`files.deliver`); what a killed process had stored is there for it still. Where no sampler listens, the process writes
its records itself, as often.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import mmap
import os
import resource
import struct
import threading
import time
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol
from weakref import WeakSet

from ..errors import RecordError
from ..native import AppenderBase
from .files import deliver
from .reader import RecordFile
from .schema import COUNTERS_OFFSET, FORMAT_VERSION, HEADER, HEADER_BYTES, MAGIC, Kind

# Keeps the GIL: giving it up could cost the training milliseconds. Python's own `mmap` keeps a copy of the descriptor,
# under whose number the program may have a file of its own one day.
_libc = ctypes.PyDLL(None, use_errno=True)
_mmap = _libc.mmap
_mmap.restype = ctypes.c_void_p
_mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_int64)
_munmap = _libc.munmap
_munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
_FAILED = ctypes.c_void_p(-1).value

DONE, CLOSED, DROPPED, TOLD, REFUSED = range(5)
"""Words of a ring's first page: records that are in the file; whether no more will come; how many were lost, and of how
many of these the file's header tells; whether the sampler may not look into the process."""
_FLAGS = 64
"""Where flags of patched records begin in the first page."""
PAGE = 4096
_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
RING_BYTES = 2 << 20
SLOT_BYTES = 512 << 10
"""A worker may live for a few batches, and there may be many."""
EVERY_NS = 200_000_000
"""How often a process writes its records itself."""
MOST_SLOTS = 4096


class Inherited(Protocol):
    def forked(self) -> None:
        """Let go of the parent's files: this is a child, which has no part in what its parent writes."""


_alive: WeakSet[Inherited] = WeakSet()
tell_of_fork = _alive.add
"""Has `forked` called in every child that is forked while a thing lives."""


def _forked() -> None:
    for thing in list(_alive):
        with contextlib.suppress(Exception):
            thing.forked()


os.register_at_fork(after_in_child=_forked)


class RecordRing:
    """Memory for the newest records of a file, shared by who stores them and who writes them: a page of words and
    flags, then the records, each at its number modulo how many fit. Half of them may wait to be written; the other half
    can be patched meanwhile.

    A forked child inherits the memory; there it must be left alone.

    Raises:
        OSError: there is no memory to be had, or the descriptor stands for none that cannot shrink.
    """

    def __init__(self, record_bytes: int, length: int, descriptor: int | None = None) -> None:
        """
        Args:
            record_bytes: of one record; a power of two.
            length: bytes for records; a multiple of that.
            descriptor: of another process's ring; by default a new one is made.
        """
        self._length = PAGE + length
        self.descriptor = _memory(self._length) if descriptor is None else descriptor
        """-1 where the memory cannot be given to another process."""
        if descriptor is not None:
            sealed = fcntl.fcntl(descriptor, fcntl.F_GET_SEALS) & _SEALS == _SEALS
            if not sealed or os.fstat(descriptor).st_size != self._length:
                # Reading a file that shrinks may kill the reader.
                raise OSError("this is no memory of a ring")
        shared = mmap.MAP_SHARED | (mmap.MAP_ANONYMOUS if self.descriptor < 0 else 0)
        address = _mmap(None, self._length, mmap.PROT_READ | mmap.PROT_WRITE, shared, self.descriptor, 0)
        if address == _FAILED or address is None:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
        self._address: int = address
        self.bytes = memoryview((ctypes.c_char * self._length).from_address(address)).cast("B")
        self.words = self.bytes.cast("q")
        """The same, eight bytes at a time."""
        self.record_bytes = record_bytes
        self.capacity = length // record_bytes
        """Records that fit."""
        self._group = -(-self.capacity // (PAGE - _FLAGS))
        """Records that share a flag."""

    @property
    def address(self) -> int:
        """Address of the first record in memory."""
        return self._address + PAGE

    def place(self, number: int) -> int:
        """Locate record `number`, from 1, among the records, in bytes."""
        return (number - 1) % self.capacity * self.record_bytes

    def room(self, stored: int) -> int:
        """Count the records that may be stored in a row after the first `stored`; 0 until some are in the file."""
        done = min(max(self.words[DONE], 0), stored)
        return min(done + self.capacity // 2 - stored, self.capacity - stored % self.capacity)

    def patched(self, number: int) -> None:
        """Note that record `number` has changed since it was stored."""
        self.bytes[_FLAGS + (number - 1) % self.capacity // self._group] = 1

    def take_patched(self, done: int) -> Iterator[int]:
        """Give the numbers of the first `done` records that may have changed since the last call."""
        flags = bytes(self.bytes[_FLAGS:PAGE])
        at = flags.find(1)
        while at >= 0:
            self.bytes[_FLAGS + at] = 0
            for slot in range(at * self._group, min((at + 1) * self._group, self.capacity)):
                number = self.words[(PAGE + slot * self.record_bytes) >> 3]
                if max(0, done - self.capacity) < number <= done and (number - 1) % self.capacity == slot:
                    yield number
            at = flags.find(1, at + 1)

    def fresh(self, done: int) -> int:
        """Count the records that lie in a row after the first `done`, up to the end of the memory."""
        at, step = (PAGE + self.place(done + 1)) >> 3, self.record_bytes >> 3
        most = self.capacity - done % self.capacity
        for count in range(most):
            if self.words[at + count * step] != done + 1 + count:
                return count
        return most

    def records(self, number: int, count: int = 1) -> memoryview:
        """Give so many records in a row from `number` on."""
        begin = PAGE + self.place(number)
        return self.bytes[begin : begin + count * self.record_bytes]

    def close(self) -> None:
        """Give the memory back: nothing may be stored or read afterwards. Safe to call twice."""
        address, self._address = self._address, 0
        if address:
            self.words.release()
            self.bytes.release()
            _munmap(address, self._length)


def _memory(length: int) -> int:
    """A descriptor of new memory that cannot shrink, of which nothing is taken before it is stored into; -1 where the
    system has none."""
    most, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    if 0 <= most < length:
        # It holds for such memory too, and the signal of who goes beyond would be the program's.
        return -1
    try:
        descriptor = os.memfd_create("whyidle", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    except (OSError, AttributeError):
        return -1
    try:
        os.ftruncate(descriptor, length)
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, _SEALS)
    except OSError:
        os.close(descriptor)
        return -1
    return descriptor


class RecordSink:
    """The record file of a ring: writes to it what is new there; any thread may ask for that. No descriptor of it stays
    open, but for a slot's lock: a program may close descriptors that it does not know and use their numbers for files
    of its own.

    Raises:
        RecordError: the file cannot be made.
    """

    def __init__(
        self, ring: RecordRing, folder: Path, kind: Kind, rank: int, pid: int, slot: bool = False, begun: bool = False
    ) -> None:
        """
        Args:
            pid: the process in whose name it is written.
            slot: take the first file that no living process holds, and go on behind its records. A training that
                starts its workers anew for each epoch would else leave a file for every one of them.
            begun: another process may have made the file for this ring, and written some of its records.
        """
        self.ring = ring
        self.kind = kind
        self._done = ring.words[DONE]
        self._behind = 0
        """Records of the file that are not the ring's: those of workers before it."""
        self._header = 0, 0
        """Dropped and closed, as the header has them."""
        self._lock = -1
        self._turn = threading.Lock()
        self._over = False
        for number in range(MOST_SLOTS) if slot else (None,):
            end = "" if number is None else f".w{number}"
            self.path = folder / f"{kind.name}-{rank}-{pid}{end}.rec"
            try:
                self._open(rank, pid, slot, begun)
                self._dropped_before = self._header[0] - ring.words[TOLD]
                """Lost records that the header tells of and the ring does not count."""
                return
            except BlockingIOError:
                continue
            except OSError as error:
                raise RecordError(
                    f"cannot write {self.path}: {os.strerror(error.errno or 0)}. Choose another folder with --out, or "
                    "free some space."
                ) from error
        raise RecordError(f"{folder} holds {MOST_SLOTS} files of workers, all in use.")

    def _open(self, rank: int, pid: int, slot: bool, begun: bool) -> None:
        """Make the file, or go on with it: then what is written already stays. Raises `OSError`: it cannot be had;
        `BlockingIOError`: another worker has it."""
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        file = os.open(self.path, flags if slot or begun else flags | os.O_EXCL, 0o644)
        try:
            if slot:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            found = None
            with contextlib.suppress(RecordError):
                found = RecordFile(self.path)
            if found is not None and found.kind is self.kind:
                self._header = found.dropped, int(found.closed)
                if slot:
                    self._behind = found.count() - self._done
            elif os.fstat(file).st_size and not slot:
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
            else:
                os.ftruncate(file, 0)
                header = (MAGIC, FORMAT_VERSION, HEADER_BYTES, self.kind.record_bytes, rank, pid, 0, 0)
                page = HEADER.pack(*header, self.kind.name.encode()).ljust(HEADER_BYTES, b"\0")
                if os.write(file, page) < HEADER_BYTES:
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            self._file = _identity(file)
            if slot:
                self._lock = file
        finally:
            if self._lock != file:
                os.close(file)

    def write(self) -> None:
        """Write what is new in the ring; what cannot be written waits until the next time. Never raises."""
        if self._turn.acquire(blocking=False):
            try:
                if not self._over:
                    self._write()
            finally:
                self._turn.release()

    def close(self) -> int:
        """Write the last time: what cannot be written is lost. Returns how many records that are. The ring is not read
        afterwards."""
        with self._turn:
            self._over = True
            self._write()
            done = self._done
            while count := self.ring.fresh(done):
                done += count
            if lost := done - self._done:
                with contextlib.suppress(OSError), self._opened() as file:
                    self._tell(file, self.ring.words[DROPPED] + lost, self.ring.words[CLOSED])
            self.let_go()
            return lost

    def let_go(self) -> None:
        """Leave the file to another worker."""
        lock, self._lock = self._lock, -1
        with contextlib.suppress(OSError):
            # Under its number the program may have a file of its own by now.
            if lock >= 0 and _identity(lock) == self._file:
                os.close(lock)

    def _write(self) -> None:
        ring = self.ring
        closed, dropped = ring.words[CLOSED], ring.words[DROPPED]
        patched = sorted(ring.take_patched(self._done))
        count = ring.fresh(self._done)
        if not (count or patched or self._header != (dropped + self._dropped_before, closed)):
            return
        try:
            with self._opened() as file:
                while patched:
                    if self._done - patched[0] < ring.capacity // 2:
                        self._put(file, patched[0], ring.records(patched[0]))
                    del patched[0]
                while count:
                    written = self._put(file, self._done + 1, ring.records(self._done + 1, count))
                    self._done += written
                    ring.words[DONE] = self._done
                    count = ring.fresh(self._done) if written == count else 0
                self._tell(file, dropped, closed)
                ring.words[TOLD] = dropped
        except OSError:
            # Whoever writes next, maybe another process, finds them in the ring.
            for number in patched:
                ring.patched(number)

    def _put(self, file: int, number: int, records: memoryview) -> int:
        """Write records of the ring from `number` on. Returns how many had room."""
        size = self.kind.record_bytes
        data: memoryview | bytearray = records
        if self._behind:
            data = bytearray(records)
            for at in range(0, len(data), size):
                struct.pack_into("<q", data, at, number + self._behind + at // size)
        return os.pwrite(file, data, HEADER_BYTES + (number - 1 + self._behind) * size) // size

    def _tell(self, file: int, dropped: int, closed: int) -> None:
        """Have the header say how many records of the ring were lost, and whether the file is complete."""
        header = dropped + self._dropped_before, closed
        if self._header != header:
            self._header = header
            os.pwrite(file, struct.pack("<qq", *header), COUNTERS_OFFSET)

    @contextlib.contextmanager
    def _opened(self) -> Iterator[int]:
        """The file, by its path. Raises `OSError` if it is gone or is another one."""
        file = os.open(self.path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            if _identity(file) != self._file:
                raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))
            yield file
        finally:
            os.close(file)


def _identity(descriptor: int) -> tuple[int, int]:
    """Device and number of an open file."""
    status = os.fstat(descriptor)
    return status.st_dev, status.st_ino


class RecordWriter(AppenderBase):
    """Appends records of one kind to one file. One writer per file, used from one thread.

    In a forked child it stores nothing and closes nothing: the file is the parent's.

    Raises:
        RecordError: the file cannot be made at all. Once made, storing never raises: `stored` and
            `dropped` tell what happened.
    """

    def __init__(
        self,
        folder: Path,
        kind: Kind,
        rank: int = 0,
        pid: int | None = None,
        slot: bool = False,
        length: int | None = None,
    ) -> None:
        """
        Args:
            pid: the process in whose name it writes, by default this one.
            slot: short-lived processes share files: this one goes on behind the records of one that has ended.
            length: bytes for records in memory, of which half may wait to be written.
        """
        self.kind = kind
        self.stored = 0
        self.dropped = 0
        self._pack_into = kind.body.pack_into
        self._body_words = kind.body.size // 8
        self._size = kind.record_bytes
        self._position = self._limit = 0
        """Where the next record goes, in bytes, and up to where there is room in a row."""
        self._folder = folder
        self._who = rank, os.getpid() if pid is None else pid, slot
        self._maker = os.getpid()
        self.path = folder / f"{kind.name}-{rank}-{self._who[1]}.rec"
        """The file; of a slot only where this process writes it itself."""
        self._sink: RecordSink | None = None
        """Where this process writes the records itself."""
        self._eager = False
        """Whether it writes each record itself at once: whoever stores is not waited for, and may be killed."""
        self._asked_ns = 0
        length = length or (SLOT_BYTES if slot else RING_BYTES)
        self._ring: RecordRing | None
        ring = self._ring = RecordRing(kind.record_bytes, length)
        """`None` once it is closed."""
        self._address = ring.address
        self._bytes, self._words = ring.bytes[PAGE:], ring.words[PAGE // 8 :]
        told = {"kind": kind.name, "rank": rank, "pid": self._who[1], "slot": slot, "length": length}
        self._handed = ring.descriptor >= 0 and deliver(folder, told, ring.descriptor)
        if ring.descriptor >= 0:
            os.close(ring.descriptor)
        if not self._handed:
            self._writes_itself()
        tell_of_fork(self)

    def _writes_itself(self) -> None:
        assert self._ring is not None
        self._sink = RecordSink(self._ring, self._folder, self.kind, *self._who, begun=self._handed)
        self.path, self._eager = self._sink.path, self._who[2]
        _alone.add(self)

    @property
    def refused(self) -> bool:
        """Whether the sampler has said that it may not look into this process."""
        return self._ring is not None and bool(self._ring.words[REFUSED])

    def forked(self) -> None:
        """Let go of the memory, which a child has and must not store into."""
        self._ring = None
        self._limit = self._position = 0
        sink, self._sink = self._sink, None
        if sink is not None:
            sink.let_go()

    def _is_inherited(self) -> bool:
        """Whether this is a child that Python was not told of: C code may fork, too."""
        if os.getpid() == self._maker:
            return False
        self.forked()
        return True

    def append(self, *values: float) -> int:
        """Store one record: the fields of the kind after `seq`, in order. Returns its handle for `patch`.

        Returns -1 where the record could not be stored (nobody takes them any more, or closed).
        """
        if self._position >= self._limit and not self._room():
            return -1
        self._pack_into(self._bytes, self._position + 8, *values)
        return self._stored()

    def store(self, body: array[int]) -> int:
        """Store as `append` does fields that lie in a row already: cheaper where a record is filled in bit by bit."""
        if self._position >= self._limit and not self._room():
            return -1
        first = (self._position >> 3) + 1
        self._words[first : first + self._body_words] = body
        return self._stored()

    def _stored(self) -> int:
        self.stored += 1
        self._words[self._position >> 3] = self.stored
        self._position += self._size
        if self._eager:
            self.flush()
        return self.stored

    def _room(self) -> bool:
        """Find room for the next record; where there is none it is lost."""
        if self._ring is None or self._is_inherited():
            self.dropped += 1
            return False
        room = self._ring.room(self.stored)
        if self._sink is not None:
            if (now := time.monotonic_ns()) - self._asked_ns >= EVERY_NS or room <= 0:
                for writer in list(_alone):
                    # What one has stored is not to wait until it stores again.
                    writer._asked_ns = now
                    writer.flush()
                room = self._ring.room(self.stored)
            # So it is asked again at the next record, whether it is time.
            room = min(room, 1)
        elif room <= 0 and (now := time.monotonic_ns()) - self._asked_ns >= EVERY_NS:
            self._asked_ns = now
            if self._takes_over():
                room = self._ring.room(self.stored)
        if room <= 0:
            self.dropped += 1
            self._ring.words[DROPPED] = self.dropped
            return False
        self._position = self._ring.place(self.stored + 1)
        self._limit = self._position + room * self._size
        return True

    def _takes_over(self) -> bool:
        """Write the records itself if the sampler is gone."""
        if self._sink is None and not deliver(self._folder):
            with contextlib.suppress(Exception):
                self._writes_itself()
                self.flush()
        return self._sink is not None

    def flush(self) -> None:
        """Write what is stored to the file, where this process does that. Never raises."""
        if self._sink is not None and not self._is_inherited():
            self._sink.write()

    def patch(self, handle: int, field: str, *values: int) -> bool:
        """Fill in `i8` fields from `field` on of a record stored before; in order, the last one last.

        False if the record was never stored, or so many were stored since that it is no longer in memory.
        """
        if handle < 1 or self._ring is None or self._is_inherited() or self.stored - handle >= self._ring.capacity // 2:
            return False
        start = self._ring.place(handle) + self.kind.offset(field)
        self._bytes[start : start + 8 * len(values)] = struct.pack(f"<{len(values)}q", *values)
        self._ring.patched(handle)
        return True

    def close(self) -> None:
        """Mark the file complete. Safe to call twice; never raises."""
        if self._ring is None or self._is_inherited():
            return
        ring = self._ring
        ring.words[CLOSED] = 1
        if self._takes_over() and self._sink is not None:
            lost = self._sink.close()
            self.stored, self.dropped = self.stored - lost, self.dropped + lost
        self.forked()
        self._bytes.release()
        self._words.release()
        ring.close()


_alone: WeakSet[RecordWriter] = WeakSet()
"""Writers of this process that write their records themselves."""
