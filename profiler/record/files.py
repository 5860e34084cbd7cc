"""Small files of a run folder: written so that a reader never sees half of one, by the sampler where one listens; read
so that they can do no harm.

A folder may hang, be full, or lose files, and none of it is to reach the training. The sampler listens on a socket
whose name follows from the folder's. A process sends it the memory that its records will be in (`segment.py`), lines to
add to a text and whole small files; sending never waits. Where nobody listens, the process writes itself.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import hashlib
import json
import math
import os
import re
import socket
import stat
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, TypeVar

from ..errors import RecordError

T = TypeVar("T")
MOST_DIGITS = 21
"""Characters of a whole number of 64 bits, with its sign."""
_EARLIER, _NAME = "stallscope", "whyidle"
"""What this program was called when it recorded the first runs, and what it is called."""
APPENDED = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
"""How a file is opened that a folder may hold: not through a link, and no pipe is waited for."""
MOST_BYTES = 256 << 20
"""Bytes of a file of a recording, other than records."""
_NO_TEXT = re.compile("[\0-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""Signs that control a terminal, break a line, show what follows in another order, or stand for a byte that is no text
(of a file's name)."""
_COMMAND = re.compile(r"^(\s*):(?=:)|#(?=#(?:\[|vso\[))", re.MULTILINE)
"""What a CI service that reads logs would take for a command to it: GitHub's, old and new, and Azure's."""
MOST_MESSAGE = 128 << 10
"""Bytes; a longer one is written by who has it."""
_CREDENTIALS = struct.Struct("3i")
received_here: set[bytes] = set()
"""Addresses on which this process itself listens: it writes what it has to say."""


def open_recorded(path: Path, most: int = MOST_BYTES) -> int:
    """Open a file of a recording for reading; returns its descriptor. A recording may be anyone's: opening a file of
    it never waits and leads to no other, and what is read has an end.

    Args:
        path: its last part may be no link; that the user names a folder by one is the user's choice.
        most: bytes that a file of its kind may have.

    Raises:
        OSError: there is none, or it may not be read.
        RecordError: it is no file, or too large.
    """
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        raise RecordError(f"{path} is damaged: it is a link, which whyidle does not follow.") from error
    found = os.fstat(file)
    if stat.S_ISREG(found.st_mode) and found.st_size <= most:
        return file
    os.close(file)
    what = {stat.S_IFREG: "larger than any that whyidle writes", stat.S_IFIFO: "a pipe", stat.S_IFDIR: "a folder"}
    raise RecordError(f"{path} is damaged: it is {what.get(stat.S_IFMT(found.st_mode), 'a device')}.")


def read_recorded(path: Path) -> bytes:
    """Read all of a file of a recording. Raises as `open_recorded` does."""
    with os.fdopen(open_recorded(path), "rb") as file:
        return file.read()


def read_lines(path: Path) -> list[bytes]:
    """Read the lines of a text of a recording; none where there is no text. Raises as `open_recorded` does."""
    with contextlib.suppress(OSError):
        return read_recorded(path).splitlines()
    return []


def read_json(path: Path) -> Any:
    """Read a JSON file, with control characters in texts replaced: they would act on a terminal. What is no number, or
    none that a float holds, is `None`: not measured. What was written under the program's earlier name reads as if it
    had been written under today's.

    Raises:
        RecordError: it cannot be read, or is no JSON.
    """
    try:
        return plain(
            json.loads(
                read_recorded(path),
                parse_int=_whole_number,
                parse_float=_finite,
                parse_constant=_finite,
                object_hook=under_todays_name,
            )
        )
    except OSError as error:
        raise RecordError(f"cannot read {path}: {error.strerror or error}.") from error
    except (ValueError, RecursionError) as error:
        raise RecordError(f"cannot read {path}: damaged, cut short, or not written by whyidle ({error}).") from error


def read_object(path: Path) -> dict[str, Any]:
    """Read the object in a JSON file; empty where there is none that can be read."""
    with contextlib.suppress(RecordError):
        content = read_json(path)
        return content if isinstance(content, dict) else {}
    return {}


def as_a(kind: type[T], content: Any) -> T | None:
    """Convert what was read of JSON to a data class; `None` where a field without default is missing, or one is of
    another type. Unknown fields are ignored."""
    # Whoever records has no use for it.
    import msgspec

    with contextlib.suppress(msgspec.ValidationError):
        return msgspec.convert(content, kind)
    return None


