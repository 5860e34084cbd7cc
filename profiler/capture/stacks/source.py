"""Source lines of another process's files, as that process sees them, and only what its user may read."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import stat
import struct
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path

MOST_BYTES = 4 << 20
MOST_FILES = 64
_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK
"""A pipe of this name would not answer."""
_OPENAT2 = 437
"""Its number on every architecture; of Linux 5.6."""
_IN_ROOT = 0x10 | 0x02
"""RESOLVE_IN_ROOT: links do not lead out of the root; RESOLVE_NO_MAGICLINKS: nor those of /proc."""


class SourceLines:
    """Reads files once. The path came out of another process's memory: only plain `.py` files are opened."""

    def __init__(self) -> None:
        self._files: OrderedDict[tuple[int, str], list[str]] = OrderedDict()

    def __call__(self, pid: int, file: str, line: int) -> str:
        """The line; empty where there is none to be had."""
        if not file.startswith("/") or not file.endswith(".py"):
            return ""
        key = pid, file
        if key not in self._files:
            self._files[key] = _lines(pid, file)
            if len(self._files) > MOST_FILES:
                self._files.popitem(last=False)
        lines = self._files[key]
        return lines[line - 1].strip() if 1 <= line <= len(lines) else ""


def _lines(pid: int, file: str) -> list[str]:
    try:
        fd = os.open(file, _FLAGS) if pid == os.getpid() else _opened(pid, file)
    except (OSError, ValueError, LookupError):
        return []
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            return []
        return os.read(fd, MOST_BYTES).decode(errors="replace").split("\n")
    except OSError:
        return []
    finally:
        os.close(fd)


def _opened(pid: int, file: str) -> int:
    """A file as another process would open it: in its root, with its rights. Before Linux 5.6 only where its root is
    ours.

    Raises:
        OSError: it could not, or we may not become its user.
    """
    root = os.open(f"/proc/{pid}/root", os.O_PATH | os.O_CLOEXEC)
    try:
        with _rights_of(pid):
            libc, how = ctypes.CDLL(None, use_errno=True), struct.pack("QQQ", _FLAGS, 0, _IN_ROOT)
            fd = int(libc.syscall(_OPENAT2, root, os.fsencode(file), how, ctypes.c_size_t(len(how))))
            if fd < 0 and ctypes.get_errno() in (errno.ENOSYS, errno.EPERM) and Path("/").samefile(f"/proc/{pid}/root"):
                fd = os.open(file, _FLAGS)
    finally:
        os.close(root)
    if fd < 0:
        raise OSError(ctypes.get_errno(), file)
    return fd


@contextlib.contextmanager
def _rights_of(pid: int) -> Iterator[None]:
    """Within the block we are the user of a process, where that is another one."""
    said = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    user, ours = int(said["Uid"].split()[3]), (os.geteuid(), os.getegid(), os.getgroups())
    if user == ours[0]:
        yield
        return
    try:
        os.setgroups([int(each) for each in said["Groups"].split()])
        os.setegid(int(said["Gid"].split()[3]))
        os.seteuid(user)
        yield
    finally:
        os.seteuid(ours[0])
        os.setegid(ours[1])
        with contextlib.suppress(PermissionError):
            os.setgroups(ours[2])
