"""Memory that the newest records of a file are in, shared by who stores them and who writes them to the file: a page of
words and flags, then the records, each at its number modulo how many fit."""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
import resource
from collections.abc import Iterator

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
"""Words of the first page: records that are in the file; whether no more will come; how many were lost, and of how many
of these the file's header tells; whether the sampler may not look into the process."""
_FLAGS = 64
"""Where flags of patched records begin in the first page."""
PAGE = 4096
_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL


class RecordRing:
    """Room for the newest records. Half of it may wait to be written; the other half can be patched meanwhile.

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
        self.descriptor = _memory(PAGE + length) if descriptor is None else descriptor
        """-1 where the memory cannot be given to another process."""
        if descriptor is not None:
            _check(descriptor, PAGE + length)
        shared = mmap.MAP_SHARED | (mmap.MAP_ANONYMOUS if self.descriptor < 0 else 0)
        address = _mmap(None, PAGE + length, mmap.PROT_READ | mmap.PROT_WRITE, shared, self.descriptor, 0)
        if address == _FAILED or address is None:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
        self._address: int = address
        self._length = PAGE + length
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
        """Of the first record in memory."""
        return self._address + PAGE

    def place(self, number: int) -> int:
        """Where record `number`, from 1, lies among the records, in bytes."""
        return (number - 1) % self.capacity * self.record_bytes

    def room(self, stored: int) -> int:
        """How many records may be stored in a row after the first `stored`; 0 until some are written to the file."""
        done = min(max(self.words[DONE], 0), stored)
        return min(done + self.capacity // 2 - stored, self.capacity - stored % self.capacity)

    def patched(self, number: int) -> None:
        """Record `number` has changed since it was stored."""
        self.bytes[_FLAGS + (number - 1) % self.capacity // self._group] = 1

    def take_patched(self, done: int) -> Iterator[int]:
        """Numbers of the first `done` records that may have changed since the last call."""
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
        """How many records lie in a row after the first `done`, up to the end of the memory."""
        at, step = (PAGE + self.place(done + 1)) >> 3, self.record_bytes >> 3
        most = self.capacity - done % self.capacity
        for count in range(most):
            if self.words[at + count * step] != done + 1 + count:
                return count
        return most

    def records(self, number: int, count: int = 1) -> memoryview:
        """So many records in a row from `number` on."""
        begin = PAGE + self.place(number)
        return self.bytes[begin : begin + count * self.record_bytes]

    def close(self) -> None:
        """Nothing may be stored or read afterwards. Safe to call twice."""
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


def _check(descriptor: int, length: int) -> None:
    # Of a file that may shrink, a read may kill the reader.
    if fcntl.fcntl(descriptor, fcntl.F_GET_SEALS) & _SEALS != _SEALS or os.fstat(descriptor).st_size != length:
        raise OSError("this is no memory of a ring")
