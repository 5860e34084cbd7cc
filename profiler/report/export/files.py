"""Where exports go: files that are there once they are whole, packed ones, pipes, stdout."""

from __future__ import annotations

import gzip
import io
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, TextIO

from ...errors import WhyidleError
from ...record.files import replacing

STDOUT = "-"


@contextmanager
def opened(output: str | None) -> Iterator[TextIO]:
    """Where text goes: stdout (`None`, or `-`), or a file that is there once it is whole; packed where its name ends in
    `.gz`.

    Raises:
        WhyidleError: it cannot be written; what was there before still is.
    """
    if output is None or output == STDOUT:
        yield sys.stdout
        sys.stdout.flush()
        return
    path = Path(output)
    with _named(path), replacing(path) as draft:
        if path.suffix == ".gz":
            # No time and no name in it: the same trace gives the same bytes.
            with (
                draft.open("wb") as raw,
                gzip.GzipFile("", "wb", 6, raw, mtime=0) as packed,
                io.TextIOWrapper(packed, encoding="utf-8", newline="") as file,
            ):
                yield file
        else:
            with draft.open("w", encoding="utf-8", newline="") as file:
                yield file


def in_place(path: Path, write_to: Callable[[BinaryIO], int]) -> int:
    """Let `write_to` write a file beside this one, which then takes its place; returns the rows it wrote.

    Raises:
        WhyidleError: it cannot be written; what was there before still is.
    """
    with _named(path), replacing(path) as draft, draft.open("wb") as file:
        return write_to(file)


@contextmanager
def _named(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise WhyidleError(f"cannot write {path}: {error.strerror or error}. Name another file.") from error
