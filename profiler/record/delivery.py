"""How what a training has to say gets into the run folder without its touching that: the sampler takes it.

A folder may hang, be full, or lose files, and none of it is to reach the training. The sampler listens on a socket
whose name follows from the folder's. A process sends it the memory that its records will be in (`ring.py`), lines to
add to a text and whole small files; sending never waits. Where nobody listens, the process writes itself.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import socket
import struct
from pathlib import Path
from typing import Any

from .files import APPENDED, write_text

MOST_MESSAGE = 128 << 10
"""Bytes; a longer one is written by who has it."""
_CREDENTIALS = struct.Struct("3i")
received_here: set[bytes] = set()
"""Addresses on which this process itself listens: it writes what it has to say."""


@functools.cache
def address(folder: Path) -> bytes:
    """Of the socket on which this folder's sampler listens: of its path alone, as seen from here. The folder is not
    asked."""
    path = os.fsencode(folder.absolute())
    try:
        mounts = Path("/proc/self/ns/mnt").stat().st_ino
    except OSError:
        mounts = 0
    return b"\0whyidle-%x-%s" % (mounts, hashlib.blake2b(path, digest_size=16).hexdigest().encode())


def peer(connection: socket.socket) -> tuple[int, int]:
    """(process, user) at the other end."""
    told = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    process, user, _ = _CREDENTIALS.unpack(told)
    return process, user


def deliver(folder: Path, message: dict[str, Any] | None = None, descriptor: int = -1) -> bool:
    """Whether a sampler of this folder listens, which has or will have the message. Never waits, never raises.

    Args:
        message: by default none, which only asks.
        descriptor: memory that goes with it.
    """
    if address(folder) in received_here:
        return False
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
        data = b"" if message is None else json.dumps(message).encode()
        connection.setblocking(False)
        try:
            connection.connect(address(folder))
            if peer(connection)[1] != os.geteuid() or len(data) > MOST_MESSAGE:
                # Of another user, who may listen under any name, or whose folder it is: neither takes from the other.
                return False
            if data:
                socket.send_fds(connection, [data], [descriptor] if descriptor >= 0 else [], socket.MSG_NOSIGNAL)
        except BlockingIOError:
            # It listens and has not come to it for long: the folder hangs. What has no room is lost.
            return message is None
        return True
    return False


def add_lines(folder: Path, name: str, lines: str, most: int, once: bool = False) -> bool:
    """Append lines to a text of the folder, where it has fewer than `most` bytes. `once`: those that it lacks. Whether
    that is done or on its way. Never raises."""
    if deliver(folder, {"add": name, "lines": lines, "most": most, "once": once}):
        return True
    with contextlib.suppress(OSError, UnicodeError):
        return append_lines(folder / name, lines, most, once)
    return False


def append_lines(path: Path, lines: str, most: int, once: bool) -> bool:
    """As `add_lines`, to the file itself.

    Raises:
        OSError: it cannot be opened, or is a link.
    """
    file = os.open(path, APPENDED, 0o644)
    try:
        size = os.fstat(file).st_size
        if size >= most:
            return False
        data = lines.encode(errors="replace")
        if once:
            known = set(os.pread(file, size, 0).splitlines())
            data = b"".join(line for line in data.splitlines(keepends=True) if line.rstrip(b"\n") not in known)
        return os.write(file, data) == len(data)
    finally:
        os.close(file)


def put_text(folder: Path, name: str, text: str) -> None:
    """Have a small text of the folder be this, instead of what it is.

    Raises:
        OSError: it could not be written.
    """
    if not deliver(folder, {"put": name, "text": text}):
        write_text(folder / name, text)
