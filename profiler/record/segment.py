"""One append-only file of fixed-size records, stored into reserved memory-mapped segments.

A store is one copy of the body and one of `seq`: no system call, no lock, nothing that gives up the GIL. The page cache
holds what was stored even if the process is killed in the next instant. Blocks are reserved with `posix_fallocate`
before they are mapped, because a hole on a full disk would be a SIGBUS inside the user's training; when the disk is
full, recording stops and the lost records are counted. No file stays open: a program may close descriptors it does not
know and use their numbers for files of its own.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import mmap
import os
import struct
from array import array
from collections.abc import Iterator
from pathlib import Path

from ..errors import RecordError
from ..native import AppenderBase
from .forks import tell_of_fork
from .schema import FORMAT_VERSION, HEADER_BYTES, MAGIC, Kind

# Keeps the GIL: giving it up could cost the training milliseconds.
_libc = ctypes.PyDLL(None, use_errno=True)
_mmap = _libc.mmap
_mmap.restype = ctypes.c_void_p
_mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_int64)
_madvise = _libc.madvise
_madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
_POPULATE_WRITE = 23
"""Of `madvise`, from Linux 5.14 on: makes all pages writable at once, 3 µs each. `MAP_POPULATE` leaves those of a file
to fault when they are written, which takes 20 µs in the midst of a training."""
_munmap = _libc.munmap
_munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
_FAILED = ctypes.c_void_p(-1).value


class SharedMapping:
    """A stretch of an open file, mapped to be written. The descriptor may be closed right after.

    A forked child inherits the memory; there it must be left alone.

    Raises:
        OSError: it cannot be mapped.
    """

    def __init__(self, descriptor: int, length: int, offset: int = 0) -> None:
        address = _mmap(None, length, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_SHARED, descriptor, offset)
        if address == _FAILED or address is None:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
        _madvise(address, length, _POPULATE_WRITE)
        self.address: int = address
        """0 once it is closed."""
        self._length = length
        self.bytes = memoryview((ctypes.c_char * length).from_address(address)).cast("B")
        self.words = self.bytes.cast("q")
        """The same, eight bytes at a time."""

    def close(self) -> None:
        """Nothing may be stored afterwards. Safe to call twice."""
        address, self.address = self.address, 0
        if address:
            self.words.release()
            self.bytes.release()
            _munmap(address, self._length)


_HEADER = struct.Struct("<8sIIIIqqq16s")
"""magic, version, header bytes, record bytes, rank, pid, dropped records, closed (0/1), kind."""
DROPPED_OFFSET = struct.calcsize("<8sIIIIq")
CLOSED_OFFSET = DROPPED_OFFSET + 8

FIRST_SEGMENT_BYTES = 64 * 1024
LARGEST_SEGMENT_BYTES = 512 * 1024
"""Half a millisecond in which the training waits."""


def unpack_header(page: bytes) -> tuple[bytes, int, int, int, int, int, int, int, str]:
    """The fields of a header page, in the order of `_HEADER`."""
    *head, kind = _HEADER.unpack_from(page)
    return (*head, kind.rstrip(b"\0").decode("ascii", "replace"))


def cannot_write(path: Path, error: OSError) -> RecordError:
    """What to tell people about a record file that cannot be made."""
    return RecordError(
        f"cannot write {path}: {os.strerror(error.errno or 0)}. Choose another folder with --out, or free some space."
    )


class RecordWriter(AppenderBase):
    """Appends records of one kind to one file. One writer per file, used from one thread.

    In a forked child it stores nothing and closes nothing: the file is the parent's.

    Raises:
        RecordError: the file cannot be made at all. Once made, storing never raises: `stored` and
            `dropped` tell what happened.
    """

    def __init__(self, folder: Path, kind: Kind, rank: int = 0, pid: int | None = None) -> None:
        """`pid`: the process in whose name it writes, by default this one."""
        writer = os.getpid() if pid is None else pid
        self._prepare(kind, folder / f"{kind.name}-{rank}-{writer}.rec", FIRST_SEGMENT_BYTES)
        try:
            descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
            try:
                self._begin_file(descriptor, rank, writer)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise cannot_write(self.path, error) from error
        self._grow()

    def _prepare(self, kind: Kind, path: Path, first_segment: int) -> None:
        """Everything but the file."""
        self.kind = kind
        self.path = path
        self.stored = 0
        self.dropped = 0
        self._pack_into = kind.body.pack_into
        self._body_words = kind.body.size // 8
        self._size = kind.record_bytes
        self._position = 0
        self._limit = 0
        self._address = 0
        """Where the segment is that is stored into, up to `_limit`."""
        self._map: SharedMapping | None = None
        self._next_segment = first_segment
        self._end = HEADER_BYTES
        self._file: tuple[int, int] | None = None
        """Device and number of the file; `None` once it is closed."""
        self._maker = os.getpid()
        tell_of_fork(self)

    def forked(self) -> None:
        """A child has the memory, and must not store into it."""
        self._map = self._file = None
        self._limit = self._position = 0

    def _is_inherited(self) -> bool:
        """Whether this is a child that Python was not told of: C code may fork, too."""
        if os.getpid() == self._maker:
            return False
        self.forked()
        return True

    def _begin_file(self, descriptor: int, rank: int, pid: int) -> None:
        """Give a new file its header."""
        os.posix_fallocate(descriptor, 0, HEADER_BYTES)
        self._take_file(descriptor)
        header = (MAGIC, FORMAT_VERSION, HEADER_BYTES, self.kind.record_bytes, rank, pid, 0, 0)
        _HEADER.pack_into(self._header.bytes, 0, *header, self.kind.name.encode())

    def _take_file(self, descriptor: int) -> None:
        """Write into this file from now on."""
        self._header = SharedMapping(descriptor, HEADER_BYTES)
        self._file = identity(descriptor)

    @contextlib.contextmanager
    def _opened(self) -> Iterator[int]:
        """The file, by its path. Raises `OSError` if it is gone or is another one."""
        descriptor = os.open(self.path, os.O_RDWR | os.O_CLOEXEC)
        try:
            if identity(descriptor) != self._file:
                raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))
            yield descriptor
        finally:
            os.close(descriptor)

    def append(self, *values: float) -> int:
        """Store one record: the fields of the kind after `seq`, in order. Returns its handle for `patch`.

        Returns -1 where the record could not be stored (disk full, or closed).
        """
        if self._position >= self._limit and not self._room():
            return -1
        mapped = self._map
        assert mapped is not None
        self._pack_into(mapped.bytes, self._position + 8, *values)
        return self._stored(mapped)

    def store(self, body: array[int]) -> int:
        """As `append`, for fields that lie in a row already: cheaper where a record is filled in bit by bit."""
        if self._position >= self._limit and not self._room():
            return -1
        mapped = self._map
        assert mapped is not None
        first = (self._position >> 3) + 1
        mapped.words[first : first + self._body_words] = body
        return self._stored(mapped)

    def _stored(self, mapped: SharedMapping) -> int:
        self.stored += 1
        mapped.words[self._position >> 3] = self.stored
        self._position += self._size
        return self.stored

    def _room(self) -> bool:
        if self._grow():
            return True
        self._drop()
        return False

    def patch(self, handle: int, field: str, *values: int) -> bool:
        """Fill in `i8` fields from `field` on of a record stored before; in order, the last one last.

        Records of earlier segments are reached by a write to the file. False if the record was never stored.
        """
        if handle < 1 or self._file is None or self._is_inherited():
            return False
        behind = (self.stored - handle + 1) * self._size
        position = self._position - behind
        data = struct.pack(f"<{len(values)}q", *values)
        if position >= 0 and self._map is not None:
            start = position + self.kind.offset(field)
            self._map.bytes[start : start + len(data)] = data
            return True
        start = HEADER_BYTES + (handle - 1) * self._size + self.kind.offset(field)
        with contextlib.suppress(OSError), self._opened() as descriptor:
            return os.pwrite(descriptor, data, start) == len(data)
        return False

    def close(self) -> None:
        """Cut the reserved tail and mark the file complete. Safe to call twice; never raises."""
        if self._file is None or self._is_inherited():
            return
        self._header.words[CLOSED_OFFSET // 8] = 1
        self._unmap()
        self._header.close()
        with contextlib.suppress(OSError), self._opened() as descriptor:
            os.ftruncate(descriptor, HEADER_BYTES + self.stored * self._size)
        self._file = None

    def _drop(self) -> None:
        self.dropped += 1
        if self._file is not None:
            self._header.words[DROPPED_OFFSET // 8] = self.dropped

    def _grow(self) -> bool:
        """Reserve and map the next segment; False when the disk is full or the file closed."""
        if self._file is None or self._next_segment == 0 or self._is_inherited():
            return False
        length = self._next_segment
        try:
            with self._opened() as descriptor:
                os.posix_fallocate(descriptor, self._end, length)
                # Populated at once, so that the stores to come take no page faults.
                fresh = SharedMapping(descriptor, length, self._end)
        except OSError as error:
            # Try a last small segment before giving up: a nearly full disk may still hold it.
            if error.errno in (errno.ENOSPC, errno.EDQUOT) and length > mmap.PAGESIZE:
                self._next_segment = mmap.PAGESIZE
                return self._grow()
            self._next_segment = 0
            self._unmap()
            return False
        self._unmap()
        self._map = fresh
        self._address = fresh.address
        self._position = 0
        self._limit = length - length % self._size
        self._end += length
        self._next_segment = min(length * 2, LARGEST_SEGMENT_BYTES)
        return True

    def _unmap(self) -> None:
        if self._map is not None:
            self._map.close()
            self._map = None
            self._limit = self._position = 0


def identity(descriptor: int) -> tuple[int, int]:
    """Device and number of an open file."""
    status = os.fstat(descriptor)
    return status.st_dev, status.st_ino
