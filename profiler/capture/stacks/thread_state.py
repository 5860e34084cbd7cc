"""What a thread of another process does at an instant: runs, or waits, and for what. From `/proc/PID/task/TID`.

`stat` has the state's letter for everyone; `syscall` (proc(5): the number of the call to the kernel and its arguments)
needs the same right as a debugger. Whether a thread that can run has a CPU or waits for one, no file says of an
instant: `schedstat` says it of the time between two readings.
"""

from __future__ import annotations

import os
import platform
from typing import Final

from ...record.schema import NOT_MEASURED, ThreadState
from ..sampler.procfs import read


class Gone(Exception):
    """There is no such thread any more."""


_WAITS: Final = {
    ThreadState.LOCK: ("futex", "futex_waitv"),
    ThreadState.SLEEP: ("nanosleep", "clock_nanosleep", "pause"),
    ThreadState.POLL: ("poll", "ppoll", "select", "pselect6", "epoll_wait", "epoll_pwait", "epoll_pwait2",
                       "io_getevents", "io_uring_enter", "rt_sigtimedwait"),
    ThreadState.SOCKET: ("connect", "accept", "accept4", "recvfrom", "recvmsg", "recvmmsg", "sendto", "sendmsg",
                         "sendmmsg"),
    ThreadState.FILE: ("open", "openat", "stat", "lstat", "newfstatat", "statx", "getdents64", "mkdir", "rename",
                       "renameat2", "unlink", "unlinkat", "sync"),
    ThreadState.FILE_LOCK: ("flock", "fcntl"),
    ThreadState.CHILD: ("wait4", "waitid"),
}  # fmt: skip
"""What a thread waits for by the call alone."""
_OF_DESCRIPTOR: Final = (
    "read", "write", "readv", "writev", "pread64", "pwrite64", "preadv", "pwritev", "preadv2", "pwritev2", "fsync",
    "fdatasync", "fstat", "lseek", "ftruncate", "fallocate", "close", "sendfile", "copy_file_range", "splice",
    "sync_file_range", "readahead", "syncfs", "ioctl",
)  # fmt: skip
"""What it waits for depends on what the descriptor, their first argument, is."""
_FUTEX_PRIVATE: Final = 0x80
"""Of a futex's operation, its second argument (futex(2)): none but threads of this process wait for it."""
_WITH_DESCRIPTOR: Final = {*_OF_DESCRIPTOR, *_WAITS[ThreadState.SOCKET], "getdents64", "flock", "fcntl"}
_STATES: Final = {call: state for state, calls in _WAITS.items() for call in calls}

# The kernel's arch/x86/entry/syscalls/syscall_64.tbl and include/uapi/asm-generic/unistd.h.
_X86_64: Final = {
    0: "read", 1: "write", 2: "open", 3: "close", 4: "stat", 5: "fstat", 6: "lstat", 7: "poll", 8: "lseek", 16: "ioctl",
    17: "pread64", 18: "pwrite64", 19: "readv", 20: "writev", 23: "select", 34: "pause", 35: "nanosleep",
    40: "sendfile", 42: "connect", 43: "accept", 44: "sendto", 45: "recvfrom", 46: "sendmsg", 47: "recvmsg",
    61: "wait4", 72: "fcntl", 73: "flock", 74: "fsync", 75: "fdatasync", 77: "ftruncate", 82: "rename", 83: "mkdir",
    87: "unlink", 128: "rt_sigtimedwait", 162: "sync", 187: "readahead", 202: "futex", 208: "io_getevents",
    217: "getdents64", 230: "clock_nanosleep", 232: "epoll_wait", 247: "waitid", 257: "openat", 262: "newfstatat",
    263: "unlinkat", 270: "pselect6", 271: "ppoll", 275: "splice", 277: "sync_file_range", 281: "epoll_pwait",
    285: "fallocate", 288: "accept4", 295: "preadv", 296: "pwritev", 299: "recvmmsg", 306: "syncfs", 307: "sendmmsg",
    316: "renameat2", 326: "copy_file_range", 327: "preadv2", 328: "pwritev2", 332: "statx", 426: "io_uring_enter",
    441: "epoll_pwait2", 449: "futex_waitv",
}  # fmt: skip
_AARCH64: Final = {
    4: "io_getevents", 22: "epoll_pwait", 25: "fcntl", 29: "ioctl", 32: "flock", 35: "unlinkat", 46: "ftruncate",
    47: "fallocate", 56: "openat", 57: "close", 61: "getdents64", 62: "lseek", 63: "read", 64: "write", 65: "readv",
    66: "writev", 67: "pread64", 68: "pwrite64", 69: "preadv", 70: "pwritev", 71: "sendfile", 72: "pselect6",
    73: "ppoll", 76: "splice", 79: "newfstatat", 80: "fstat", 81: "sync", 82: "fsync", 83: "fdatasync",
    84: "sync_file_range", 95: "waitid", 98: "futex", 101: "nanosleep", 115: "clock_nanosleep", 137: "rt_sigtimedwait",
    202: "accept", 203: "connect", 206: "sendto", 207: "recvfrom", 211: "sendmsg", 212: "recvmsg", 213: "readahead",
    242: "accept4", 243: "recvmmsg", 260: "wait4", 267: "syncfs", 269: "sendmmsg", 276: "renameat2",
    285: "copy_file_range", 286: "preadv2", 287: "pwritev2", 291: "statx", 426: "io_uring_enter", 441: "epoll_pwait2",
    449: "futex_waitv",
}  # fmt: skip
CALLS: Final = {"x86_64": _X86_64, "aarch64": _AARCH64}


