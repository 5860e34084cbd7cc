"""Source lines of another process's files, as that process sees them, and only what its user may read; and what the
functions in them are called in full."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import re
import stat
import struct
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path

from ..sampler.procfs import parse_status, read

MOST_BYTES = 4 << 20
MOST_FILES = 64
MOST_NAMES = 20_000
_DEFINES = re.compile(r"(?:async\s+)?(def|class)\s+(\w+)")
_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK
"""A pipe of this name would not answer."""
_OPENAT2 = 437
"""Its number on every architecture; of Linux 5.6."""
_IN_ROOT = 0x10 | 0x02
"""RESOLVE_IN_ROOT: links do not lead out of the root; RESOLVE_NO_MAGICLINKS: nor those of /proc."""


class SourceLines:
    """Reads files once, of this process and of those that are held. The path came out of another process's memory:
    only plain `.py` files are opened.
    """

    def __init__(self) -> None:
        self._files: OrderedDict[tuple[int, str], list[str]] = OrderedDict()
        self._names: dict[tuple[str, int, str], str] = {}
        self._held: dict[int, _Sight] = {}

    def hold(self, pid: int) -> None:
        """Keep how a process that runs sees files, until `let_go`: it may have ended when they are read."""
        if pid not in self._held and pid != os.getpid():
            with contextlib.suppress(OSError, ValueError, LookupError):
                self._held[pid] = _Sight(pid)

    def let_go(self, pid: int) -> None:
        if pid in self._held:
            self._held.pop(pid).close()

    def __call__(self, pid: int, file: str, line: int) -> str:
        """The line; empty where there is none to be had."""
        lines = self._of(pid, file)
        return lines[line - 1].strip() if 1 <= line <= len(lines) else ""

    def qualified(self, pid: int, file: str, line: int, name: str) -> str:
        """The name of a function that stands at a line, with what it is defined in: `Shards.__getitem__`,
        `outer.<locals>.<lambda>`; as it is where the source does not tell."""
        key = file, line, name
        if key not in self._names:
            if len(self._names) >= MOST_NAMES:
                self._names.clear()
            self._names[key] = _qualified(self._of(pid, file), line, name)
        return self._names[key]

    def _of(self, pid: int, file: str) -> list[str]:
        if not file.startswith("/") or not file.endswith(".py"):
            return []
        key = pid, file
        if key not in self._files:
            self._files[key] = _lines(pid, file, self._held.get(pid))
            if len(self._files) > MOST_FILES:
                self._files.popitem(last=False)
        return self._files[key]


def _qualified(lines: list[str], line: int, name: str) -> str:
    if name == "<module>" or not 1 <= line <= len(lines):
        return name
    at, indent, found = line - 1, 1 << 30, ""
    if not name.startswith("<"):
        while at >= 0 and not ((defined := _DEFINES.match(lines[at].lstrip())) and defined[2] == name):
            at -= 1
        if at < 0:
            return name
        indent = len(lines[at]) - len(lines[at].lstrip())
    # Outwards: what has less indentation than all below it is around it.
    for text in reversed(lines[: at + 1]):
        bare = text.lstrip()
        if bare and not bare.startswith(("#", ")", "]", "}")) and len(text) - len(bare) < indent:
            indent = len(text) - len(bare)
            if defined := _DEFINES.match(bare):
                found = f"{defined[2]}{'.<locals>' if defined[1] == 'def' else ''}.{found}"
        if indent == 0:
            break
    return f"{found}{name}"


def _lines(pid: int, file: str, held: _Sight | None) -> list[str]:
    try:
        if pid == os.getpid():
            fd = os.open(file, _FLAGS)
        elif held is not None:
            fd = held.opened(file)
        else:
            return []
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


class _Sight:
    """How another process sees files: its root, and its rights."""

    def __init__(self, pid: int) -> None:
        """Raises `OSError`, `LookupError` or `ValueError` where that cannot be found out."""
        said = parse_status(read(f"/proc/{pid}/status"))
        self._user, self._group = int(said["Uid"].split()[3]), int(said["Gid"].split()[3])
        self._groups = [int(each) for each in said["Groups"].split()]
        self._is_ours = Path("/").samefile(f"/proc/{pid}/root")
        self._root = os.open(f"/proc/{pid}/root", os.O_PATH | os.O_CLOEXEC)

    def opened(self, file: str) -> int:
        """A file as the process would open it. Before Linux 5.6 only where its root is ours.

        Raises:
            OSError: it could not, or we may not become its user.
        """
        with self._rights():
            libc, how = ctypes.CDLL(None, use_errno=True), struct.pack("QQQ", _FLAGS, 0, _IN_ROOT)
            fd = int(libc.syscall(_OPENAT2, self._root, os.fsencode(file), how, ctypes.c_size_t(len(how))))
            if fd < 0 and ctypes.get_errno() in (errno.ENOSYS, errno.EPERM) and self._is_ours:
                fd = os.open(file, _FLAGS)
        if fd < 0:
            raise OSError(ctypes.get_errno(), file)
        return fd

    def close(self) -> None:
        os.close(self._root)

    @contextlib.contextmanager
    def _rights(self) -> Iterator[None]:
        """Within the block we are the process's user, where that is another one."""
        ours = os.geteuid(), os.getegid(), os.getgroups()
        if self._user == ours[0]:
            yield
            return
        try:
            os.setgroups(self._groups)
            os.setegid(self._group)
            os.seteuid(self._user)
            yield
        finally:
            os.seteuid(ours[0])
            os.setegid(ours[1])
            with contextlib.suppress(PermissionError):
                os.setgroups(ours[2])
