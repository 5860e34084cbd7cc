"""Another process's memory, read through `/proc/PID/mem`: needs the same right as a debugger, stops nothing.

What is read changes meanwhile, so that any of it may be garbage: whoever reads says so by `Torn`, which never leaves
this package.
"""

from __future__ import annotations

import os
from typing import Protocol

from ...errors import WhyidleError

LEAST_ADDRESS = 0x10000
"""Below it nothing is mapped (`vm.mmap_min_addr`)."""
MOST_ADDRESS = 1 << 56
"""Of a process's own memory, on x86_64 with five levels of page tables; aarch64 has less."""


class Unreadable(WhyidleError):
    """This process's stacks cannot be read, now or ever; the message says why."""

    def __init__(self, reason: str, refused: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.refused = refused
        """The right to look into the process is missing; else it is nothing that can be read."""


class Gone(Exception):
    """The process has ended, or runs another program by now."""


class Torn(Exception):
    """What was read cannot be: the process changed it meanwhile."""


class Memory(Protocol):
    def read(self, address: int, size: int) -> bytes:
        """As many bytes as asked for; raises `Torn` where they cannot be read, `Gone` where no process is any more."""

    def close(self) -> None: ...


class ProcessMemory:
    """A process's memory, from the program on that it ran when this was made."""

    def __init__(self, pid: int) -> None:
        """Raises `Gone` or `Unreadable`."""
        try:
            self._fd = os.open(f"/proc/{pid}/mem", os.O_RDONLY | os.O_CLOEXEC)
        except PermissionError as error:
            raise Unreadable(f"process {pid} may not be looked into: {error.strerror}", refused=True) from None
        except (FileNotFoundError, ProcessLookupError):
            raise Gone(f"no process {pid}") from None
        except OSError as error:
            raise Unreadable(f"the memory of process {pid} cannot be opened: {error.strerror}") from None

    def read(self, address: int, size: int) -> bytes:
        try:
            data = os.pread(self._fd, size, address)
        except (OSError, OverflowError):
            raise Torn("not mapped") from None
        if len(data) != size:
            # The end of the file is where the memory has no process any more.
            raise Torn("not all of it is mapped") if data else Gone("the process has ended")
        return data

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def pointer(data: bytes, offset: int = 0) -> int:
    """The address in some bytes; raises `Torn` where it can be none of an object's."""
    address = int.from_bytes(data[offset : offset + 8], "little")
    if address & 7 or not LEAST_ADDRESS <= address < MOST_ADDRESS:
        raise Torn(f"no address: {address:#x}")
    return address
