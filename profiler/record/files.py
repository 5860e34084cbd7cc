"""Small JSON files: written so that a reader never sees half of one, read so that they can do no harm."""

from __future__ import annotations

import contextlib
import json
import os
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from ..errors import RecordError

MOST_DIGITS = 21
"""Of a whole number of 64 bits, with its sign."""
_EARLIER, _NAME = "stallscope", "whyidle"
"""What this program was called when it recorded the first runs, and what it is called."""
_REORDERS = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
"""Signs that show what follows in another order than it has."""
APPENDED = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
"""How a file is opened that a folder may hold: not through a link, and no pipe is waited for."""


def read_json(path: Path) -> Any:
    """The content, with control characters in texts replaced: they would act on a terminal. What was written under the
    program's earlier name reads as if it had been written under today's.

    Raises:
        RecordError: it cannot be read, or is no JSON.
    """
    try:
        return plain(json.loads(path.read_text(), parse_int=_whole_number, object_hook=under_todays_name))
    except OSError as error:
        raise RecordError(f"cannot read {path}: {error.strerror or error}.") from error
    except (ValueError, RecursionError) as error:
        raise RecordError(f"cannot read {path}: cut short, or not written by whyidle ({error}).") from error


def under_todays_name(content: dict[str, Any]) -> dict[str, Any]:
    """An object of JSON; one whose `format` begins with the program's earlier name with today's in place of it, and the
    version of the program that wrote it under today's name."""
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
        raise ValueError(f"{text:.24}… is no number of ours")
    return number


def plain(value: Any) -> Any:
    """The value with every character in its texts replaced by `?` that controls a terminal, reorders what is shown, or
    stands for a byte that is no text (of a file's name): no encoding can write that."""
    if isinstance(value, str):
        return value if value.isprintable() else "".join("?" if _is_no_text(c) else c for c in value)
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {plain(key): plain(item) for key, item in value.items()}
    return value


def _is_no_text(sign: str) -> bool:
    return (unicodedata.category(sign) in ("Cc", "Cs") and sign not in "\n\t") or sign in _REORDERS


@contextlib.contextmanager
def replacing(path: Path, named: bool = False) -> Iterator[IO[bytes]]:
    """A file to write: one beside `path` that takes its place where the block ends well, and else is gone. So nobody
    sees half of one, and nothing is written through a link: one that lies at `path` is replaced. Where the user has
    `named` it, a link stays one, and a pipe or a device, such as /dev/null, is written to itself.

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
    """Written at once, as `replacing` does.

    Raises:
        OSError: it could not be written; what was there before is still there.
    """
    with replacing(path, named) as file:
        file.write(text.encode())


def write_json(path: Path, content: dict[str, Any]) -> None:
    """As `write_text`.

    Raises:
        OSError: it could not be written; what was there before is still there.
    """
    write_text(path, json.dumps(content, indent=1))