def under_todays_name(content: dict[str, Any]) -> dict[str, Any]:
    """Rename an object of JSON whose `format` begins with the program's earlier name: today's stands in place of it,
    also as the key of the version of the program that wrote it."""
    written = content.get("format")
    if not isinstance(written, str) or not written.startswith(f"{_EARLIER}-"):
        return content
    renamed = {_NAME if key == _EARLIER else key: value for key, value in content.items()}
    return renamed | {"format": _NAME + written.removeprefix(_EARLIER)}


def _whole_number(text: str) -> int:
    """Larger ones are nobody's measurement, and overflow wherever one is computed with.

    Raises:
        ValueError: it has more than 64 bits.
    """
    if len(text) > MOST_DIGITS or not -(2**64) < (number := int(text)) < 2**64:
        raise ValueError(f"{text:.24}… is not a number of whyidle's")
    return number


def _finite(text: str) -> float | None:
    value = float(text)
    return value if math.isfinite(value) else None


def plain(value: Any) -> Any:
    """Replace every character in the texts of a value by `?` that acts on a terminal, or that no encoding can
    write; line breaks and tabs stay."""
    if isinstance(value, str):
        return value if value.isprintable() else _NO_TEXT.sub("?", value)
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {plain(key): plain(item) for key, item in value.items()}
    return value


def one_line(text: str) -> str:
    """Make a text one that may be printed, whoever recorded words of it: plain, and in one line but for further lines
    of our own, which begin with two blanks."""
    return re.sub(r"\n(?!  )", "?", str(plain(text)))


def no_commands(text: str) -> str:
    """Make lines none of which a CI service that reads logs would take for a command to it."""
    return _COMMAND.sub(r"\1?", text)


@contextlib.contextmanager
def replacing(path: Path, named: bool = False) -> Iterator[IO[bytes]]:
    """Open a file to write: one beside `path` that takes its place where the block ends well, and else is gone. So
    nobody sees half of one, and nothing is written through a link: one that lies at `path` is replaced. Where the user
    has `named` it, a link stays one, and a pipe or a device, such as /dev/null, is written to itself.

    Raises:
        OSError: it could not take the place.
    """
    if named and path.exists() and not path.is_file():
        with path.open("wb") as file:
            yield file
        return
    whole = Path(os.path.realpath(path)) if named else path
    draft = whole.with_name(f".{whole.name}.{os.getpid()}")
    try:
        # What was left by an earlier process of this number, or put there to be written through.
        draft.unlink(missing_ok=True)
        new = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open(draft, new, 0o666), "wb") as file:
            yield file
        draft.replace(whole)
    finally:
        with contextlib.suppress(OSError):
            draft.unlink(missing_ok=True)


def write_text(path: Path, text: str, named: bool = False) -> None:
    """Write a text at once, as `replacing` does.

    Raises:
        OSError: it could not be written; what was there before is still there.
    """
    with replacing(path, named) as file:
        file.write(text.encode())


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Write JSON, as `write_text` does.

    Raises:
        OSError: it could not be written; what was there before is still there.
    """
    write_text(path, json.dumps(content, indent=1))


@functools.cache
def socket_address(folder: Path) -> bytes:
    """Name the socket on which this folder's sampler listens: by its path alone, as seen from here. The folder is not
    asked."""
    path = os.fsencode(folder.absolute())
    try:
        mounts = Path("/proc/self/ns/mnt").stat().st_ino
    except OSError:
        mounts = 0
    return b"\0whyidle-%x-%s" % (mounts, hashlib.blake2b(path, digest_size=16).hexdigest().encode())


def peer(connection: socket.socket) -> tuple[int, int]:
    """Tell who is at the other end: (process, user)."""
    told = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    process, user, _ = _CREDENTIALS.unpack(told)
    return process, user


def deliver(folder: Path, message: dict[str, Any] | None = None, descriptor: int = -1) -> bool:
    """Send a message; whether a sampler of this folder listens, which has or will have it. Never waits, never raises.

    Args:
        message: by default none, which only asks.
        descriptor: memory that goes with it.
    """
    if socket_address(folder) in received_here:
        return False
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
        data = b"" if message is None else json.dumps(message).encode()
        connection.setblocking(False)
        try:
            connection.connect(socket_address(folder))
            if peer(connection)[1] != os.geteuid() or len(data) > MOST_MESSAGE:
                # Another user may listen under any name, or own the folder: neither takes from the other.
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
    """Append lines as `add_lines` does, to the file itself.

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
