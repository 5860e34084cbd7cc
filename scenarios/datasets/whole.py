"""Whether a published file that somebody put there is the published one, and all of it."""

from __future__ import annotations

import hashlib
from pathlib import Path

from whyidle.errors import DataError


def require_whole(file: Path, md5: str, get: str) -> None:
    """`get` says where the file is to be had.

    Raises:
        DataError: it has another checksum, or cannot be read.
    """
    try:
        with file.open("rb") as opened:
            found = hashlib.file_digest(opened, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
    except OSError as error:
        raise DataError(f"{file} cannot be read: {error.strerror}. {get}") from error
    if found != md5:
        raise DataError(f"{file} is cut off or another file: its md5 is {found}, the published one's {md5}. {get}")
