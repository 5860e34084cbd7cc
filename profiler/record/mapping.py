"""Memory that is a stretch of a file, without a file descriptor.

Python's `mmap` keeps a copy of the descriptor. A program that closes descriptors it does not know, as daemons do,
closes that copy too, opens files of its own under its number, and loses one of them when the map is closed.
"""

from __future__ import annotations

import ctypes
import mmap
import os

# Keeps the GIL: giving it up could cost the training milliseconds.
_libc = ctypes.PyDLL(None, use_errno=True)
_mmap = _libc.mmap
_mmap.restype = ctypes.c_void_p
_mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_int64)
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
        flags = mmap.MAP_SHARED | mmap.MAP_POPULATE
        address = _mmap(None, length, mmap.PROT_READ | mmap.PROT_WRITE, flags, descriptor, offset)
        if address == _FAILED or address is None:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
        self._address: int | None = address
        self._length = length
        self.bytes = memoryview((ctypes.c_char * length).from_address(address)).cast("B")
        self.words = self.bytes.cast("q")
        """The same, eight bytes at a time."""

    def close(self) -> None:
        """Nothing may be stored afterwards. Safe to call twice."""
        address, self._address = self._address, None
        if address is not None:
            self.words.release()
            self.bytes.release()
            _munmap(address, self._length)