def thread_state(pid: int, tid: int) -> int:
    """One of `ThreadState`; `NOT_MEASURED` of a thread that is stopped or has ended, and where the kernel does not say.

    Raises:
        Gone: there is no such thread.
    """
    folder = f"/proc/{pid}/task/{tid}"
    stat = read(f"{folder}/stat")
    if stat is None:
        raise Gone(f"no thread {tid}")
    letter = stat[stat.rfind(b")") + 2 :][:1].decode("ascii", "replace")
    if letter == "R":
        return ThreadState.RUNS
    if letter in "ZXxTt":
        return NOT_MEASURED
    number, descriptor, operation = parse_call(read(f"{folder}/syscall"))
    if number is None:
        return NOT_MEASURED
    if number < 0:
        # Held in the kernel without a call: by a fault of a page, or an interrupt's end.
        return ThreadState.FILE if letter == "D" else ThreadState.RUNS
    call = CALLS.get(platform.machine(), {}).get(number)
    if call is None:
        return ThreadState.OTHER
    if call == "futex" and operation is not None and not operation & _FUTEX_PRIVATE:
        return ThreadState.SHARED_LOCK
    target = _target(pid, descriptor) if call in _WITH_DESCRIPTOR and descriptor is not None else None
    return state_of(call, target)


def parse_call(text: bytes | None) -> tuple[int | None, int | None, int | None]:
    """Of a `syscall` file: the call's number and its first two arguments.

    `None`: not known. A number of -1: waits, but in none; so it says of what runs.
    """
    if not text:
        return None, None, None
    fields = text.split()
    if fields[:1] == [b"running"]:
        return -1, None, None
    try:
        number = int(fields[0])
        if number < 0:
            return number, None, None
        first, second = (int(field, 16) & 0xFFFFFFFF for field in fields[1:3])
    except (IndexError, ValueError):
        return None, None, None
    return number, first, second


def state_of(call: str, target: str | None) -> int:
    """`target`: what the descriptor of the call is."""
    if call in _STATES:
        return _STATES[call]
    if call not in _OF_DESCRIPTOR or target is None:
        return ThreadState.OTHER
    if target.startswith("socket:"):
        return ThreadState.SOCKET
    if target.startswith("pipe:"):
        return ThreadState.PIPE
    return ThreadState.POLL if target.startswith("anon_inode:") else ThreadState.FILE


def _target(pid: int, descriptor: int) -> str | None:
    try:
        return os.readlink(f"/proc/{pid}/fd/{descriptor}")  # noqa: PTH115 - as text, and cheap
    except OSError:
        return None
